// The page "/": uploads and imports above, the list of runs and traces below.
import { mayWrite } from "../api.js";
import { startImports } from "./imports.js";
import { startList } from "./list.js";
import { showStart } from "./start.js";
import { startUploads } from "./uploads.js";

showStart();
const refresh = startList();
if (mayWrite) {
  startUploads({ onStored: refresh });
  startImports({ onTaken: refresh });
}
