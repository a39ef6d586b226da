// The tooltip that all charts share.
import { el } from "../dom.js";

const GAP = 12; // pixels between pointer and tooltip

const box = el("div", { class: "tooltip", role: "presentation", hidden: true });
document.body.append(box);

/**
 * Show lines of text next to the pointer.
 * @param {{ clientX: number, clientY: number }} place
 * @param {Children} lines
 */
export function showTooltip({ clientX, clientY }, lines) {
  box.replaceChildren(...[lines].flat().map((line) => el("div", {}, line)));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = clientX + GAP + width > innerWidth ? clientX - GAP - width : clientX + GAP;
  const top = clientY + GAP + height > innerHeight ? clientY - GAP - height : clientY + GAP;
  box.style.left = `${Math.max(0, left)}px`;
  box.style.top = `${Math.max(0, top)}px`;
}

export function hideTooltip() {
  box.hidden = true;
}

/**
 * The texts of marks. Marks themselves have no listener of focus: with one, browsers would put them into the order of Tab.
 * @type {WeakMap<Element, () => Children>}
 */
const texts = new WeakMap();

document.addEventListener("focusin", ({ target }) => {
  const link = /** @type {Element} */ (target);
  const mark = texts.has(link) ? link : link instanceof SVGAElement ? [...link.children].find((child) => texts.has(child)) : undefined;
  const text = mark && texts.get(mark);
  if (!text) return hideTooltip();
  const { left, bottom } = link.getBoundingClientRect();
  showTooltip({ clientX: left, clientY: bottom }, text());
});

/**
 * Show a tooltip while the pointer is over the element, or the link around it has the focus.
 * @template {SVGElement | HTMLElement} Marked
 * @param {Marked} element
 * @param {() => Children} lines
 * @returns {Marked}
 */
export function withTooltip(element, lines) {
  texts.set(element, lines);
  element.addEventListener("pointermove", (event) => showTooltip(/** @type {PointerEvent} */ (event), lines()));
  element.addEventListener("pointerleave", hideTooltip);
  return element;
}
