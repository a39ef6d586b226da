// The panel of the local port that serves one trace to ui.perfetto.dev.
import { Problem, api, getJson, pageOf, putJson } from "./api.js";
import { byId, el } from "./dom.js";

const USUAL_PORT = 9001; // the port that ui.perfetto.dev tries first

/**
 * Show the listener and the button that points it at this trace.
 * @param {Trace} trace
 */
export async function startListener(trace) {
  await attempt(async () => show(trace, await getJson(api("listener"))));
  byId("listener").hidden = false;
}

/** @param {() => Promise<void>} act */
async function attempt(act) {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("listener-body").append(el("p", { class: "note bad", role: "alert" }, `${error.title}. ${error.detail}`));
  }
}

/**
 * @param {Trace} trace
 * @param {ListenerStatus} listener
 */
function show(trace, { enabled, host, port, trace: served, error }) {
  const address = `${host}:${port}`;
  if (!enabled) {
    byId("listener-body").replaceChildren(
      error === null
        ? el("p", { class: "muted" }, "The local port for ui.perfetto.dev is switched off on this server.")
        : el("p", { class: "note bad", role: "alert" }, `ui.perfetto.dev can't reach this server. ${error}`),
    );
    return;
  }
  const mine = served === trace.id;
  const button = el("button", { type: "button", "data-write": true, "data-testid": "serve-trace" }, mine ? "Served" : `Serve on ${address}`);
  button.disabled = mine;
  button.addEventListener("click", () =>
    attempt(async () => {
      show(trace, await putJson(api("listener"), { trace: trace.id }));
      byId("listener-open").focus();
    }),
  );
  const url = port === USUAL_PORT ? "https://ui.perfetto.dev/" : `https://ui.perfetto.dev/#!/?rpc_port=${port}`;
  const open = el("a", { id: "listener-open", class: "button", href: url, target: "_blank", rel: "noopener noreferrer" }, "Go to ui.perfetto.dev");
  byId("listener-body").replaceChildren(
    el("p", {}, "The public Perfetto UI looks for a trace at ", el("code", {}, address),
      ". One trace at a time can be served there, to a browser on the server's own machine or through an SSH tunnel."),
    el("p", { role: "status" }, ...nowServed(mine, served)),
    ...(mine ? [el("p", { class: "muted" }, ...howToOpen(port))] : []),
    el("div", { class: "buttons" }, button, mine ? open : null),
  );
}

/**
 * Explain the steps that the UI needs before it shows the trace.
 * @param {Int} port
 */
function howToOpen(port) {
  const permission = "Let the page reach your local network if the browser asks, and answer “YES, use loaded trace”.";
  if (port === USUAL_PORT) return [permission];
  return [`The UI looks for port ${USUAL_PORT}: for another, switch on its flag “Relax Content Security Policy for 127.0.0.1:*” once. `, permission];
}

/**
 * @param {boolean} mine
 * @param {string | null} served
 */
function nowServed(mine, served) {
  if (mine) return ["It serves this trace now."];
  if (served === null) return ["It serves no trace now."];
  return ["It serves trace ", el("a", { class: "mono", href: pageOf(served) }, served), " now."];
}
