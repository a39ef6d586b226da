// Elements from data. Text always becomes a text node, so a trace named "<img onerror=…>" is only a name.

export const byId = (id) => document.getElementById(id);

/**
 * An element with attributes, properties and children.
 * `onX` keys listen, `true`/`false` values set or leave out, children are nodes, text or null.
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null).map(node));
  return element;
}

const node = (child) => (child instanceof Node ? child : String(child));

/** Set an element's text only when it changed, so that a poll disturbs neither selection nor screen reader. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Say something to a screen reader, once. */
export const announce = (text) => {
  byId("announce").textContent = text;
};

/** A table of cells (nodes or text); the classes of a heading's column are the classes of its cells. */
export function table(headings, rows, attributes = {}) {
  const cell = (tag, content, index, extra = {}) => el(tag, { class: headings[index].class, ...extra }, content);
  const head = el("tr", {}, headings.map(({ text }, i) => cell("th", text, i, { scope: "col" })));
  const body = rows.map((cells) => el("tr", {}, cells.map((content, i) => cell("td", content, i))));
  return el("table", attributes, el("thead", {}, head), el("tbody", {}, body));
}

/** A proportional bar; its number stands beside it, so it is hidden from screen readers. */
export function bar(part, whole) {
  const fill = el("span");
  fill.style.inlineSize = `${Math.max(0, Math.min(100, whole > 0 ? (100 * part) / whole : 0))}%`;
  return el("span", { class: "bar-track", "aria-hidden": "true" }, fill);
}

/** A button that copies `text`. A plain-http page has no clipboard API, hence the older way as well. */
export function copyButton(text, label) {
  const button = el("button", { type: "button", class: "quiet", "aria-label": label }, "Copy");
  button.addEventListener("click", async () => {
    const copied = await copy(text);
    button.textContent = copied ? "Copied" : "Not allowed";
    announce(copied ? "Copied" : "The browser does not allow copying");
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
  return button;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const focused = document.activeElement;
  const field = el("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return copied;
}

/** Offer bytes as a file. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // some browsers read it late
}
