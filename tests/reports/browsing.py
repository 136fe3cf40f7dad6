"""Checks that every page must pass in a browser."""

# The texts whose contrast with their background is below 4.5 (WCAG), and how many texts were checked.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [red, green, blue] = colour.map((part) => linear(part / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const read = (element) =>
    element.getClientRects().length && !element.closest(".hidden, script, style, noscript")
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const found = [...document.querySelectorAll("body *")].filter(read).map((element) => {
    const style = getComputedStyle(element), chart = element.closest("svg");
    const text = light(rgba(chart ? style.fill : style.color));
    const back = light(behind(chart ? chart.parentElement : element));
    return [(Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05), element.tagName, element.textContent];
  });
  return { count: found.length, low: found.filter(([ratio]) => ratio < 4.5) };
}"""

# Controls that say nothing to a reader of screens.
NAMELESS = """() => {
  const name = (element) => {
    const labels = [...(element.labels || [])].map((label) => label.textContent);
    const own = ["INPUT", "SELECT"].includes(element.tagName) ? "" : element.textContent;
    return [element.getAttribute("aria-label") || "", ...labels, own].join("").trim();
  };
  const controls = document.querySelectorAll("button, input, select, summary, a, [tabindex], svg[role]");
  return [...controls].filter((element) => !name(element)).map((element) => element.outerHTML);
}"""

# What has the focus, and whether that can be seen.
FOCUS = """() => {
  const { id, tagName, classList } = document.activeElement;
  const seen = getComputedStyle(document.activeElement).outlineStyle !== "none" || classList.contains("point");
  return [id || classList[0] || tagName, seen];
}"""


def expand(tab):
    """Open everything that can be folded, so that all of it is checked."""
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.wait_for_timeout(100)
