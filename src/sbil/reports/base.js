"use strict";
// What the pages share: elements whose text stays text, numbers in words, scales and ticks, light and dark.
const kit = (() => {
  const byId = (id) => document.getElementById(id);

  // Elements

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && known(value)) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => known(child) && child !== ""));
    return element;
  }
  const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

  function table(head, lines, attributes = {}) {
    const body = lines.map(([first, ...rest]) =>
      html("tr", {}, html("th", { scope: "row" }, first), ...rest.map((text) => html("td", {}, text))));
    const heads = head && html("thead", {}, html("tr", {}, ...head.map((text) => html("th", { scope: "col" }, text))));
    return html("table", attributes, heads, html("tbody", {}, ...body));
  }
  const scrolling = (label, content) =>
    html("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": label }, content);

  // Numbers in words

  function known(value) {
    return value !== null && value !== undefined;
  }
  const minus = (text) => text.replace("-", "−");
  const whole = (value) => value.toLocaleString("en-GB");
  const plural = (count, word, words = `${word}s`) => `${whole(count)} ${count === 1 ? word : words}`;
  const percent = (share) => `${Math.round(share * 100)} %`;

  function short(value) {
    if (!known(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e5)) return minus(value.toExponential(1).replace("e+", "e"));
    return minus(String(Number(value.toPrecision(3))));
  }

  // Scales and paths

  const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  const pair = ([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`;
  const path = (places) => places.map((place, index) => (index ? "L" : "M") + pair(place)).join("");
  function ticks(low, high, count) {
    const raw = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
  }

  // Light and dark

  function theme() {
    const button = byId("theme"), root = document.documentElement;
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const say = () => button.setAttribute("aria-pressed", String(dark()));
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      say();
    });
    system.addEventListener("change", say);
    say();
  }

  return {
    byId, html, svg, table, scrolling, known, minus, whole, plural, percent, short, scale, pair, path, ticks, theme,
  };
})();
