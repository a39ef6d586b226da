// The arguments of events that engines of this page load: `all`, `essential` or `none`. With fewer, they load sooner.

let args = "all";

export const chosenArgs = () => args;

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
    if ((url.searchParams.get("args") ?? "all") === args) continue;
    if (args === "all") url.searchParams.delete("args");
    else url.searchParams.set("args", args);
    link.href = url.href;
  }
}
