// Draws the charts of the report from the JSON in the page, and sorts and filters its tables. Text stays text.
(() => {
  const { byId, html, svg, table, scrolling, known, minus, whole, plural, percent, short } = kit;
  const { scale, pair, path, ticks, theme } = kit;
  const data = JSON.parse(byId("data").textContent);
  const labelled = data.cells.filter((cell) => cell.unlabelled === 0 && !cell.every);
  const state = { shown: new Set(), statistic: "mean", own: false, print: false };
  data.methods.forEach((entry, index) => entry.shown && state.shown.add(index));

  // Numbers and cells in words

  const rounded = (value) => Number(value.toFixed(3)) + 0; // as the tables round; a zero has no minus
  const score = (value) => (known(value) ? minus(rounded(value).toFixed(3)) : "–");
  const signed = (value) => (known(value) && rounded(value) >= 0 ? "+" : "") + score(value);
  const range = ([value, low, high], format = score) =>
    format(value) + (known(low) ? ` [${format(low)}, ${format(high)}]` : "");
  const method = (cell) => data.methods[cell.method];
  const setting = (cell) => data.settings[cell.setting].join(", ");
  const lost = (cell) => (cell.diverged || []).filter((at) => at >= 0).length;
  const where = ({ size, unlabelled, every }) =>
    plural(size, "trajectory", "trajectories") + (unlabelled ? ` and ${unlabelled} unlabelled` : "")
    + (every ? ", every state" : "");
  const few = ({ draws }) => (draws < data.fewest ? ` (${plural(draws, "draw")}: no 95 % interval)` : "");
  const title = (cell) => `${method(cell).name}, ${where(cell)}, ${setting(cell)}`;

  function facts(cell) {
    const shape = `${plural(cell.draws, "draw")} of demonstrations × ${plural(cell.initialisations, "seed")}`;
    const beside = cell.differs ? `; ours lies ${cell.differs} †` : "";
    return [
      ["mean", `${range(cell.mean)}${known(cell.mean[1]) ? few(cell) : ""}, s.e. ${score(cell.error)}`],
      ["IQM", range(cell.iqm)],
      ["diverged", lost(cell) ? `${lost(cell)} of ${cell.scores.length}` : "none"],
      ["minus BC", cell.difference && `${range(cell.difference, signed)}, ${cell.verdict}`],
      ["printed", cell.printed && `${score(cell.printed[0])} ± ${score(cell.printed[1])}${beside}`],
      ["runs", `${whole(cell.scores.length)} (${shape})`],
    ].filter(([, text]) => text);
  }

  // Marks, axes and panels

  const MARKERS = [
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-3.7,-3.7h7.4v7.4h-7.4z",
    "M0,-4.8L4.6,3.4H-4.6z",
    "M0,-5.2L4.6,0L0,5.2L-4.6,0z",
    "M0,4.8L4.6,-3.4H-4.6z",
    "M-1.6,-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
    "M-4.6,-2.4L-2.4,-4.6L0,-2.2L2.4,-4.6L4.6,-2.4L2.2,0L4.6,2.4L2.4,4.6L0,2.2L-2.4,4.6L-4.6,2.4L-2.2,0z",
    "M0,-5.6L1.5,-1.9L5.3,-1.7L2.4,0.8L3.3,4.5L0,2.5L-3.3,4.5L-2.4,0.8L-5.3,-1.7L-1.5,-1.9z",
  ];
  const WIDTH = 380, HEIGHT = 268, LEFT = 38, RIGHT = 370, TOP = 10, BOTTOM = 230; // of a chart, and of its axes
  const chart = (attributes, ...children) =>
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, ...attributes }, ...children);

  function extent(values, ...always) {
    const all = [...values.filter(known), ...always];
    const low = Math.min(...all), high = Math.max(...all), room = (high - low) * 0.04 || 0.05;
    return [low - room, high + room];
  }
  function axes(across, along, xName, left = LEFT) {
    const lines = along.flatMap(([y, text]) => [
      svg("path", { class: "tick", d: `M${left},${y.toFixed(1)}H${RIGHT}` }),
      svg("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, text),
    ]);
    const names = [...across, [(left + RIGHT) / 2, xName, HEIGHT - 6]];
    const texts = names.map(([x, text, y]) => svg("text", { x, y: y || BOTTOM + 16, "text-anchor": "middle" }, text));
    return svg("g", { "aria-hidden": "true" }, ...lines, ...texts);
  }
  function swatch(entry) {
    const box = { width: 26, height: 14, viewBox: "-13 -7 26 14", class: `c${entry.colour}`, "aria-hidden": "true" };
    const line = svg("path", { class: "series", d: "M-13,0H13" });
    return svg("svg", box, line, svg("path", { class: "dot", d: MARKERS[entry.marker] }));
  }
  function panel([first, second], ...children) {
    return html("figure", { class: "panel" }, html("figcaption", {}, first, html("span", {}, second)), ...children);
  }
  const nothing = (lines, text) => panel(lines, html("p", { class: "empty" }, text));
  const SWITCHED_OFF = "No method that is switched on has cells here.";

  function behind(make) {
    const details = html("details", { class: "behind" }, html("summary", {}, "The numbers"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(scrolling("The numbers of this chart", make()));
    });
    return details;
  }

  // What hovers beside a mark

  const tip = byId("tip");
  function hover(content, box) {
    tip.replaceChildren(...content);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect(), gap = 14, edge = 4;
    const wide = document.documentElement.clientWidth, high = window.innerHeight;
    const onRight = box.right + gap + width < wide, onLeft = box.left - gap - width > edge;
    const left = onRight ? box.right + gap : box.left - gap - width;
    const over = box.top - height - gap > edge ? box.top - height - gap : box.bottom + gap;
    tip.style.left = `${Math.max(edge, Math.min(left, wide - width - edge))}px`;
    const top = onRight || onLeft ? Math.min(box.top - height / 2, high - height - edge) : over;
    tip.style.top = `${Math.max(edge, top)}px`;
  }
  function leave() {
    tip.hidden = true;
    document.querySelectorAll(".near").forEach((mark) => mark.classList.remove("near"));
    document.querySelectorAll(".dim").forEach((chart) => chart.classList.remove("dim"));
  }
  document.addEventListener("keydown", (event) => event.key === "Escape" && leave());
  document.addEventListener("scroll", leave, { passive: true });

  function strip(cell, width, step) {
    const [low, high] = extent(cell.scores, 1), x = scale(low, high, 12, width - 12), rows = Math.min(cell.draws, 25);
    const bottom = rows * step + 4, height = bottom + 20, upright = (at) => `M${x(at).toFixed(1)},2V${bottom}`;
    const mark = (at, run) => {
      const draw = Math.floor(run / cell.initialisations), place = [x(at), 4 + step * ((draw % rows) + 0.5)];
      if (cell.diverged && cell.diverged[run] >= 0)
        return svg("path", { class: "lost", d: `M${pair(place)}m-2.5,-2.5l5,5m0,-5l-5,5` });
      return svg("circle", { class: "run", cx: place[0].toFixed(1), cy: place[1].toFixed(1), r: 2.3 });
    };
    const label = `Score of each run: ${plural(cell.scores.length, "mark")}, one line per draw`;
    const box = { width, height, viewBox: `0 0 ${width} ${height}`, class: `c${method(cell).colour}` };
    return svg("svg", { ...box, role: "img", "aria-label": label },
      svg("path", { class: "axis", d: `M4,${bottom}H${width - 4}` }),
      ...[0, 1].filter((at) => at >= low).map((at) => svg("path", { class: "one", d: upright(at) })),
      ...ticks(low, high, 4).map((at) => svg("text", { x: x(at), y: height - 5, "text-anchor": "middle" }, short(at))),
      svg("path", { class: "cross", d: upright(cell.mean[0]) }),
      ...cell.scores.map(mark));
  }
  function about(cell) {
    const runs = ["runs", `${whole(cell.scores.length)}, one line per draw:`];
    return [
      html("h4", {}, `${method(cell).name}, ${where(cell)}`),
      table(null, [...facts(cell).slice(0, -1), runs], { class: "facts" }),
      strip(cell, 250, cell.draws > 12 ? 4 : 6),
    ];
  }

  // Lines of methods: the return against the size, or against the unlabelled trajectories

  const value = (cell) => cell[state.statistic];
  const bySize = (cell) => cell.size, byStates = (cell) => cell.unlabelled + (cell.every ? 0.5 : 0);
  const spoken = (one) => (Number.isInteger(one) ? String(one) : `${Math.floor(one)}, all`);

  function linePanel(lines, cells, key, xName, domain) {
    const shown = cells.filter((cell) => state.shown.has(cell.method));
    if (!shown.length) return nothing(lines, SWITCHED_OFF);
    const methods = [...new Set(shown.map((cell) => cell.method))];
    const keys = [...new Set(cells.map(key))].sort((a, b) => a - b);
    const [low, high] = domain || extent(shown.flatMap(value)), y = scale(low, high, BOTTOM, TOP);
    const spread = scale(0, keys.length - 1, LEFT + 24, RIGHT - 24);
    const x = (one) => (keys.length === 1 ? (LEFT + RIGHT) / 2 : spread(keys.indexOf(one)));
    const gap = Math.min(4.5, ((RIGHT - LEFT) / keys.length) * (0.6 / methods.length)); // keeps intervals apart
    const shift = (cell) => gap * (methods.indexOf(cell.method) - (methods.length - 1) / 2);
    const at = (cell) => [x(key(cell)) + shift(cell), y(value(cell)[0])];
    const label = `${lines.join(", ")}: score against ${xName}, ${plural(shown.length, "mark")}. `
      + "The arrow keys move between marks; the numbers follow as a table.";
    const drawn = chart({ role: "group", "aria-label": label },
      axes(keys.map((one) => [x(one), spoken(one)]), ticks(low, high, 6).map((one) => [y(one), short(one)]), xName));
    if (low < 1 && high > 1) drawn.append(svg("path", { class: "one", d: `M${LEFT},${y(1).toFixed(1)}H${RIGHT}` }));
    const points = methods.flatMap((index) => {
      const mine = shown.filter((cell) => cell.method === index).sort((a, b) => key(a) - key(b));
      const [group, marks] = series(data.methods[index], mine, at, y);
      const level = key === byStates && mine.length === 1 && key(mine[0]) === 0; // a method that was given none
      if (level) group.prepend(svg("path", { class: "level", d: `M${LEFT},${at(mine[0])[1].toFixed(1)}H${RIGHT}` }));
      drawn.append(group);
      return marks;
    });
    if (state.print && key === bySize) drawn.append(...printed(shown, (cell) => [x(cell.size), y(cell.printed[0])]));
    listen(drawn, points);
    const entry = (index, one) => shown.find((cell) => cell.method === index && key(cell) === one);
    const text = (cell) => (cell ? range(value(cell)) : "");
    const line = (index) => [data.methods[index].name, ...keys.map((one) => text(entry(index, one)))];
    return panel(lines, drawn, behind(() => table(["method", ...keys.map(spoken)], methods.map(line))));
  }

  function series(entry, cells, at, y) {
    const bar = (cell) => `M${pair([at(cell)[0], y(value(cell)[1])])}V${y(value(cell)[2]).toFixed(1)}`;
    const bars = cells.filter((cell) => known(value(cell)[1])).map(bar).join("");
    const group = svg("g", { class: `c${entry.colour} method`, "data-method": entry.id },
      svg("path", { class: "series", d: path(cells.map(at)) }), svg("path", { class: "bars", d: bars }));
    const marks = cells.map((cell) => {
      const label = `${entry.name}, ${where(cell)}: ${facts(cell).map((fact) => fact.join(" ")).join("; ")}`;
      const place = { tabindex: -1, transform: `translate(${pair(at(cell))})` };
      const mark = svg("g", { class: "point", role: "button", "aria-label": label, ...place },
        svg("circle", { class: "ring", r: 9 }),
        svg("path", { class: lost(cell) ? "hollow" : "dot", d: MARKERS[entry.marker] }));
      group.append(mark);
      return { cell, mark, group, place: at(cell) };
    });
    return [group, marks];
  }

  function printed(shown, at) {
    const rows = new Map(); // one for each of the paper's methods, in the colour of the first of ours that redoes it
    for (const cell of shown.filter((one) => one.printed)) {
      const row = rows.get(method(cell).printed) || [];
      if (!row.length || row[0].method === cell.method) rows.set(method(cell).printed, [...row, cell]);
    }
    return [...rows].map(([name, row]) => {
      const entry = method(row[0]), cells = row.sort((a, b) => a.size - b.size);
      const dot = (cell) => ({ transform: `translate(${pair(at(cell))}) scale(0.8)`, d: MARKERS[entry.marker] });
      return svg("g", { class: `c${entry.colour} print`, "data-printed": name, "aria-hidden": "true" },
        svg("path", { class: "printed", d: path(cells.map(at)) }),
        ...cells.map((cell) => svg("path", { class: "printed-dot", ...dot(cell) })));
    });
  }

  function listen(drawn, points) {
    let last = null;
    const show = (point) => {
      leave();
      point.mark.classList.add("near");
      drawn.classList.add("dim");
      points.forEach(({ group }) => group.classList.toggle("faded", group !== point.group));
      const other = (print) => print.dataset.printed !== method(point.cell).printed;
      drawn.querySelectorAll(".print").forEach((print) => print.classList.toggle("faded", other(print)));
      hover(about(point.cell), point.mark.querySelector("path").getBoundingClientRect());
    };
    const nearest = (event) => {
      const box = drawn.getBoundingClientRect(), zoom = WIDTH / box.width;
      const here = [(event.clientX - box.left) * zoom, (event.clientY - box.top) * zoom];
      const apart = ({ place }) => Math.hypot(place[0] - here[0], place[1] - here[1]);
      const best = points.reduce((one, other) => (apart(other) < apart(one) ? other : one));
      return apart(best) < 26 ? best : null;
    };
    drawn.addEventListener("pointermove", (event) => {
      const best = nearest(event);
      if (best === last && !tip.hidden) return;
      last = best;
      if (best) show(best);
      else leave();
    });
    drawn.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && leave());
    drawn.addEventListener("click", (event) => {
      const best = nearest(event);
      if (best) show(best);
      if (best) look(best.cell);
    });
    points[0].mark.setAttribute("tabindex", 0);
    points.forEach((point) => {
      point.mark.addEventListener("focus", () => point.mark.matches(":focus-visible") && show(point));
      point.mark.addEventListener("blur", leave);
      point.mark.addEventListener("keydown", (event) => press(event, point, points));
    });
  }
  function press(event, point, points) {
    const next = step(points, point, event.key), chosen = event.key === "Enter" || event.key === " ";
    if (!next && !chosen) return;
    event.preventDefault();
    if (chosen) look(point.cell);
    if (!next) return;
    point.mark.setAttribute("tabindex", -1);
    next.mark.setAttribute("tabindex", 0);
    next.mark.focus();
  }
  function step(points, from, key) {
    const own = points.filter((point) => point.group === from.group);
    if (key === "ArrowRight" || key === "ArrowLeft") return own[own.indexOf(from) + (key === "ArrowRight" ? 1 : -1)];
    if (key !== "ArrowUp" && key !== "ArrowDown") return null;
    const groups = [...new Set(points.map((point) => point.group))];
    const group = groups[groups.indexOf(from.group) + (key === "ArrowDown" ? 1 : -1)];
    const apart = (point) => Math.abs(point.place[0] - from.place[0]);
    return points.filter((point) => point.group === group).sort((a, b) => apart(a) - apart(b))[0];
  }

  function drawReturns() {
    const shown = labelled.filter((cell) => state.shown.has(cell.method));
    const domain = state.own ? null : extent(shown.flatMap(value), 0, 1);
    const panels = data.settings.map((lines, index) => {
      const cells = labelled.filter((cell) => cell.setting === index);
      return cells.length ? linePanel(lines, cells, bySize, "demonstrated trajectories", domain) : "";
    });
    byId("return-panels").replaceChildren(...panels.filter(Boolean));
  }
  function drawStates() {
    const places = new Map();
    for (const cell of data.cells) if (byStates(cell)) places.set(`${cell.setting} ${cell.size}`, cell);
    byId("states").hidden = places.size === 0;
    const panels = [...places.values()].map((first) => {
      const cells = data.cells.filter((cell) => cell.setting === first.setting && cell.size === first.size);
      const [environment, rest] = data.settings[first.setting];
      const lines = [environment, `${rest}, ${where({ size: first.size })}`];
      return linePanel(lines, cells, byStates, "further trajectories without decisions", null);
    });
    byId("state-panels").replaceChildren(...panels);
  }

  // Performance profiles

  function profilePanel(lines, curves) {
    if (!curves.length) return nothing(lines, SWITCHED_OFF);
    const scores = data.scores, quarters = [0, 0.25, 0.5, 0.75, 1];
    const x = scale(0, 1, LEFT + 6, RIGHT - 6), y = scale(0, 1, BOTTOM, TOP + 4);
    const cross = svg("path", { class: "cross" });
    const label = `${lines.join(", ")}: share of runs that score above a value, ${plural(curves.length, "line")}. `
      + "The arrow keys move the value; the numbers follow as a table.";
    const drawn = chart({ role: "img", tabindex: 0, "aria-label": label },
      axes(quarters.map((at) => [x(at), String(at)]), quarters.map((at) => [y(at), String(at)]), "score"), cross);
    curves.forEach((curve, number) => drawn.append(profileLine(curve, number, scores.map((at) => x(at)), y)));
    let current = scores.indexOf(0.5);
    const read = (index) => {
      current = Math.max(0, Math.min(scores.length - 1, index));
      cross.setAttribute("d", `M${x(scores[current]).toFixed(1)},${TOP}V${BOTTOM}`);
      const box = drawn.getBoundingClientRect(), left = box.left + (x(scores[current]) * box.width) / WIDTH;
      hover(shares(curves, current), { left, right: left, top: box.top + box.height / 2, bottom: box.bottom });
    };
    const clear = () => {
      cross.removeAttribute("d");
      leave();
    };
    drawn.addEventListener("pointermove", (event) => {
      const box = drawn.getBoundingClientRect(), here = ((event.clientX - box.left) * WIDTH) / box.width;
      const apart = (index) => Math.abs(x(scores[index]) - here);
      read(scores.reduce((best, _, index) => (apart(index) < apart(best) ? index : best), 0));
    });
    drawn.addEventListener("pointerleave", clear);
    drawn.addEventListener("blur", clear);
    drawn.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      read(current + by);
    });
    const columns = [0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99].map((at) => scores.indexOf(at));
    const text = (curve, index) => range([curve.share[index], curve.low[index], curve.high[index]]);
    const line = (curve) => [data.methods[curve.method].name, ...columns.map((index) => text(curve, index))];
    const head = ["share of runs above", ...columns.map((index) => String(scores[index]))];
    return panel(lines, drawn, behind(() => table(head, curves.map(line))));
  }
  function profileLine(curve, number, across, y) {
    const entry = data.methods[curve.method], places = curve.share.map((share, index) => [across[index], y(share)]);
    const some = places.filter((_, index) => index % 6 === (number * 2) % 6), marker = MARKERS[entry.marker];
    return svg("g", { class: `c${entry.colour} profile`, "data-method": entry.id },
      svg("path", { class: "series", d: path(places) }),
      ...some.map((at) => svg("path", { class: "dot", transform: `translate(${pair(at)})`, d: marker })));
  }
  function shares(curves, index) {
    const line = ({ method: number, share, low, high }) => {
      const band = known(low[index]) ? `[${percent(low[index])}, ${percent(high[index])}]` : "";
      return html("tr", {}, html("th", {}, swatch(data.methods[number]), data.methods[number].name),
        html("td", {}, percent(share[index])), html("td", {}, band));
    };
    const lines = [...curves].sort((a, b) => b.share[index] - a.share[index]).map(line);
    return [html("h4", {}, `Runs that score above ${data.scores[index]}`),
      html("table", { class: "shares" }, html("tbody", {}, ...lines))];
  }
  function drawProfiles() {
    const panels = data.settings.map((lines, index) => {
      const curves = data.profiles.filter((curve) => curve.setting === index);
      return curves.length ? profilePanel(lines, curves.filter((curve) => state.shown.has(curve.method))) : "";
    });
    byId("profile-panels").replaceChildren(...panels.filter(Boolean));
  }
  function draw() {
    leave();
    drawReturns();
    drawStates();
    drawProfiles();
  }

  // The legend, which switches methods on and off

  function legend() {
    const boxes = data.methods.map((entry, index) => {
      const change = ({ target }) => {
        if (target.checked) state.shown.add(index);
        else state.shown.delete(index);
        draw();
      };
      const checked = state.shown.has(index);
      return html("input", { type: "checkbox", checked, "data-method": entry.id, onchange: change });
    });
    const labels = boxes.map((box, index) =>
      html("label", { title: data.methods[index].id }, box, swatch(data.methods[index]), data.methods[index].name));
    const first = labels.filter((_, index) => data.methods[index].shown);
    const rest = labels.filter((_, index) => !data.methods[index].shown);
    const more = rest.length && html("details", { class: "more" },
      html("summary", {}, plural(rest.length, "more method")), html("div", { class: "choices" }, ...rest));
    byId("legend").append(
      html("fieldset", {}, html("legend", {}, "Methods"), html("div", { class: "choices" }, ...first), more || ""),
      html("div", { class: "controls" }, several(boxes), ...views()));
  }
  function several(boxes) {
    const all = (wanted) => () => {
      boxes.forEach((box, index) => { box.checked = wanted(data.methods[index]); });
      state.shown = new Set(boxes.map((_, index) => index).filter((index) => boxes[index].checked));
      draw();
    };
    const button = (text, wanted) => html("button", { type: "button", onclick: all(wanted) }, text);
    return html("div", { class: "choices" },
      button("Reset", (entry) => entry.shown), button("All", () => true), button("None", () => false));
  }
  function views() {
    const choice = (name, text, checked, change) => {
      const set = ({ target }) => {
        change(target.checked);
        draw();
      };
      const box = { type: name ? "radio" : "checkbox", name, checked, onchange: set };
      return html("label", {}, html("input", box), text);
    };
    const print = data.cells.some((cell) => cell.printed);
    return [
      html("fieldset", { class: "choices" }, html("legend", { class: "hidden" }, "Statistic"),
        choice("statistic", "Mean", true, () => { state.statistic = "mean"; }),
        choice("statistic", "Interquartile mean", false, () => { state.statistic = "iqm"; })),
      html("div", { class: "choices" },
        print ? choice(null, "Printed in the paper (dashed)", false, (on) => { state.print = on; }) : "",
        choice(null, "Own scale in each panel", false, (on) => { state.own = on; })),
    ];
  }

  // One cell

  const selects = {};
  let current = null;
  function options(select, entries, wanted) {
    select.replaceChildren(...entries.map(([key, text]) => html("option", { value: key }, text)));
    select.value = String(wanted);
  }
  function look(cell, move = false) {
    current = cell;
    const here = data.cells.filter((one) => one.setting === cell.setting);
    const methods = [...new Set(here.map((one) => one.method))];
    const mine = here.filter((one) => one.method === cell.method);
    options(selects.setting, data.settings.map((lines, index) => [index, lines.join(", ")]), cell.setting);
    options(selects.method, methods.map((index) => [index, data.methods[index].name]), cell.method);
    options(selects.size, mine.map((one) => [data.cells.indexOf(one), where(one)]), data.cells.indexOf(cell));
    byId("cell-body").replaceChildren(...inside(cell));
    byId("cell-said").textContent = `Shown: ${title(cell)}`;
    if (!move) return;
    byId("cell").scrollIntoView();
    selects.setting.focus({ preventScroll: true });
  }
  function changed(name) {
    if (name === "size") return look(data.cells[selects.size.value]);
    const wanted = { ...current, [name]: Number(selects[name].value) };
    const weights = Object.entries({ setting: 16, method: 8, size: 4, unlabelled: 2, every: 1 });
    const near = (cell) => weights.reduce((sum, [key, weight]) => sum + weight * (cell[key] === wanted[key]), 0);
    return look(data.cells.reduce((best, cell) => (near(cell) > near(best) ? cell : best)));
  }
  function inside(cell) {
    const seconds = Object.entries(cell.seconds).map(([name, taken]) => `${name} ${short(taken)} s`).join(", ");
    const asked = [["updates", whole(cell.updates)], ["episodes a run", whole(cell.episodes)]];
    const lines = [["method", method(cell).id], ...facts(cell), ...asked, ["time of the cell", seconds || "–"]];
    const count = cell.initialisations, row = (draw) => cell.scores.slice(draw * count, (draw + 1) * count).map(score);
    const draws = Array.from({ length: cell.draws }, (_, draw) => [`draw ${draw}`, ...row(draw)]);
    const seeds = Array.from({ length: count }, (_, seed) => `seed ${seed}`);
    const caption = `one line per draw${lost(cell) ? "; crosses: diverged" : ""}; the upright line is the mean`;
    const runs = strip(cell, 360, cell.draws > 12 ? 8 : 14), numbers = behind(() => table(["", ...seeds], draws));
    return [
      html("h3", {}, title(cell)),
      html("div", { class: "parts" },
        html("div", {}, table(null, lines, { class: "facts" }), ...choices(cell)),
        panel(["Score of each run", caption], runs, numbers)),
      ...diverged(cell),
      ...curves(cell),
    ];
  }
  function choices(cell) {
    const parts = [];
    if (cell.chosen) {
      const lines = cell.chosen.map(([text, count]) => [text || "nothing", String(count)]);
      const head = html("h3", {}, "Chosen on held-out demonstrations");
      parts.push(head, table(["settings", "runs"], lines, { class: "facts" }));
    }
    if (known(cell.text)) {
      const name = html("summary", {}, cell.varied ? "Settings of the first run" : "Settings");
      const text = html("pre", { tabindex: 0 }, html("code", {}, data.texts[cell.text]));
      parts.push(html("details", { class: "behind" }, name, text));
    }
    return parts;
  }
  function diverged(cell) {
    if (!lost(cell)) return [];
    const line = (at, run) => {
      const draw = Math.floor(run / cell.initialisations), seed = run % cell.initialisations;
      return at < 0 ? "" : html("li", {}, `draw ${draw}, seed ${seed}: update ${whole(at)}`);
    };
    const list = { class: "runs", tabindex: 0, "aria-label": "Diverged runs" };
    return [html("h3", {}, `Diverged: ${lost(cell)} of ${plural(cell.scores.length, "run")}`),
      html("ul", list, ...cell.diverged.map(line))];
  }
  function curves(cell) {
    if (!cell.curves) return [];
    const names = Object.keys(cell.curves), [first, ...rest] = cell.points;
    if (rest.length)
      return [html("h3", {}, "Diagnostics of training"),
        html("div", { class: "panels" }, ...names.map((name) => curvePanel(cell, name)))];
    const lines = names.map((name) => {
      const [low, middle, high] = cell.curves[name].map(([only]) => short(only));
      return [name.replaceAll("_", " "), middle, `${low} to ${high}`];
    });
    const ends = table(["diagnostic", "median", "middle half of the runs"], lines, { class: "facts" });
    return [html("h3", {}, `Diagnostics of training, after ${plural(first, "update")}`),
      scrolling("Diagnostics of training", ends)];
  }
  function curvePanel(cell, name) {
    const [low, middle, high] = cell.curves[name], all = [...low, ...middle, ...high].filter(known);
    const words = name.replaceAll("_", " ");
    const steep = Math.min(...all) > 0 && Math.max(...all) / Math.min(...all) > 1000;
    const caption = [words, `median and middle half of the runs${steep ? ", logarithmic scale" : ""}`];
    if (!all.length) return nothing(caption, "No run has a number here.");
    const bend = (number) => (steep ? Math.log10(number) : number);
    const unbend = (number) => (steep ? 10 ** number : number);
    const end = cell.points[cell.points.length - 1], [bottom, top] = extent(all.map(bend)), left = LEFT + 20;
    const y = scale(bottom, top, BOTTOM, TOP), x = scale(0, end, left + 6, RIGHT - 14);
    const along = ticks(bottom, top, 5).filter((at) => !steep || Number.isInteger(at));
    const marks = [ticks(0, end, 4).map((at) => [x(at), whole(at)]), along.map((at) => [y(at), short(unbend(at))])];
    const line = (values) => cell.points.map((at, index) => [at, values[index]]).filter(([, number]) => known(number))
      .map(([at, number]) => [x(at), y(bend(number))]);
    const last = `median at the end ${short(middle[middle.length - 1])}`;
    const label = `${words} against updates: ${last}. The numbers follow as a table.`;
    const drawn = chart({ role: "img", class: `c${method(cell).colour}`, "aria-label": label },
      axes(...marks, "updates", left),
      svg("path", { class: "band", d: `${path([...line(low), ...line(high).reverse()])}Z` }),
      svg("path", { class: "series curve", d: path(line(middle)) }));
    const head = ["updates", "lower quartile", "median", "upper quartile"];
    const row = (at, index) => [whole(at), ...[low, middle, high].map((values) => short(values[index]))];
    return panel(caption, drawn, behind(() => table(head, cell.points.map(row))));
  }
  function cellControls() {
    for (const name of ["setting", "method", "size"]) {
      selects[name] = html("select", { id: `cell-${name}`, onchange: () => changed(name) });
      const words = name[0].toUpperCase() + name.slice(1);
      byId("cell-controls").append(html("label", { class: "field", for: `cell-${name}` }, words, selects[name]));
    }
    look(labelled.find((cell) => method(cell).id === "edm") || data.cells[0]);
  }

  // Tables

  function sortable(body, head, column) {
    const key = (row) => {
      const { dataset, textContent } = row.children[column];
      return "sort" in dataset ? Number(dataset.sort) : textContent;
    };
    head.querySelector("button").addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      head.parentElement.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const lines = [...body.rows].map((row) => [key(row), row]);
      lines.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === ""); // what is not there comes last
        return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en"));
      });
      body.append(...lines.map(([, row]) => row));
    });
  }
  function filter() {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const say = (some, all) => (words.length ? `${whole(some)} of ${plural(all, "row")}` : plural(all, "row"));
    const bodies = [...document.querySelectorAll(".cells tbody")], shown = (row) => !row.hidden;
    for (const body of bodies) {
      const rows = [...body.rows];
      rows.forEach((row) => { row.hidden = !words.every((word) => row.dataset.words.includes(word)); });
      body.closest("details").querySelector(".count").textContent = say(rows.filter(shown).length, rows.length);
    }
    const rows = bodies.flatMap((body) => [...body.rows]);
    byId("filtered").textContent = words.length ? say(rows.filter(shown).length, rows.length) : "";
  }
  function tables() {
    for (const one of document.querySelectorAll(".cells")) {
      [...one.tHead.rows[0].cells].forEach((head, column) => sortable(one.tBodies[0], head, column));
      for (const row of one.tBodies[0].rows) {
        const button = row.querySelector("button"), cell = data.cells[button.dataset.cell];
        const texts = [...row.cells].map((entry) => entry.textContent);
        row.dataset.words = [...texts, button.title, setting(cell)].join(" ").toLowerCase();
        button.addEventListener("click", () => look(cell, true));
      }
    }
    byId("filter").addEventListener("input", filter);
    filter();
  }

  theme();
  legend();
  draw();
  tables();
  cellControls();
})();
