// SVG elements from data.

const NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * Make an SVG element with attributes and children; undefined and null attributes are left out. Keys that begin with `on`
 * are listeners.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} attributes
 * @param {...(Node | string | null | (Node | string | null)[])} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}
