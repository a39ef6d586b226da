// Keeps the fragment of the address through the login, and skips the login if the browser is logged in already.
// A browser that follows a link of another site sends no cookie; the request of this page does.
import { api, root } from "./api.js";
import { byId } from "./dom.js";

const next = byId("login-next");
next.value += location.hash;

const hasFailed = new URLSearchParams(location.search).has("failed");
if (!hasFailed && (await fetch(api("access"))).ok) {
  const wanted = new URL(next.value, location.origin);
  location.replace(wanted.origin === location.origin ? wanted : `${root}/`);
}
