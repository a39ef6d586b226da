// Elements from data. Text always becomes a text node, so a trace named "<img onerror=…>" is only a name.

/**
 * @template {string} Id
 * @param {Id} id
 * @returns {ElementById<Id>}
 */
export const byId = (id) => /** @type {any} */ (document.getElementById(id));

/**
 * Make an element with attributes and children.
 * Keys that begin with `on` are listeners. `true` sets an attribute without a value; `false`, null and undefined leave
 * it out. Children are nodes, text or null.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} attributes
 * @param {...Children} children
 * @returns {HTMLElementTagNameMap[Tag]}
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

/** @param {Child} child */
const node = (child) => (child instanceof Node ? child : String(child));

/**
 * Set an element's text only when it changed, so that a poll disturbs neither selection nor screen reader.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Have screen readers read a text, once.
 * @param {string} text
 */
export const announce = (text) => {
  byId("announce").textContent = text;
};

/**
 * Make a table of cells (nodes or text); the cells of a column have the class of its heading.
 * @param {{ text: string, class?: string }[]} headings
 * @param {Children[][]} rows
 * @param {Record<string, string>} attributes
 */
export function table(headings, rows, attributes = {}) {
  /**
   * @param {"th" | "td"} tag
   * @param {Children} content
   * @param {number} index
   * @param {Record<string, string>} extra
   */
  const cell = (tag, content, index, extra = {}) => el(tag, { class: headings[index].class, ...extra }, content);
  const head = el("tr", {}, headings.map(({ text }, i) => cell("th", text, i, { scope: "col" })));
  const body = rows.map((cells) => el("tr", {}, cells.map((content, i) => cell("td", content, i))));
  return el("table", attributes, el("thead", {}, head), el("tbody", {}, body));
}

/**
 * Make a proportional bar. The number is next to it, so the bar is hidden from screen readers.
 * @param {number} part
 * @param {number} whole
 */
export function bar(part, whole) {
  const fill = el("span");
  fill.style.inlineSize = `${Math.max(0, Math.min(100, whole > 0 ? (100 * part) / whole : 0))}%`;
  return el("span", { class: "bar-track", "aria-hidden": "true" }, fill);
}

/**
 * Make a button that copies a text, or what a function returns at the click.
 * @param {string | (() => string)} text
 * @param {string} label
 * @param {string} caption
 */
export function copyButton(text, label, caption = "Copy") {
  const button = el("button", { type: "button", class: "quiet", "aria-label": label }, caption);
  button.addEventListener("click", async () => {
    const copied = await copy(typeof text === "string" ? text : text());
    button.textContent = copied ? "Copied" : "Not allowed";
    setTimeout(() => {
      button.textContent = caption;
    }, 1500);
  });
  return button;
}

/**
 * Copy a text to the clipboard, and announce the result to screen readers.
 * Pages over plain HTTP have no clipboard API: there it uses execCommand.
 * @param {string} text
 * @returns {Promise<boolean>} whether the browser allows copying
 */
export async function copy(text) {
  const copied = await write(text);
  announce(copied ? "Copied" : "The browser does not allow copying");
  return copied;
}

/** @param {string} text */
async function write(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  const field = el("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return copied;
}

/**
 * Download bytes as a file.
 * @param {Blob} blob
 * @param {string} name
 */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // some browsers read it after a delay
}
