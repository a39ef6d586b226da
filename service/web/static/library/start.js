// How to add a first trace: commands with the address of this server.
import { root } from "../api.js";
import { byId, copyButton } from "../dom.js";

/** Fill the examples of the empty library. */
export function showStart() {
  const hasTokens = document.querySelector(".logout") !== null;
  const traces = `${location.origin}${root}/api/v1/traces`;
  const token = hasTokens ? '-H "Authorization: Bearer $TRACEDOCK_TOKEN" ' : "";
  put("start-curl", `curl ${token}-T rank0.pt.trace.json.gz ${traces}/`, "Copy the command");
  put("start-torch", handlerOf(traces, hasTokens), "Copy the script");
}

/**
 * A script that uploads each cycle of the profiler.
 * @param {string} traces
 * @param {boolean} hasTokens
 */
const handlerOf = (traces, hasTokens) => `import os, urllib.request
from torch.profiler import profile, schedule

def upload(profiler):
    name = f"rank{os.environ.get('RANK', 0)}.step{profiler.step_num}.pt.trace.json.gz"
    profiler.export_chrome_trace(f"/tmp/{name}")
    url = f"${traces}/{name}?group=my-run"
    with open(f"/tmp/{name}", "rb") as file:
        request = urllib.request.Request(url, file, method="PUT")${hasTokens ? "\n        request.add_header('Authorization', f\"Bearer {os.environ['TRACEDOCK_TOKEN']}\")" : ""}
        urllib.request.urlopen(request)

with profile(
    schedule=schedule(wait=10, warmup=2, active=3, repeat=1),
    on_trace_ready=upload,
) as profiler:
    for batch in loader:
        train(batch)
        profiler.step()`;

/**
 * @param {string} id
 * @param {string} text
 * @param {string} label
 */
function put(id, text, label) {
  const box = byId(id);
  box.textContent = text;
  box.after(copyButton(text, label));
}
