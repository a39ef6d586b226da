// The page "/datasets": the datasets that the server shows, each with its state and its progress.
import { Problem, api, getJson } from "../api.js";
import { byId, el, setText } from "../dom.js";
import { plural } from "../format.js";
import { poll } from "../poll.js";
import { hideProblem, showProblem } from "../problem.js";
import { datasetPageOf } from "./address.js";
import { ProgressView, badgeOf } from "./progress.js";

/** @type {Map<string, DatasetRow>} */
const rows = new Map();

poll(async () => {
  try {
    /** @type {{ datasets: DatasetInBrief[] }} */
    const { datasets } = await getJson(api("datasets"));
    for (const dataset of datasets) {
      const row = rows.get(dataset.name) ?? new DatasetRow(dataset.name);
      if (!rows.has(dataset.name)) byId("datasets").append(row.element);
      rows.set(dataset.name, row);
      row.update(dataset);
    }
    byId("datasets").hidden = datasets.length === 0;
    byId("datasets-none").hidden = datasets.length > 0;
    hideProblem(byId("datasets-problem"));
    return datasets.some(({ state }) => state === "ingesting" || state === "reading");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(byId("datasets-problem"), error);
    return false;
  }
});

class DatasetRow {
  /** @param {string} name */
  constructor(name) {
    this.state = el("span");
    this.count = el("span", { class: "small muted" });
    this.place = el("span", { class: "small muted mono" });
    this.reason = el("span", { class: "small muted reason" });
    this.progress = new ProgressView();
    this.element = el("li", { "data-testid": "dataset-row" }, el("span", {}, el("a", { class: "name", href: datasetPageOf(name) }, name), " ", this.place), this.count, this.state, this.reason, this.progress.element);
    this.shown = "";
  }

  /** @param {DatasetInBrief} dataset */
  update(dataset) {
    if (this.shown !== dataset.state) this.state.replaceChildren(badgeOf(dataset.state));
    this.shown = dataset.state;
    setText(this.place, dataset.location);
    setText(this.count, dataset.read_at === null ? "" : `${plural(dataset.runs_count, "run")}, ${plural(dataset.ranks, "rank")}`);
    const { reason } = dataset.state === "stopped" ? dataset.progress : dataset;
    setText(this.reason, reason ?? "");
    this.progress.element.hidden = dataset.read_at === null;
    this.progress.update(dataset.progress);
  }
}
