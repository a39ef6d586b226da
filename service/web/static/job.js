// A job that makes traces: how far it has come, the way to cancel it, and what it has made.
import { Problem, api, getJson, pageOf, readJson, send } from "./api.js";
import { announce, el, setText } from "./dom.js";
import { follow, left } from "./follow.js";
import { count, plural } from "./format.js";

const SHOWN = 12; // traces to which it links

/** One job at a time. `key` names it to the tab, which goes on following it after a reload. */
export class JobView {
  constructor(key, { onMade = () => {}, onBusy = () => {} } = {}) {
    this.key = key;
    this.onMade = onMade;
    this.onBusy = onBusy;
    this.text = el("span", { role: "status" });
    this.cancel = el("button", { type: "button", class: "quiet", "data-testid": "job-cancel" }, "Cancel");
    this.cancel.addEventListener("click", () => this.cancelled());
    this.bar = el("progress", { "aria-label": "Job" });
    this.made = el("ul", { class: "made", "data-testid": "job-made" });
    this.element = el("div", { class: "job", tabindex: -1, "data-testid": "job" }, el("div", { class: "buttons" }, this.text, this.cancel), this.bar, this.made);
    this.element.hidden = true;
    this.busy = false;
  }

  /** Follow the job that an earlier load of the page left, if it did. */
  resume() {
    const left = sessionStorage.getItem(this.key);
    if (left) this.during(() => this.follow(left));
  }

  /** Ask for a job by a POST, and follow it to its end. */
  start(url, json) {
    return this.during(async () => {
      this.told("Starting…");
      const job = await readJson(await send("POST", url, { json }));
      sessionStorage.setItem(this.key, job.id);
      await this.follow(job.id);
    });
  }

  async during(work) {
    if (this.busy) return;
    this.busy = true;
    this.onBusy(true);
    this.id = null;
    this.cancel.hidden = true;
    this.made.replaceChildren();
    this.bar.removeAttribute("value");
    this.bar.hidden = false;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.told(`${error.title}. ${error.detail}`, true);
    } finally {
      sessionStorage.removeItem(this.key);
      this.bar.hidden = true;
      if (document.activeElement === this.cancel) this.element.focus(); // the button goes away
      this.cancel.hidden = true;
      this.busy = false;
      this.onBusy(false);
    }
  }

  async follow(id) {
    this.id = id;
    const job = await follow(
      id,
      (one) => this.goesOn(one),
      (problem) => this.told(`${problem.title}. Trying again.`),
    );
    await this.ended(job);
  }

  goesOn(job) {
    const { events, events_total: total } = job.progress;
    this.cancel.hidden = false;
    const known = Number(total) > 0;
    if (known) {
      this.bar.max = Number(total);
      this.bar.value = Number(events);
    }
    const far = `${count(events)}${known ? ` of ${count(total)}` : ""} events`;
    this.told(job.state === "queued" ? "Waits for its turn" : [far, left(job)].filter(Boolean).join(" · "));
  }

  async ended(job) {
    if (job.state === "cancelled") this.told("Cancelled: nothing was made.");
    else if (job.state === "failed") this.told(`${job.error?.title ?? "Failed"}. ${job.error?.detail ?? ""}`, true);
    else {
      const ids = job.result.traces;
      await this.onMade(ids);
      const traces = await Promise.all(ids.slice(0, SHOWN).map(nameOf));
      this.made.replaceChildren(...traces.map(({ id, name }) => el("li", {}, el("a", { href: pageOf(id) }, name))));
      this.told(`Made ${plural(ids.length, "trace")}${ids.length > SHOWN ? `; the first ${SHOWN}` : ""}:`);
      announce(`Made ${plural(ids.length, "trace")}`);
    }
  }

  async cancelled() {
    try {
      await send("DELETE", api("jobs", this.id));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.told(`${error.title}. ${error.detail}`, true);
    }
  }

  told(text, bad = false) {
    this.element.hidden = false;
    this.text.classList.toggle("bad", bad);
    setText(this.text, text);
  }
}

async function nameOf(id) {
  try {
    return await getJson(api("traces", id));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { id, name: id }; // deleted already
  }
}
