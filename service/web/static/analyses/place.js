// The chosen analysis in the page's address: `?analysis=operators&steps=4&options=group_by%3Dshapes`. The options are the
// parameters of the analysis that differ from their defaults, as a query of their own.

const WINDOW = ["start_ns", "end_ns"];

/** @typedef {{ name: string | null, steps: string, options: Record<string, string> }} Choice `steps` is empty for all */

/** @returns {Choice} */
export function choiceInAddress() {
  const address = new URLSearchParams(location.search);
  return { name: address.get("analysis") || null, steps: address.get("steps") ?? "", options: Object.fromEntries(new URLSearchParams(address.get("options") ?? "")) };
}

/**
 * The address of the page with a choice; what other parts of the page put there stays.
 * @param {Choice} choice
 */
export function addressOf({ name, steps, options }) {
  const address = new URL(location.href);
  for (const [key, value] of Object.entries({ analysis: name ?? "", steps, options: String(new URLSearchParams(options)) })) {
    if (value === "") address.searchParams.delete(key);
    else address.searchParams.set(key, value);
  }
  return address.href;
}

/** The window that the overview put into the address, as parameters of a request. */
export const windowInAddress = () => Object.fromEntries([...new URLSearchParams(location.search)].filter(([key]) => WINDOW.includes(key)));
