// "Are you sure?", with the deed done while the dialog is open, so that its failure is told where it was asked.
import { deleteTrace, Problem } from "./api.js";
import { byId } from "./dom.js";

/** Ask whether to delete a trace, and do it. Resolves to whether it is gone. */
export function confirmDelete(trace) {
  return confirm({
    title: "Delete this trace?",
    text: `“${trace.name}” goes away with everything made from it. This cannot be undone.`,
    verb: "Delete",
    act: async () => {
      try {
        await deleteTrace(trace.id);
      } catch (error) {
        if (error.code !== "unknown_trace") throw error; // gone already is what was wanted
      }
    },
  });
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
