// Which arguments of events the engines have that this page has started: with fewer, they load sooner.

let args = "all";

export const chosenArgs = () => args;

/** Choose, and have every link of the page that opens the UI lead to such an engine. */
export function chooseArgs(value) {
  args = value;
  for (const link of document.querySelectorAll('a[href*="/perfetto"]')) {
    const url = new URL(link.href);
    if ((url.searchParams.get("args") ?? "all") === args) continue;
    if (args === "all") url.searchParams.delete("args");
    else url.searchParams.set("args", args);
    link.href = url.href;
  }
}
