// What a form and a redirect can't do: keep what stands behind the # of an address, and pass who is logged in already.
// A browser does not send its cookie where another site's link leads, but it does when this page asks.
import { api, root } from "./api.js";
import { byId } from "./dom.js";

const next = byId("login-next");
next.value += location.hash;

const failed = new URLSearchParams(location.search).has("failed");
if (!failed && (await fetch(api("access"))).ok) {
  const wanted = new URL(next.value, location.origin);
  location.replace(wanted.origin === location.origin ? wanted : `${root}/`);
}
