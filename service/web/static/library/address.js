// The view of the library in the address of the page: search, filters, order, place and unfolded runs.

export const PAGE = 50; // entries

/** @typedef {"uploaded" | "name" | "size" | "span" | "ranks" | "events"} SortColumn */
/**
 * @typedef {{
 *   q: string, state: string, kind: string, gpu: string, pinned: string, damaged: string,
 *   sort: string, order: string, offset: number, open: Set<string>,
 * }} LibraryView
 */

const FILTERS = /** @type {const} */ (["state", "kind", "gpu", "pinned", "damaged"]);

/**
 * The order in which a column is sorted first.
 * @param {string} sort
 */
export const firstOrder = (sort) => (sort === "name" ? "asc" : "desc");

/** @returns {LibraryView} */
export function readView() {
  const query = new URLSearchParams(location.search);
  const text = (/** @type {string} */ name) => query.get(name) ?? "";
  const sort = text("sort") || "uploaded";
  return {
    q: text("q"),
    state: text("state"),
    kind: text("kind"),
    gpu: text("gpu"),
    pinned: text("pinned"),
    damaged: text("damaged"),
    sort,
    order: text("order") || firstOrder(sort),
    offset: Math.max(0, Math.floor(Number(text("offset")) || 0)),
    open: new Set(text("open").split(",").filter(Boolean)),
  };
}

/**
 * Put a view into the address. `isStep` makes it a step of the browser's history.
 * @param {LibraryView} view
 * @param {boolean} isStep
 */
export function writeView(view, isStep) {
  const query = new URLSearchParams();
  if (view.q) query.set("q", view.q);
  for (const name of FILTERS) if (view[name]) query.set(name, view[name]);
  if (view.sort !== "uploaded") query.set("sort", view.sort);
  if (view.order !== firstOrder(view.sort)) query.set("order", view.order);
  if (view.offset > 0) query.set("offset", String(view.offset));
  if (view.open.size > 0) query.set("open", [...view.open].join(","));
  const text = query.toString().replaceAll("%2C", ",");
  const address = location.pathname + (text && `?${text}`);
  if (address === location.pathname + location.search) return;
  if (isStep) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/**
 * Whether a view shows only some traces.
 * @param {LibraryView} view
 */
export const isNarrow = (view) => view.q !== "" || FILTERS.some((name) => view[name] !== "");

/**
 * The query of the API for a view; with `run`, for the traces of that run which the view shows.
 * @param {LibraryView} view
 * @param {{ run: string, limit: number } | null} [of]
 */
export function apiQuery(view, of = null) {
  const query = new URLSearchParams();
  if (view.q) query.set("q", view.q);
  for (const name of FILTERS) if (view[name] && !(of && name === "kind")) query.set(name, view[name]);
  query.set("sort", of ? "rank" : view.sort);
  query.set("order", of ? "asc" : view.order);
  query.set("limit", String(of ? of.limit : PAGE));
  if (of) query.set("run", of.run);
  else if (view.offset > 0) query.set("offset", String(view.offset));
  return query;
}
