// The page "/": uploads above, the list below.
import { root } from "./api.js";
import { byId, copyButton } from "./dom.js";
import { startList } from "./list.js";
import { startUploads } from "./upload.js";

const token = document.querySelector(".logout") ? '-H "Authorization: Bearer $TRACEDOCK_TOKEN" ' : "";
const curl = `curl ${token}-T rank0.pt.trace.json.gz ${location.origin}${root}/api/v1/traces/`;
byId("curl").textContent = curl;
byId("curl-copy").replaceWith(copyButton(curl, "Copy the command"));

const refresh = startList();
startUploads({ onStored: refresh });
