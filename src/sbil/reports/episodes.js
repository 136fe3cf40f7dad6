// Lists the episodes in the JSON of the page and draws the chosen one: values and decisions over time. Text stays text.
(() => {
  const { byId, html, svg, table, scrolling, known, minus, whole, plural, scale, ticks, theme } = kit;
  const data = JSON.parse(byId("data").textContent);
  const state = {
    episode: null, step: 0, shown: new Set(data.columns.keys()), flagged: new Set(), saved: true, unusualFirst: false,
  };
  const WIDE = 1000, HIGH = 46, FEW = 8; // the width of every chart, the height of one, the lanes that are always shown

  // Numbers

  function unpack(text) {
    const bytes = atob(text), view = new DataView(new ArrayBuffer(4));
    return Array.from({ length: bytes.length / 3 }, (_, index) => {
      for (const part of [0, 1, 2]) view.setUint8(part + 1, bytes.charCodeAt(3 * index + part));
      return Number(view.getFloat32(0, true).toPrecision(4));
    });
  }
  function number(value, digits = 4) {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return minus(value.toExponential(digits - 1).replace("e+", "e"));
    return minus(String(Number(value.toPrecision(digits))));
  }
  function share(part) {
    return `${part === 0 || part >= 0.1 ? Math.round(part * 100) : Number((part * 100).toPrecision(1))} %`;
  }
  function sized(value, size) { // with as many decimals as numbers of that size need to have four digits
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return number(value);
    return minus(value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size || 1)))));
  }
  const text = (value) => (Number.isInteger(value) && Math.abs(value) < 1e6 ? minus(whole(value)) : number(value));
  const parts = (name) => name.match(/^(.*\S)\s*\[([^\]]+)\]$/) || [name, name, ""]; // a name and its unit

  // One episode, unpacked

  function opened(episode) {
    if (episode.columns) return episode;
    episode.columns = episode.values.map(unpack);
    for (const name of ["probability", "familiarity"])
      if (episode[name]) episode[name] = unpack(episode[name]);
    const count = episode.columns[0].length;
    const step = (_, index) => Math.min(index * episode.every, episode.length);
    episode.at = Array.from({ length: count }, step);
    episode.edges = count > episode.actions.length ? episode.at : [...episode.at, episode.length];
    return episode;
  }
  const unusual = ({ least, most }, value) => known(least) && (value < least || value > most);
  const across = (episode) => scale(episode.edges[0], episode.edges[episode.edges.length - 1], 0, WIDE);
  const place = (value) => value.toFixed(1);
  const box = (left, right, top, bottom) =>
    `M${place(left)},${place(top)}H${place(right)}V${place(bottom)}H${place(left)}z`;
  const painted = ([action, d]) => svg("path", { class: `c${data.actions[action].colour} taken`, d });
  const stretched = (height, attributes, ...children) =>
    svg("svg", { viewBox: `0 0 ${WIDE} ${height}`, height, preserveAspectRatio: "none", ...attributes }, ...children);

  // The list

  const orders = {
    "as recorded": () => 0,
    "by id": (a, b) => a.id.localeCompare(b.id, "en", { numeric: true }),
    "longest first": (a, b) => b.length - a.length,
    "shortest first": (a, b) => a.length - b.length,
    "most changes of action": (a, b) => b.changes - a.changes,
    "most unusual values": (a, b) => b.unusual - a.unusual,
    ...(data.policy ? { "most against the policy": (a, b) => b.differs - a.differs } : {}),
    "flagged first": (a, b) => state.flagged.has(b) - state.flagged.has(a),
  };
  let listed = data.episodes;
  const options = new Map(data.episodes.map((episode, index) => [episode, option(episode, index)]));

  function option(episode, index) {
    const facts = [plural(episode.changes, "change"), `${share(episode.unusual)} unusual`,
      data.policy && `${share(episode.differs)} differ`].filter(Boolean);
    const about = { role: "option", id: `option-${index}`, "aria-selected": "false", onclick: () => pick(episode) };
    return html("div", about,
      html("span", { class: "id" },
        html("span", { class: "flagmark", hidden: true }, html("span", { "aria-hidden": "true" }, "⚑ "),
          html("span", { class: "hidden" }, "flagged ")),
        episode.id), html("span", { class: "length" }, whole(episode.length)),
      sketch(episode), html("span", { class: "facts" }, facts.join(" · ")));
  }
  function sketch({ actions }) {
    const every = Math.ceil(actions.length / 150), some = actions.filter((_, step) => step % every === 0);
    const wide = WIDE / some.length, boxes = new Map();
    some.forEach((action, step) => {
      boxes.set(action, (boxes.get(action) || "") + box(step * wide, (step + 1) * wide, 0, 6));
    });
    return stretched(6, { class: "sketch", "aria-hidden": "true" }, ...[...boxes].map(painted));
  }
  function pick(episode) {
    choose(episode);
    if (window.matchMedia("(max-width: 60rem)").matches) byId("episode").scrollIntoView();
  }
  function fillList() {
    const wanted = byId("search").value.trim().toLowerCase();
    listed = data.episodes.filter((episode) => episode.id.toLowerCase().includes(wanted));
    listed.sort(orders[byId("order").value]);
    byId("list").replaceChildren(...listed.map((episode) => options.get(episode)));
    byId("found").textContent = wanted ? `${whole(listed.length)} of ${plural(data.episodes.length, "episode")}`
      : plural(data.episodes.length, "episode");
    mark();
  }
  function mark() {
    for (const [episode, line] of options) {
      line.setAttribute("aria-selected", String(episode === state.episode));
      line.querySelector(".flagmark").hidden = !state.flagged.has(episode);
    }
    const here = listed.indexOf(state.episode), line = options.get(state.episode);
    if (here >= 0) byId("list").setAttribute("aria-activedescendant", line.id);
    else byId("list").removeAttribute("aria-activedescendant");
    byId("previous").disabled = here <= 0;
    byId("next").disabled = here === listed.length - 1 || !listed.length;
  }
  function reveal() { // by hand: scrollIntoView would move the page as well
    const list = byId("list"), line = options.get(state.episode);
    if (!line.isConnected) return;
    const top = line.offsetTop - list.offsetTop, room = list.clientHeight - line.offsetHeight;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top > list.scrollTop + room) list.scrollTop = top - room;
  }
  function move(by) {
    const here = listed.indexOf(state.episode), last = listed.length - 1;
    if (last < 0) return;
    choose(listed[here < 0 ? 0 : Math.max(0, Math.min(here + by, last))]);
    reveal();
  }
  function pressed(event, moves, go) {
    if (event.key === "f" && !event.ctrlKey && !event.metaKey && !event.altKey) flag();
    else if (event.key in moves) go(moves[event.key]);
    else return;
    event.preventDefault();
  }

  // Flags

  function flag() {
    if (state.flagged.has(state.episode)) state.flagged.delete(state.episode);
    else state.flagged.add(state.episode);
    state.saved = state.flagged.size === 0;
    sayFlags();
    mark();
  }
  function sayFlags() {
    const count = state.flagged.size;
    byId("flag").setAttribute("aria-pressed", String(state.flagged.has(state.episode)));
    byId("flagged").textContent = count ? `${plural(count, "episode")} flagged${state.saved ? ", saved" : ""}`
      : "None flagged. Flags are kept until this page is closed.";
    byId("export").disabled = count === 0;
  }
  function save() {
    const quoted = (word) => (/[",\r\n]|^\s|\s$/.test(word) ? `"${word.replaceAll('"', '""')}"` : word);
    const ids = data.episodes.filter((episode) => state.flagged.has(episode)).map((episode) => episode.id);
    const lines = [data.key, ...ids].map((word) => `${quoted(word)}\n`);
    const address = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    html("a", { href: address, download: "flagged.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
    state.saved = true;
    sayFlags();
  }

  // Charts: each is a label, a drawing and what it says at the chosen step

  const cursor = (height) => svg("path", { class: "cursor", d: `M0,0V${height}` });
  function row(kind, label, drawing, value) {
    const line = html("div", { class: `row ${kind}` }, label, html("div", { class: "drawing" }, drawing), value);
    line.querySelector(".drawing").addEventListener("pointermove", point);
    line.querySelector(".drawing").addEventListener("pointerdown", point);
    return line;
  }
  function point(event) {
    const { edges, at } = state.episode, box = event.currentTarget.getBoundingClientRect();
    const time = scale(box.left, box.right, edges[0], edges[edges.length - 1])(event.clientX);
    const after = at.findIndex((one) => one > time);
    go(after < 0 ? at.length - 1 : Math.max(after - 1, 0));
  }

  function columnRow(index) {
    const episode = state.episode, column = data.columns[index], values = episode.columns[index];
    const all = [...values, column.low, column.high], least = Math.min(...all), most = Math.max(...all);
    const size = Math.max(Math.abs(least), Math.abs(most)), plain = all.every(Number.isInteger);
    const form = (value) => (plain ? text(value) : sized(value, size));
    const room = (most - least) * 0.06 || Math.abs(most) * 0.05 || 1;
    const x = across(episode), y = scale(least - room, most + room, HIGH, 0);
    const places = values.map((value, step) => `${place(x(episode.at[step]))},${place(y(value))}`);
    const dots = places.filter((_, step) => unusual(column, values[step]));
    const filled = new Set(episode.filled ? episode.filled[index] : []);
    const given = places.filter((_, step) => filled.has(step));
    const line = places.length > 1 ? `M${places.join("L")}` : `M${places[0]}h0`;
    const top = Math.min(y(column.high), y(column.low) - 1);
    const [, name, unit] = parts(column.name);
    const words = [[dots, "unusual value"], [given, "filled-in value"]]
      .map(([found, what]) => (found.length ? `, ${plural(found.length, what)}` : "")).join("");
    const range = `${text(Math.min(...values))} to ${text(Math.max(...values))}`;
    const label = `${column.name} over step: ${range}${words}`;
    const drawing = stretched(HIGH, { role: "img", "aria-label": label },
      svg("rect", { class: "band", x: 0, y: place(top), width: WIDE, height: place(y(column.low) - top) }),
      cursor(HIGH), svg("path", { class: places.length > 1 ? "value" : "value single", d: line }),
      svg("path", { class: "unusual", d: dots.map((dot) => `M${dot}h0`).join("") }),
      svg("path", { class: "filled-in", d: given.map((dot) => `M${dot}h0`).join("") }));
    const made = row("column",
      html("div", { class: "label", title: column.name }, html("span", { class: "name" }, name),
        " ", html("span", { class: "unit" }, unit)),
      drawing,
      html("div", { class: "now" }, html("small", {}, form(most)), html("output", {}), html("small", {}, form(least))));
    made.show = (step) => {
      made.querySelector("output").textContent = form(values[step]);
      made.querySelector("output").classList.toggle("filled", filled.has(step));
      made.querySelector("output").classList.toggle("far", unusual(column, values[step]));
    };
    return made;
  }

  function lanes() {
    const all = [...data.actions.keys()];
    if (all.length <= FEW) return all;
    const seen = new Set([...state.episode.actions, ...(state.episode.chosen || [])]);
    return all.filter((action) => seen.has(action));
  }
  function laneRow(title, taken, height, label, probability) {
    const episode = state.episode, x = across(episode), shown = lanes(), deep = height * shown.length;
    const boxes = new Map(shown.map((action) => [action, ""]));
    for (let step = 0; step < taken.length; step += 1) {
      let end = step;
      while (!probability && taken[end + 1] === taken[step]) end += 1; // a run of one action is one box
      const full = height - 3, high = probability ? Math.max(full * probability[step], 2) : full;
      const bottom = height * (shown.indexOf(taken[step]) + 1) - 1.5;
      const drawn = box(x(episode.edges[step]), x(episode.edges[end + 1]), bottom - high, bottom);
      boxes.set(taken[step], boxes.get(taken[step]) + drawn);
      step = end;
    }
    const lane = ({ name }) => html("span", { class: "lane", title: name }, name);
    const names = shown.map((action) => lane(data.actions[action]));
    const drawing = stretched(deep, { role: "img", "aria-label": label },
      ...shown.map((_, index) => svg("path", { class: "rail", d: `M0,${height * (index + 1) - 1.5}H${WIDE}` })),
      ...[...boxes].map(painted), cursor(deep));
    const made = row(`lanes${height < 16 ? " dense" : ""}`, html("div", { class: "label" }, ...names), drawing,
      html("div", { class: "now" }, html("small", {}, title), html("output", {})));
    made.querySelectorAll(".lane").forEach((name) => { name.style.height = `${height}px`; });
    return made;
  }
  function counted(taken) {
    const counts = lanes().map((action) => [data.actions[action].name, taken.filter((one) => one === action).length]);
    return counts.filter(([, count]) => count).map(([name, count]) => `${name} ${whole(count)}`).join(", ");
  }
  function differRow() {
    const episode = state.episode, x = across(episode);
    const boxes = episode.chosen.map((action, step) => (action === episode.actions[step] ? ""
      : box(x(episode.edges[step]), x(episode.edges[step + 1]), 1, 7)));
    const count = boxes.filter(Boolean).length;
    return row("differ", html("div", { class: "label" }, "differs"),
      stretched(8, { role: "img", "aria-label": `The policy differs from ${plural(count, "decision")} drawn` },
        svg("path", { class: "differs", d: boxes.join("") }), cursor(8)),
      html("div", { class: "now" }));
  }
  function familiarRow() {
    const episode = state.episode, x = across(episode), y = scale(0, 1, 21, 1);
    const top = episode.familiarity.map((value, step) =>
      `L${place(x(episode.edges[step]))},${place(y(value))}H${place(x(episode.edges[step + 1]))}`);
    return row("familiar", html("div", { class: "label" }, "familiarity"),
      stretched(22, { role: "img", "aria-label": `Familiarity, least ${Math.min(...episode.familiarity).toFixed(2)}` },
        svg("path", { class: "area", d: `M0,21${top.join("")}V21z` }), cursor(22)),
      html("div", { class: "now" }, html("output", {})));
  }
  function axisRow() {
    const { edges } = state.episode, low = edges[0], high = edges[edges.length - 1];
    const marks = ticks(low, high, 6).map((at) => {
      const mark = html("span", {}, text(at));
      mark.style.left = `${scale(low, high, 0, 100)(at)}%`;
      return mark;
    });
    const parts = [html("div", { class: "label" }, "step"), html("div", { class: "drawing" }, ...marks)];
    return html("div", { class: "row axis", "aria-hidden": "true" }, ...parts, html("div", { class: "now" }));
  }

  function drawDecisions() {
    const episode = state.episode, height = lanes().length <= 4 ? 18 : 13;
    const recorded = laneRow("recorded", episode.actions, height, `Decisions recorded: ${counted(episode.actions)}`);
    const slider = recorded.querySelector(".drawing");
    for (const [name, value] of Object.entries({
      id: "steps", role: "slider", tabindex: 0, "aria-label": "Moment shown, step", "aria-valuemin": 0,
      "aria-valuemax": episode.at.length - 1,
    })) slider.setAttribute(name, value);
    const page = Math.max(Math.round(episode.at.length / 10), 1), end = episode.at.length;
    const arrows = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    const moves = { ...arrows, PageUp: page, PageDown: -page, Home: -end, End: end };
    slider.addEventListener("keydown", (event) => pressed(event, moves, (by) => go(state.step + by)));
    const rows = [html("p", { id: "moment" }), recorded];
    if (data.policy) {
      const label = `Decisions of the policy: ${counted(episode.chosen)}`;
      rows.push(differRow(), laneRow("policy", episode.chosen, height, label, episode.probability));
      if (episode.familiarity) rows.push(familiarRow());
    }
    byId("decisions").replaceChildren(...rows, axisRow());
    const low = lanes().length * height * (data.policy ? 2 : 1) < window.innerHeight * 0.3;
    byId("decisions").classList.toggle("stays", low);
  }
  function drawRows() {
    const count = (index) => state.episode.columns[index].filter((value) => unusual(data.columns[index], value)).length;
    const shown = [...state.shown].sort((a, b) => (state.unusualFirst && count(b) - count(a)) || a - b);
    byId("rows").replaceChildren(...shown.map(columnRow));
    if (!shown.length) byId("rows").append(html("p", { class: "note" }, "No column is switched on."));
    byId("chosen").textContent = `Columns: ${whole(shown.length)} of ${whole(data.columns.length)} shown`;
    go(state.step);
  }

  function isFilled(episode, index, step) {
    return Boolean(episode.filled) && episode.filled[index].includes(step);
  }

  function go(step) {
    const episode = state.episode, here = Math.max(0, Math.min(step, episode.at.length - 1));
    state.step = here;
    const x = place(across(episode)(episode.at[here])), decided = here < episode.actions.length;
    document.querySelectorAll("#charts .cursor").forEach((line) => line.setAttribute("transform", `translate(${x} 0)`));
    document.querySelectorAll("#rows .row").forEach((line) => line.show(here));
    const said = [`step ${text(episode.at[here])}`];
    if (episode.times && decided) said.push(`${data.time} ${episode.times[here]}`);
    said.push(decided ? `decided: ${data.actions[episode.actions[here]].name}` : "after the last decision");
    if (data.policy && decided) {
      const chosen = episode.chosen[here], differs = chosen === episode.actions[here] ? "" : " (differs)";
      said.push(`policy: ${data.actions[chosen].name}, ${episode.probability[here].toFixed(2)}${differs}`);
      if (episode.familiarity) said.push(`familiarity ${episode.familiarity[here].toFixed(2)}`);
    }
    const filled = data.columns.filter((_, index) => isFilled(episode, index, here)).map(({ name }) => name);
    if (filled.length) said.push(`filled in: ${filled.slice(0, 3).join(", ")}${filled.length > 3 ? ", ..." : ""}`);
    byId("moment").replaceChildren(...said.map((words) => html("span", {}, words)));
    byId("steps").setAttribute("aria-valuenow", here);
    byId("steps").setAttribute("aria-valuetext", said.join("; "));
    const outputs = byId("decisions").querySelectorAll(".lanes output, .familiar output");
    const values = decided ? ["", data.policy && episode.probability[here].toFixed(2),
      episode.familiarity && episode.familiarity[here].toFixed(2)] : [];
    outputs.forEach((output, index) => { output.textContent = values[index] || ""; });
  }

  function choose(episode) {
    state.episode = opened(episode);
    state.step = 0;
    const ends = { terminal: "ended by itself", truncated: "cut off", "": "" };
    const facts = [plural(episode.length, "decision"), `${plural(episode.changes, "change")} of action`,
      `${share(episode.unusual)} of values unusual`, data.policy && `policy differs in ${share(episode.differs)}`,
      ends[episode.end], episode.every > 1 && `one step in ${episode.every} drawn`];
    byId("episode-title").replaceChildren(html("span", { class: "soft" }, `${data.key} `), episode.id);
    byId("about").textContent = facts.filter(Boolean).join(" · ");
    drawDecisions();
    drawRows();
    sayFlags();
    mark();
    byId("numbers").open = false;
    byId("numbers").replaceChildren(byId("numbers").firstElementChild);
  }

  // The numbers behind the charts

  function numbers() {
    const episode = state.episode, shown = [...state.shown].sort((a, b) => a - b), details = byId("numbers");
    if (!details.open || details.children.length > 1) return;
    const name = (actions, step) => (step < actions.length ? data.actions[actions[step]].name : "");
    const actions = data.policy ? { decision: episode.actions, policy: episode.chosen } : { decision: episode.actions };
    const lines = episode.at.map((at, step) => [text(at), ...Object.values(actions).map((taken) => name(taken, step)),
      ...shown.map((index) => text(episode.columns[index][step]) + (isFilled(episode, index, step) ? " (filled in)" : ""))]);
    if (episode.times) lines.forEach((line, step) => line.splice(1, 0, episode.times[step] || ""));
    const head = ["step", ...(episode.times ? [data.time] : []), ...Object.keys(actions), ...shown.map((index) => data.columns[index].name)];
    details.append(scrolling("The numbers of this episode", table(head, lines)));
  }

  // Which columns are shown

  function columnChoices() {
    const boxes = data.columns.map((column, index) => {
      const change = ({ target }) => {
        if (target.checked) state.shown.add(index);
        else state.shown.delete(index);
        drawRows();
      };
      return html("input", { type: "checkbox", checked: true, onchange: change });
    });
    const labels = boxes.map((box, index) => html("label", {}, box, data.columns[index].name));
    const first = html("input", { type: "checkbox", id: "far-first", onchange: ({ target }) => {
      state.unusualFirst = target.checked;
      drawRows();
    } });
    byId("columns").append(...labels);
    byId("none").after(html("label", { class: "first" }, first, "Unusual first"));
    const fits = (index) => !labels[index].hidden;
    const set = (on) => () => {
      boxes.forEach((box, index) => {
        if (fits(index)) box.checked = on;
      });
      state.shown = new Set(boxes.flatMap((box, index) => (box.checked ? [index] : [])));
      drawRows();
    };
    byId("all").addEventListener("click", set(true));
    byId("none").addEventListener("click", set(false));
    byId("filter").addEventListener("input", () => {
      const wanted = byId("filter").value.trim().toLowerCase();
      labels.forEach((label, index) => { label.hidden = !data.columns[index].name.toLowerCase().includes(wanted); });
    });
  }

  function start() {
    byId("browser").hidden = false;
    byId("order").append(...Object.keys(orders).map((name) => html("option", { value: name }, name)));
    byId("with-policy").hidden = !data.policy;
    const all = data.episodes.length;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -all, End: all };
    byId("list").addEventListener("keydown", (event) => pressed(event, moves, move));
    byId("search").addEventListener("input", fillList);
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") pressed(event, { ArrowDown: 0, Enter: 0 }, move);
      if (event.key === "ArrowDown") byId("list").focus();
    });
    byId("order").addEventListener("change", fillList);
    byId("previous").addEventListener("click", () => move(-1));
    byId("next").addEventListener("click", () => move(1));
    byId("flag").addEventListener("click", flag);
    byId("export").addEventListener("click", save);
    byId("numbers").addEventListener("toggle", numbers);
    window.addEventListener("beforeunload", (event) => state.saved || event.preventDefault());
    columnChoices();
    fillList();
    choose(data.episodes[0]);
  }

  theme();
  start();
})();
