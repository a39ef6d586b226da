// Confirmation dialogs. The action runs while the dialog is open, so that a failure can be shown in it.
import { deleteTrace, Problem, api, send } from "./api.js";
import { byId } from "./dom.js";
import { plural } from "./format.js";

/**
 * Delete a trace after confirmation. Resolves to true if it is deleted.
 * @param {{ id: string, name: string }} trace
 * @returns {Promise<boolean>}
 */
export function confirmDelete(trace) {
  return confirm({
    title: "Delete this trace?",
    text: `“${trace.name}” and all files made from it are deleted. This cannot be undone.`,
    label: "Delete",
    action: () => ignoreIfGone("unknown_trace", deleteTrace(trace.id)),
  });
}

/**
 * Dissolve a group after confirmation; its traces stay. Resolves to true if it is dissolved.
 * @param {Group} group
 */
export const confirmDissolve = (group) =>
  confirm({
    title: "Dissolve this group?",
    text: `“${group.name}” is removed; its ${plural(group.traces, "trace")} stay, without a group. Files that are attached to the run itself are deleted.`,
    label: "Dissolve",
    action: () => ignoreIfGone("unknown_group", send("DELETE", api("groups", group.id))),
  });

/**
 * Delete a group with all of its traces after confirmation. Resolves to true if it is deleted.
 * @param {Pick<Group, "id" | "name" | "traces">} group
 */
export const confirmDeleteGroup = (group) =>
  confirm({
    title: `Delete ${plural(group.traces, "trace")}?`,
    text: `“${group.name}” is deleted with all of its traces and all files made from them. This cannot be undone.`,
    label: "Delete all",
    action: () => ignoreIfGone("unknown_group", send("DELETE", `${api("groups", group.id)}?traces=true`)),
  });

/**
 * Wait for a deletion. An error with this code counts as success: the trace or group was already deleted.
 * @param {string} code
 * @param {Promise<unknown>} deletion
 */
async function ignoreIfGone(code, deletion) {
  try {
    await deletion;
  } catch (error) {
    if (error.code !== code) throw error;
  }
}

/**
 * Ask in the dialog, and run the action on confirmation.
 * Resolves to true if the action succeeded, or to false if it was cancelled.
 * @param {{ title: string, text: string, label: string, action: () => Promise<void> }} question
 * @returns {Promise<boolean>}
 */
function confirm({ title, text, label, action }) {
  const dialog = byId("confirm");
  const [yes, no, failure] = [byId("confirm-yes"), byId("confirm-no"), byId("confirm-error")];
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  yes.textContent = label;
  failure.hidden = true;
  dialog.showModal();
  no.focus(); // Enter pressed by habit must not delete
  return new Promise((resolve) => {
    let done = false;
    no.onclick = () => dialog.close();
    yes.onclick = async () => {
      yes.disabled = true;
      try {
        await action();
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
