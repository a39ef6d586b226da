// Small icons. They repeat a word next to them, or a button's label, so screen readers skip them.
import { svg } from "../charts/svg.js";

const PATHS = {
  ready: "M3 8.5l3.2 3.2L13 4.8",
  failed: "M4 4l8 8M12 4l-8 8",
  queued: "M8 4.5V8l2.4 1.6M8 2a6 6 0 100 12A6 6 0 008 2",
  ingesting: "M8 2v7M4.8 6L8 9.2 11.2 6M3 13h10",
  damaged: "M8 2.5L14.5 13.5h-13zM8 6.5v3.2M8 11.4v.4",
  pin: "M5 2.5h6l-1 5 2 2H4l2-2zM8 9.5v4.5",
  unfold: "M6 3.5l4.5 4.5L6 12.5",
  trash: "M3 4.5h10M6.5 4V2.5h3V4M4.5 4.5l.6 9h5.8l.6-9M7 7v4M9 7v4",
};

/**
 * Make an icon.
 * @param {keyof typeof PATHS} name
 */
export const icon = (name) => svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
