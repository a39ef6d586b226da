// What engines of this page load: the events in columns, with `all`, `essential` or `none` of their arguments (with fewer,
// they load sooner), or the original of a Perfetto trace, which has no choice of arguments. If the user chooses no
// arguments, links carry none: the server chooses those of the Perfetto UI, and SQL has all.

let args = "";
/** @type {Source} */
let source = "columns";

export const chosenArgs = () => args;
export const chosenSource = () => source;

/**
 * The fields of a query, or the parameters of an address, for what is chosen.
 * @returns {Record<string, string>}
 */
export const chosenView = () => (source === "original" ? { source } : { args });

/** @param {Source} value */
export function chooseSource(value) {
  source = value;
}

/**
 * Set them, and change each link of this page to the Perfetto UI and to SQL accordingly.
 * @param {string} value
 */
export function chooseArgs(value) {
  args = value;
  /** @type {NodeListOf<HTMLAnchorElement>} */
  const links = document.querySelectorAll('a[href*="/perfetto"], a[href*="/sql"]');
  for (const link of links) {
    const url = new URL(link.href);
    if (url.searchParams.has("source")) continue; // an original has all arguments
    if ((url.searchParams.get("args") ?? "") === args) continue;
    if (args === "") url.searchParams.delete("args");
    else url.searchParams.set("args", args);
    link.href = url.href;
  }
}
