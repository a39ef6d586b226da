// "Are you sure?", with the deed done while the dialog is open, so that its failure is told where it was asked.
import { deleteTrace, Problem, api, send } from "./api.js";
import { byId } from "./dom.js";
import { plural } from "./format.js";

/** Ask whether to delete a trace, and do it. Resolves to whether it is gone. */
export function confirmDelete(trace) {
  return confirm({
    title: "Delete this trace?",
    text: `“${trace.name}” goes away with everything made from it. This cannot be undone.`,
    verb: "Delete",
    act: () => gone("unknown_trace", deleteTrace(trace.id)),
  });
}

/** Ask whether to dissolve a group, whose traces stay, and do it. Resolves to whether it is gone. */
export const confirmDissolve = (group) =>
  confirm({
    title: "Dissolve this group?",
    text: `“${group.name}” goes away; its ${plural(group.traces, "trace")} stay, in no group.`,
    verb: "Dissolve",
    act: () => gone("unknown_group", send("DELETE", api("groups", group.id))),
  });

/** Ask whether to delete a group with all of its traces, and do it. Resolves to whether it is gone. */
export const confirmGroup = (group) =>
  confirm({
    title: `Delete ${plural(group.traces, "trace")}?`,
    text: `“${group.name}” goes away with all of its traces and everything made from them. This cannot be undone.`,
    verb: "Delete all",
    act: () => gone("unknown_group", send("DELETE", `${api("groups", group.id)}?traces=true`)),
  });

/** Wait for a deletion; what is gone already is what was wanted. */
async function gone(code, deleting) {
  try {
    await deleting;
  } catch (error) {
    if (error.code !== code) throw error;
  }
}

function confirm({ title, text, verb, act }) {
  const dialog = byId("confirm");
  const [yes, no, failure] = [byId("confirm-yes"), byId("confirm-no"), byId("confirm-error")];
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  yes.textContent = verb;
  failure.hidden = true;
  dialog.showModal();
  no.focus(); // Enter by habit must not destroy
  return new Promise((resolve) => {
    let done = false;
    no.onclick = () => dialog.close();
    yes.onclick = async () => {
      yes.disabled = true;
      try {
        await act();
        done = true;
        dialog.close();
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        failure.textContent = `${error.title}. ${error.detail}`;
        failure.hidden = false;
      } finally {
        yes.disabled = false;
      }
    };
    dialog.onclose = () => resolve(done);
  });
}
