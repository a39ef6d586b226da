// The view of a job that makes traces: its progress, a button that cancels it, and links to its traces.
import { Problem, api, getJson, pageOf, readJson, send } from "./api.js";
import { announce, el, setText } from "./dom.js";
import { follow, left } from "./follow.js";
import { count, plural } from "./format.js";

const LINKS_MAX = 12; // traces that are linked

/** View of one job at a time. The tab stores its id under `key`, and so follows it after a reload. */
export class JobView {
  /**
   * @param {string} key
   * @param {{ onMade?: (ids: string[]) => unknown, onBusy?: (busy: boolean) => void }} handlers
   */
  constructor(key, { onMade = () => {}, onBusy = () => {} } = {}) {
    this.key = key;
    this.onMade = onMade;
    this.onBusy = onBusy;
    this.text = el("span", { role: "status" });
    this.cancel = el("button", { type: "button", class: "quiet", "data-testid": "job-cancel" }, "Cancel");
    this.cancel.addEventListener("click", () => this.requestCancel());
    this.bar = el("progress", { "aria-label": "Job" });
    this.links = el("ul", { class: "made", "data-testid": "job-made" });
    this.element = el("div", { class: "job", tabindex: -1, "data-testid": "job" }, el("div", { class: "buttons" }, this.text, this.cancel), this.bar, this.links);
    this.element.hidden = true;
    this.busy = false;
    this.id = "";
  }

  /** Follow the job that was under way before the page was reloaded, if any. */
  resume() {
    const id = sessionStorage.getItem(this.key);
    if (id) this.during(() => this.follow(id));
  }

  /**
   * Start a job by a POST, and follow it to its end.
   * @param {string} url
   * @param {object} json
   */
  start(url, json) {
    return this.during(async () => {
      this.showText("Starting…");
      const job = await readJson(await send("POST", url, { json }));
      sessionStorage.setItem(this.key, job.id);
      await this.follow(job.id);
    });
  }

  /** @param {() => Promise<void>} work */
  async during(work) {
    if (this.busy) return;
    this.busy = true;
    this.onBusy(true);
    this.id = "";
    this.cancel.hidden = true;
    this.links.replaceChildren();
    this.bar.removeAttribute("value");
    this.bar.hidden = false;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.showText(`${error.title}. ${error.detail}`, true);
    } finally {
      sessionStorage.removeItem(this.key);
      this.bar.hidden = true;
      if (document.activeElement === this.cancel) this.element.focus(); // the button disappears
      this.cancel.hidden = true;
      this.busy = false;
      this.onBusy(false);
    }
  }

  /** @param {string} id */
  async follow(id) {
    this.id = id;
    const job = await follow(
      id,
      (running) => this.showProgress(running),
      (problem) => this.showText(`${problem.title}. Trying again.`),
    );
    await this.ended(job);
  }

  /** @param {Job} job */
  showProgress(job) {
    const { events, events_total: total } = job.progress;
    this.cancel.hidden = false;
    const isTotalKnown = Number(total) > 0;
    if (isTotalKnown) {
      this.bar.max = Number(total);
      this.bar.value = Number(events);
    }
    const position = `${count(events)}${total !== null && isTotalKnown ? ` of ${count(total)}` : ""} events`;
    this.showText(job.state === "queued" ? "Waiting for other jobs" : [position, left(job)].filter(Boolean).join(" · "));
  }

  /** @param {Job} job */
  async ended(job) {
    if (job.state === "cancelled") this.showText("Cancelled: nothing was made.");
    else if (job.state === "failed") this.showText(`${job.error?.title ?? "Failed"}. ${job.error?.detail ?? ""}`, true);
    else {
      const ids = job.result.traces;
      await this.onMade(ids);
      const traces = await Promise.all(ids.slice(0, LINKS_MAX).map(nameOf));
      this.links.replaceChildren(...traces.map(({ id, name }) => el("li", {}, el("a", { href: pageOf(id) }, name))));
      this.showText(`Made ${plural(ids.length, "trace")}${ids.length > LINKS_MAX ? `; the first ${LINKS_MAX}` : ""}:`);
      announce(`Made ${plural(ids.length, "trace")}`);
    }
  }

  async requestCancel() {
    try {
      await send("DELETE", api("jobs", this.id));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.showText(`${error.title}. ${error.detail}`, true);
    }
  }

  /**
   * @param {string} text
   * @param {boolean} bad
   */
  showText(text, bad = false) {
    this.element.hidden = false;
    this.text.classList.toggle("bad", bad);
    setText(this.text, text);
  }
}

/**
 * @param {string} id
 * @returns {Promise<{ id: string, name: string }>}
 */
async function nameOf(id) {
  try {
    return await getJson(api("traces", id));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { id, name: id }; // deleted already
  }
}
