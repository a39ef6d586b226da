// Panels that are folded until they are needed. The fragment of the address opens one: `#cut` the panel with that id.

/** Open the panel that the address names, and scroll to it. */
export function openFold() {
  const panel = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(panel instanceof HTMLDetailsElement) || panel.hidden) return;
  panel.open = true;
  panel.scrollIntoView();
}

window.addEventListener("hashchange", openFold);
