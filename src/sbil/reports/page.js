"use strict";
// Draws the charts of the report from the JSON in the page, and sorts and filters its tables. Text gets in as text only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const state = { shown: new Set(), statistic: "mean", own: false, print: false };
  data.methods.forEach((method, index) => method.shown && state.shown.add(index));
  const labelled = data.cells.filter((cell) => cell.unlabelled === 0);

  // Elements

  const SVG = "http://www.w3.org/2000/svg";
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }
  const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
  const table = (head, lines, attributes = {}) =>
    html("table", attributes,
      html("thead", {}, html("tr", {}, ...head.map((text) => html("th", { scope: "col" }, text)))),
      html("tbody", {}, ...lines.map(([first, ...rest]) =>
        html("tr", {}, html("th", { scope: "row" }, first), ...rest.map((text) => html("td", {}, text))))));

  // Numbers in words

  const known = (value) => value !== null && value !== undefined;
  const minus = (text) => text.replace("-", "−");
  const score = (value) => (known(value) ? minus((Math.round(value * 1000) / 1000 + 0).toFixed(3)) : "–");
  const signed = (value) => (known(value) && Math.round(value * 1000) >= 0 ? "+" : "") + score(value);
  const whole = (value) => value.toLocaleString("en-GB");
  const range = ([value, low, high], format = score) => format(value) + (known(low) ? ` [${format(low)}, ${format(high)}]` : "");
  function short(value) {
    if (!known(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e5)) return minus(value.toExponential(1).replace("e+", "e"));
    return minus(String(Number(value.toPrecision(3))));
  }
  const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
  const method = (cell) => data.methods[cell.method];
  const setting = (cell) => data.settings[cell.setting].join(", ");
  const lost = (cell) => (cell.diverged || []).filter((at) => at >= 0).length;
  const where = (cell) => plural(cell.size, "trajectory").replace("trajectorys", "trajectories") + (cell.unlabelled ? ` and ${cell.unlabelled} unlabelled` : "");
  function facts(cell) {
    return [
      ["mean", `${range(cell.mean)}, s.e. ${score(cell.error)}`],
      ["IQM", range(cell.iqm)],
      ["runs", `${whole(cell.scores.length)} (${plural(cell.draws, "draw")} of demonstrations × ${plural(cell.initialisations, "seed")})`],
      ["diverged", lost(cell) ? `${lost(cell)} of ${cell.scores.length}` : "none"],
      ["minus BC", cell.difference && `${range(cell.difference, signed)}, ${cell.verdict}`],
      ["printed", cell.printed && `${score(cell.printed[0])} ± ${score(cell.printed[1])}${cell.differs ? `; ours lies ${cell.differs} †` : ""}`],
    ].filter(([, text]) => text);
  }

  // Marks and axes

  const MARKERS = [
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", "M-3.7,-3.7h7.4v7.4h-7.4z", "M0,-4.8L4.6,3.4H-4.6z", "M0,-5.2L4.6,0L0,5.2L-4.6,0z",
    "M0,4.8L4.6,-3.4H-4.6z", "M-1.6,-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
    "M-4.6,-2.4L-2.4,-4.6L0,-2.2L2.4,-4.6L4.6,-2.4L2.2,0L4.6,2.4L2.4,4.6L0,2.2L-2.4,4.6L-4.6,2.4L-2.2,0z",
    "M0,-5.6L1.5,-1.9L5.3,-1.7L2.4,0.8L3.3,4.5L0,2.5L-3.3,4.5L-2.4,0.8L-5.3,-1.7L-1.5,-1.9z",
  ];
  const WIDTH = 380, HEIGHT = 268, LEFT = 38, RIGHT = 10, TOP = 10, BOTTOM = 38;
  const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  const path = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
  function ticks(low, high, count) {
    const raw = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
  }
  function extent(values, ...always) {
    const all = [...values.filter(known), ...always];
    const low = Math.min(...all), high = Math.max(...all), room = (high - low) * 0.04 || 0.05;
    return [low - room, high + room];
  }
  function swatch(entry) {
    return svg("svg", { width: 26, height: 14, viewBox: "-13 -7 26 14", class: `c${entry.colour}`, "aria-hidden": "true" },
      svg("path", { class: "series", d: "M-13,0H13" }), svg("path", { class: "dot", d: MARKERS[entry.marker] }));
  }
  function axes(xTicks, yTicks, x, y, xName, yName) {
    const bottom = HEIGHT - BOTTOM;
    return svg("g", { "aria-hidden": "true" },
      ...yTicks.flatMap((value) => [
        svg("path", { class: "tick", d: `M${LEFT},${y(value).toFixed(1)}H${WIDTH - RIGHT}` }),
        svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(value))]),
      ...xTicks.map(([value, text]) => svg("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, text)),
      svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, xName),
      yName ? svg("text", { x: LEFT - 30, y: TOP - 1 }, yName) : null);
  }
  function panel(lines, ...children) {
    return html("figure", { class: "panel" }, html("figcaption", {}, lines[0], html("span", {}, lines[1] || "")), ...children);
  }
  function behind(make) {
    const details = html("details", { class: "behind" }, html("summary", {}, "The numbers"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1)
        details.append(html("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "The numbers of this chart" }, make()));
    });
    return details;
  }

  // What hovers beside a mark

  const tip = byId("tip");
  function hover(content, box) {
    tip.replaceChildren(...content);
    tip.hidden = false;
    const own = tip.getBoundingClientRect(), wide = document.documentElement.clientWidth, gap = 14;
    const right = box.right + gap + own.width < wide;
    tip.style.left = `${Math.max(4, Math.min(right ? box.right + gap : box.left - gap - own.width, wide - own.width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(box.top - own.height / 2, window.innerHeight - own.height - 4))}px`;
    if (!right && box.left - gap - own.width < 4) tip.style.top = `${box.top - own.height - gap > 4 ? box.top - own.height - gap : box.bottom + gap}px`;
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
    const height = rows * step + 24, bottom = rows * step + 4, upright = (at) => `M${x(at).toFixed(1)},2V${bottom}`;
    const marks = cell.scores.map((at, run) => {
      const place = [x(at), 4 + step * ((Math.floor(run / cell.initialisations) % rows) + 0.5)].map((number) => number.toFixed(1));
      return cell.diverged && cell.diverged[run] >= 0
        ? svg("path", { class: "lost", d: `M${place}m-2.5,-2.5l5,5m0,-5l-5,5` })
        : svg("circle", { class: "run", cx: place[0], cy: place[1], r: 2.3 });
    });
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: `c${method(cell).colour}`, role: "img", "aria-label": `Score of each run: ${plural(cell.scores.length, "mark")}, one line a draw` },
      svg("path", { class: "axis", d: `M4,${bottom}H${width - 4}` }),
      ...[0, 1].filter((at) => at >= low).map((at) => svg("path", { class: "one", d: upright(at) })),
      ...ticks(low, high, 4).map((at) => svg("text", { x: x(at), y: height - 5, "text-anchor": "middle" }, short(at))),
      svg("path", { class: "cross", d: upright(cell.mean[0]) }), ...marks);
  }
  const listed = (lines) => html("table", { class: "facts" }, html("tbody", {}, ...lines.map(([name, text]) => html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, text)))));
  function about(cell) {
    const lines = facts(cell).map(([name, text]) => [name, name === "runs" ? `${whole(cell.scores.length)}, one line a draw:` : text]);
    return [html("h4", {}, `${method(cell).name}, ${where(cell)}`), listed([...lines.filter(([name]) => name !== "runs"), ...lines.filter(([name]) => name === "runs")]), strip(cell, 250, cell.draws > 12 ? 4 : 6)];
  }

  // Lines of methods: return against size, or against unlabelled trajectories

  const value = (cell) => cell[state.statistic];
  function linePanel(lines, cells, key, xName, domain) {
    const shown = cells.filter((cell) => state.shown.has(cell.method));
    const methods = [...new Set(shown.map((cell) => cell.method))];
    const places = [...new Set(cells.map(key))].sort((a, b) => a - b);
    const [low, high] = domain || extent(shown.flatMap((cell) => value(cell)));
    const inset = 24, x = scale(0, places.length - 1, LEFT + inset, WIDTH - RIGHT - inset);
    const middle = (LEFT + WIDTH - RIGHT) / 2, across = (place) => (places.length === 1 ? middle : x(place));
    const y = scale(low, high, HEIGHT - BOTTOM, TOP);
    const gap = Math.min(4.5, (WIDTH / places.length) * 0.6 / Math.max(methods.length, 1));
    const at = (cell) => [across(places.indexOf(key(cell))) + gap * (methods.indexOf(cell.method) - (methods.length - 1) / 2), y(value(cell)[0])];
    const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group",
      "aria-label": `${lines.join(", ")}: score against ${xName}, ${plural(shown.length, "mark")}. The arrow keys move between marks; the numbers follow as a table.` },
      axes(places.map((place, index) => [index, String(place)]), ticks(low, high, 6), across, y, xName));
    if (low < 1 && high > 1) chart.append(svg("path", { class: "one", d: `M${LEFT},${y(1).toFixed(1)}H${WIDTH - RIGHT}` }));
    const points = [];
    for (const index of methods) {
      const mine = shown.filter((cell) => cell.method === index).sort((a, b) => key(a) - key(b)), entry = data.methods[index];
      const group = svg("g", { class: `c${entry.colour} method`, "data-method": entry.id },
        svg("path", { class: "series", d: path(mine.map(at)) }),
        svg("path", { class: "bars", d: mine.filter((cell) => known(value(cell)[1])).map((cell) => `M${at(cell)[0].toFixed(1)},${y(value(cell)[1]).toFixed(1)}V${y(value(cell)[2]).toFixed(1)}`).join("") }));
      for (const cell of mine) {
        const mark = svg("g", { class: "point", role: "button", tabindex: -1, transform: `translate(${at(cell).map((place) => place.toFixed(1))})`,
          "aria-label": `${entry.name}, ${where(cell)}: ${facts(cell).map((fact) => fact.join(" ")).join("; ")}` },
          svg("circle", { class: "ring", r: 9 }), svg("path", { class: lost(cell) ? "hollow" : "dot", d: MARKERS[entry.marker] }));
        points.push({ cell, mark, group, place: at(cell) });
        group.append(mark);
      }
      chart.append(group);
    }
    if (state.print && key === bySize) chart.append(...printed(shown, (cell) => [across(places.indexOf(cell.size)), y(cell.printed[0])]));
    listen(chart, points);
    if (!shown.length) return panel(lines, html("p", { class: "empty" }, "No method that is switched on has cells here."));
    return panel(lines, chart, behind(() => table(["method", ...places.map(String)], methods.map((index) => [data.methods[index].name,
      ...places.map((place) => { const cell = shown.find((one) => one.method === index && key(one) === place); return cell ? range(value(cell)) : ""; })]))));
  }
  const bySize = (cell) => cell.size, byStates = (cell) => cell.unlabelled;

  function printed(shown, at) {
    const seen = new Map();
    for (const cell of shown.filter((one) => one.printed)) {
      const name = method(cell).printed;
      if (!seen.has(name)) seen.set(name, { method: cell.method, cells: [] });
      if (seen.get(name).method === cell.method) seen.get(name).cells.push(cell);
    }
    return [...seen.values()].map(({ method: index, cells }) => {
      const entry = data.methods[index], sorted = cells.sort((a, b) => a.size - b.size);
      return svg("g", { class: `c${entry.colour} print`, "data-printed": entry.printed, "aria-hidden": "true" }, svg("path", { class: "printed", d: path(sorted.map(at)) }),
        ...sorted.map((cell) => svg("path", { class: "printed-dot", transform: `translate(${at(cell).map((place) => place.toFixed(1))}) scale(0.8)`, d: MARKERS[entry.marker] })));
    });
  }

  function listen(chart, points) {
    if (!points.length) return;
    const show = (point) => {
      leave();
      point.mark.classList.add("near");
      chart.classList.add("dim");
      points.forEach(({ group }) => group.classList.toggle("faded", group !== point.group));
      chart.querySelectorAll(".print").forEach((print) => print.classList.toggle("faded", print.dataset.printed !== method(point.cell).printed));
      hover(about(point.cell), point.mark.querySelector("path").getBoundingClientRect());
    };
    const nearest = (event) => {
      const box = chart.getBoundingClientRect(), zoom = WIDTH / box.width;
      const here = [(event.clientX - box.left) * zoom, (event.clientY - box.top) * zoom];
      const apart = (point) => Math.hypot(point.place[0] - here[0], point.place[1] - here[1]);
      const best = points.reduce((one, other) => (apart(other) < apart(one) ? other : one));
      return apart(best) < 26 ? best : null;
    };
    let last = null;
    chart.addEventListener("pointermove", (event) => {
      const best = nearest(event);
      if (best === last && !tip.hidden) return;
      last = best;
      if (best) show(best); else leave();
    });
    chart.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && leave());
    chart.addEventListener("click", (event) => { const best = nearest(event); if (best) { show(best); look(best.cell); } });
    points[0].mark.setAttribute("tabindex", 0);
    points.forEach((point) => {
      point.mark.addEventListener("focus", () => point.mark.matches(":focus-visible") && show(point));
      point.mark.addEventListener("blur", leave);
      point.mark.addEventListener("keydown", (event) => {
        const next = step(points, point, event.key);
        if (event.key === "Enter" || event.key === " ") look(point.cell);
        else if (!next) return;
        event.preventDefault();
        if (next) { point.mark.setAttribute("tabindex", -1); next.mark.setAttribute("tabindex", 0); next.mark.focus(); }
      });
    });
  }
  function step(points, from, key) {
    const own = points.filter((point) => point.group === from.group), groups = [...new Set(points.map((point) => point.group))];
    if (key === "ArrowRight" || key === "ArrowLeft") return own[own.indexOf(from) + (key === "ArrowRight" ? 1 : -1)];
    if (key !== "ArrowUp" && key !== "ArrowDown") return null;
    const group = groups[groups.indexOf(from.group) + (key === "ArrowDown" ? 1 : -1)];
    const others = points.filter((point) => point.group === group);
    return others.reduce((one, other) => (!one || Math.abs(other.place[0] - from.place[0]) < Math.abs(one.place[0] - from.place[0]) ? other : one), null);
  }

  function drawReturns() {
    const shown = labelled.filter((cell) => state.shown.has(cell.method));
    const domain = state.own ? null : extent(shown.flatMap((cell) => value(cell)), 0, 1);
    byId("return-panels").replaceChildren(...data.settings.map((lines, index) => [lines, labelled.filter((cell) => cell.setting === index)])
      .filter(([, cells]) => cells.length).map(([lines, cells]) => linePanel(lines, cells, bySize, "demonstrated trajectories", domain)));
  }
  function drawStates() {
    const keys = new Map();
    for (const cell of data.cells.filter((one) => one.unlabelled > 0)) keys.set(`${cell.setting} ${cell.size}`, cell);
    byId("states").hidden = keys.size === 0;
    const panels = [...keys.values()].map((first) => {
      const cells = data.cells.filter((cell) => cell.setting === first.setting && cell.size === first.size);
      const [title, rest] = data.settings[first.setting];
      return linePanel([title, `${rest}, ${where({ size: first.size })}`], cells, byStates, "further trajectories without decisions", null);
    });
    byId("state-panels").replaceChildren(...panels);
  }

  // Performance profiles

  function profilePanel(lines, curves) {
    const taus = data.scores, x = scale(taus[0], 1, LEFT + 6, WIDTH - RIGHT - 6), y = scale(0, 1, HEIGHT - BOTTOM, TOP + 4);
    const cross = svg("path", { class: "cross" });
    const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: 0,
      "aria-label": `${lines.join(", ")}: share of runs that score above a value, ${plural(curves.length, "line")}. The arrow keys move the value; the numbers follow as a table.` },
      axes([0, 0.25, 0.5, 0.75, 1].map((tau) => [tau, String(tau)]), [0, 0.25, 0.5, 0.75, 1], x, y, "score"), cross);
    curves.forEach((curve, place) => {
      const entry = data.methods[curve.method], points = curve.share.map((share, index) => [x(taus[index]), y(share)]);
      chart.append(svg("g", { class: `c${entry.colour} profile`, "data-method": entry.id }, svg("path", { class: "series", d: path(points) }),
        ...points.filter((_, index) => index % 6 === (place * 2) % 6).map((point) => svg("path", { class: "dot", transform: `translate(${point.map((number) => number.toFixed(1))})`, d: MARKERS[entry.marker] }))));
    });
    let current = taus.indexOf(0.5);
    const percent = (share) => `${Math.round(share * 100)} %`;
    const read = (index) => {
      current = Math.max(0, Math.min(taus.length - 1, index));
      cross.setAttribute("d", `M${x(taus[current]).toFixed(1)},${TOP}V${HEIGHT - BOTTOM}`);
      const lines = [...curves].sort((a, b) => b.share[current] - a.share[current]).map((curve) => html("tr", {},
        html("th", {}, swatch(data.methods[curve.method]), data.methods[curve.method].name), html("td", {}, percent(curve.share[current])),
        html("td", {}, known(curve.low[current]) ? `[${percent(curve.low[current])}, ${percent(curve.high[current])}]` : "")));
      const box = chart.getBoundingClientRect(), left = box.left + (x(taus[current]) * box.width) / WIDTH;
      hover([html("h4", {}, `Runs that score above ${taus[current]}`), html("table", { class: "shares" }, html("tbody", {}, ...lines))],
        { left, right: left, top: box.top + box.height / 2, bottom: box.bottom });
    };
    const clear = () => { cross.removeAttribute("d"); leave(); };
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect(), place = ((event.clientX - box.left) * WIDTH) / box.width;
      read(taus.reduce((best, tau, index) => (Math.abs(x(tau) - place) < Math.abs(x(taus[best]) - place) ? index : best), 0));
    });
    chart.addEventListener("pointerleave", clear);
    chart.addEventListener("blur", clear);
    chart.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) { event.preventDefault(); read(current + by); }
    });
    const columns = [0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99].map((tau) => taus.indexOf(tau)).filter((index) => index >= 0);
    if (!curves.length) return panel(lines, html("p", { class: "empty" }, "No method that is switched on has cells here."));
    return panel(lines, chart, behind(() => table(["share of runs above", ...columns.map((index) => String(taus[index]))], curves.map((curve) =>
      [data.methods[curve.method].name, ...columns.map((index) => range([curve.share[index], curve.low[index], curve.high[index]]))]))));
  }
  function drawProfiles() {
    byId("profile-panels").replaceChildren(...data.settings.map((lines, index) => [lines, data.profiles.filter((curve) => curve.setting === index)])
      .filter(([, curves]) => curves.length).map(([lines, curves]) => profilePanel(lines, curves.filter((curve) => state.shown.has(curve.method)))));
  }
  function draw() { leave(); drawReturns(); drawStates(); drawProfiles(); }

  // The legend, which switches methods on and off

  function legend() {
    const boxes = data.methods.map((entry, index) => {
      const box = html("input", { type: "checkbox", checked: state.shown.has(index), "data-method": entry.id, onchange: () => {
        if (box.checked) state.shown.add(index); else state.shown.delete(index);
        draw();
      } });
      return html("label", { title: entry.id }, box, swatch(entry), entry.name);
    });
    const first = boxes.filter((_, index) => data.methods[index].shown), rest = boxes.filter((_, index) => !data.methods[index].shown);
    const all = (wanted) => () => {
      state.shown = new Set(data.methods.map((_, index) => index).filter((index) => wanted(data.methods[index])));
      boxes.forEach((label, index) => { label.querySelector("input").checked = state.shown.has(index); });
      draw();
    };
    const choice = (name, text, checked, change) => html("label", {}, html("input", { type: name ? "radio" : "checkbox", name, checked, onchange: change }), text);
    const some = data.cells.some((cell) => cell.printed);
    byId("legend").append(
      html("fieldset", {}, html("legend", {}, "Methods"), html("div", { class: "choices" }, ...first),
        rest.length ? html("details", { class: "more" }, html("summary", {}, `${plural(rest.length, "more method")}`), html("div", { class: "choices" }, ...rest)) : ""),
      html("div", { class: "controls" },
        html("div", { class: "choices" },
          html("button", { type: "button", onclick: all((entry) => entry.shown) }, "As at first"),
          html("button", { type: "button", onclick: all(() => true) }, "All"),
          html("button", { type: "button", onclick: all(() => false) }, "None")),
        html("fieldset", { class: "choices" }, html("legend", { class: "hidden" }, "Statistic"),
          choice("statistic", "Mean", true, () => { state.statistic = "mean"; draw(); }),
          choice("statistic", "Interquartile mean", false, () => { state.statistic = "iqm"; draw(); })),
        html("div", { class: "choices" },
          some ? choice(null, "Printed in the paper (dashed)", false, (event) => { state.print = event.target.checked; draw(); }) : "",
          choice(null, "Own scale in each panel", false, (event) => { state.own = event.target.checked; draw(); }))));
  }

  // One cell

  const selects = {};
  function options(select, entries, wanted) {
    select.replaceChildren(...entries.map(([key, text]) => html("option", { value: key }, text)));
    if (entries.some(([key]) => String(key) === String(wanted))) select.value = String(wanted);
  }
  function choose(cell) {
    const inSetting = data.cells.filter((one) => one.setting === cell.setting), mine = inSetting.filter((one) => one.method === cell.method);
    options(selects.setting, data.settings.map((lines, index) => [index, lines.join(", ")]), cell.setting);
    options(selects.method, [...new Set(inSetting.map((one) => one.method))].map((index) => [index, data.methods[index].name]), cell.method);
    options(selects.size, mine.map((one) => [data.cells.indexOf(one), where(one)]), data.cells.indexOf(cell));
    byId("cell-body").replaceChildren(...inside(cell));
    byId("cell-said").textContent = `Shown: ${title(cell)}`;
  }
  const title = (cell) => `${method(cell).name}, ${where(cell)}, ${setting(cell)}`;
  function changed(name) {
    const last = data.cells[selects.size.value], wanted = { setting: Number(selects.setting.value), method: Number(selects.method.value) };
    if (name === "size") return choose(data.cells[selects.size.value]);
    const near = (cell) => (cell.setting === wanted.setting ? 8 : 0) + (cell.method === wanted.method ? 4 : 0) + (cell.size === last.size ? 2 : 0) + (cell.unlabelled === last.unlabelled ? 1 : 0);
    return choose(data.cells.reduce((best, cell) => (near(cell) > near(best) ? cell : best)));
  }
  function look(cell, move = false) {
    choose(cell);
    if (move) { byId("cell").scrollIntoView(); selects.setting.focus({ preventScroll: true }); }
  }
  function inside(cell) {
    const seconds = Object.entries(cell.seconds).map(([name, taken]) => `${name} ${short(taken)} s`).join(", ");
    const lines = [["method", method(cell).id], ...facts(cell), ["updates", whole(cell.updates)], ["episodes a run", whole(cell.episodes)], ["time of the cell", seconds]];
    const list = listed(lines.filter(([, text]) => text));
    const draws = Array.from({ length: cell.draws }, (_, draw) => [`draw ${draw}`, ...cell.scores.slice(draw * cell.initialisations, (draw + 1) * cell.initialisations).map(score)]);
    const seeds = Array.from({ length: cell.initialisations }, (_, seed) => `seed ${seed}`);
    const parts = [
      html("div", {}, list, ...choices(cell)),
      panel(["Score of each run", `one line a draw${lost(cell) ? "; crosses: diverged" : ""}; the upright line is the mean`], strip(cell, 360, cell.draws > 12 ? 8 : 14), behind(() => table(["", ...seeds], draws))),
    ];
    return [html("h3", {}, title(cell)), html("div", { class: "parts" }, ...parts), ...diverged(cell), ...curves(cell)];
  }
  function choices(cell) {
    const parts = [];
    if (cell.chosen) parts.push(html("h3", {}, "Chosen on held-out demonstrations"), table(["settings", "runs"], cell.chosen.map(([text, count]) => [text || "nothing", String(count)]), { class: "facts" }));
    if (known(cell.text)) parts.push(html("details", { class: "behind" }, html("summary", {}, cell.varied ? "Settings of the first run" : "Settings"), html("pre", { tabindex: 0 }, html("code", {}, data.texts[cell.text]))));
    return parts;
  }
  function diverged(cell) {
    if (!lost(cell)) return [];
    const runs = cell.diverged.flatMap((at, run) => (at >= 0 ? [html("li", {}, `draw ${Math.floor(run / cell.initialisations)}, seed ${run % cell.initialisations}: update ${whole(at)}`)] : []));
    return [html("h3", {}, `Diverged: ${runs.length} of ${plural(cell.scores.length, "run")}`), html("ul", { class: "runs", tabindex: 0, "aria-label": "Diverged runs" }, ...runs)];
  }
  function curves(cell) {
    if (!cell.curves) return [];
    const names = Object.keys(cell.curves), last = (name, place) => { const line = cell.curves[name][place]; return line[line.length - 1]; };
    const end = table(["diagnostic", "median", "middle half of the runs"], names.map((name) => [name.replaceAll("_", " "), short(last(name, 1)), `${short(last(name, 0))} to ${short(last(name, 2))}`]), { class: "facts ends" });
    const title = html("h3", {}, `Diagnostics of training${cell.points.length > 1 ? "" : `, after ${plural(cell.points[0], "update")}`}`);
    if (cell.points.length === 1) return [title, html("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Diagnostics of training" }, end)];
    return [title, html("div", { class: "panels" }, ...names.map((name) => curvePanel(cell, name)))];
  }
  function curvePanel(cell, name) {
    const [low, mid, high] = cell.curves[name], all = [...low, ...mid, ...high].filter(known), words = name.replaceAll("_", " ");
    const caption = [words, "median and middle half of the runs"];
    if (!all.length) return panel(caption, html("p", { class: "empty" }, "No run has a number here."));
    const steep = Math.min(...all) > 0 && Math.max(...all) / Math.min(...all) > 1000, bend = steep ? Math.log10 : (number) => number;
    const [bottom, top] = extent(all.map(bend)), y = scale(bottom, top, HEIGHT - BOTTOM, TOP), x = scale(0, cell.points[cell.points.length - 1], LEFT + 14, WIDTH - RIGHT - 14);
    const line = (values) => values.map((number, index) => (known(number) ? [x(cell.points[index]), y(bend(number))] : null)).filter(Boolean);
    const marks = (steep ? ticks(bottom, top, 5).filter(Number.isInteger) : ticks(bottom, top, 5)), yAxis = svg("g", { "aria-hidden": "true" });
    for (const mark of marks) yAxis.append(svg("path", { class: "tick", d: `M${LEFT + 8},${y(mark).toFixed(1)}H${WIDTH - RIGHT}` }), svg("text", { x: LEFT + 4, y: y(mark) + 4, "text-anchor": "end" }, short(steep ? 10 ** mark : mark)));
    const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: `c${method(cell).colour}`, "aria-label": `${words} against updates: median at the end ${short(mid[mid.length - 1])}. The numbers follow as a table.` },
      yAxis, axes(ticks(0, cell.points[cell.points.length - 1], 4).map((at) => [at, whole(at)]), [], x, y, steep ? "updates (logarithmic scale)" : "updates"),
      svg("path", { class: "band", d: path([...line(low), ...line(high).reverse()]) + "Z" }), svg("path", { class: "series curve", d: path(line(mid)) }));
    return panel(caption, chart, behind(() => table(["updates", "lower quartile", "median", "upper quartile"], cell.points.map((at, index) => [whole(at), short(low[index]), short(mid[index]), short(high[index])]))));
  }
  function cellControls() {
    for (const name of ["setting", "method", "size"]) {
      selects[name] = html("select", { id: `cell-${name}`, onchange: () => changed(name) });
      byId("cell-controls").append(html("label", { class: "field", for: `cell-${name}` }, name[0].toUpperCase() + name.slice(1), selects[name]));
    }
    const first = labelled.find((cell) => method(cell).id === "edm") || data.cells[0];
    choose(first);
  }

  // Tables

  function sortable(body, head, column) {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      head.parentElement.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => { const cell = row.children[column]; return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent; };
      const lines = [...body.rows].map((row) => [key(row), row]);
      lines.sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        return (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en")) * (up ? 1 : -1);
      });
      body.append(...lines.map(([, row]) => row));
    });
  }
  function filter() {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, all = 0;
    for (const body of document.querySelectorAll(".cells tbody")) {
      let here = 0;
      for (const row of body.rows) {
        row.hidden = !words.every((word) => row.dataset.words.includes(word));
        here += !row.hidden;
      }
      body.closest("details").querySelector(".count").textContent = words.length ? `${here} of ${plural(body.rows.length, "row")}` : plural(body.rows.length, "row");
      shown += here;
      all += body.rows.length;
    }
    byId("filtered").textContent = words.length ? `${whole(shown)} of ${plural(all, "row")}` : "";
  }
  function tables() {
    for (const one of document.querySelectorAll(".cells")) {
      [...one.tHead.rows[0].cells].forEach((head, column) => sortable(one.tBodies[0], head, column));
      for (const row of one.tBodies[0].rows) {
        const button = row.querySelector("button");
        row.dataset.words = `${row.innerText || row.textContent} ${button.title} ${setting(data.cells[button.dataset.cell])}`.toLowerCase();
        button.addEventListener("click", () => look(data.cells[button.dataset.cell], true));
      }
    }
    byId("filter").addEventListener("input", filter);
    filter();
  }

  // Light and dark

  function theme() {
    const button = byId("theme"), root = document.documentElement, system = window.matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const say = () => button.setAttribute("aria-pressed", String(dark()));
    button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; say(); });
    system.addEventListener("change", say);
    say();
  }

  theme();
  legend();
  draw();
  tables();
  cellControls();
})();
