// Files in dropped or chosen folders, and the runs that they make.
import { byId } from "../dom.js";

/** @typedef {{ file: File, path: string }} PathFile a file, and its path in the dropped folder, or its name */
/** @typedef {{ file: File, path: string, name: string, group: string | null }} UploadItem */
/** @typedef {{ run: string | null, items: UploadItem[] }} Batch files of one run, or files of no run */

const collator = new Intl.Collator("en", { numeric: true });
const OF_RANK = /^((rank|worker|node|host|gpu|local_rank)[-_.]?)?\d+$/i; // a folder of one rank
const GROUP_NAME_MAX = 255; // bytes

/** Ends of the names of traces in folders. */
export const suffixes = () => (byId("drop-zone").dataset.suffixes ?? "").split(" ");

/**
 * Read the files of a drop; folders are read with all folders in them. Call it while the event is dispatched.
 * @param {DataTransfer} transfer
 * @returns {Promise<PathFile[]>}
 */
export async function filesOfDrop(transfer) {
  const items = [...transfer.items].filter(({ kind }) => kind === "file");
  const entries = items.map((item) => ({ entry: item.webkitGetAsEntry?.() ?? null, file: item.getAsFile() }));
  /** @type {PathFile[]} */
  const files = [];
  for (const { entry, file } of entries) {
    if (entry?.isDirectory) await readFolder(/** @type {FileSystemDirectoryEntry} */ (entry), files);
    else if (file) files.push({ file, path: file.name });
  }
  return files;
}

/**
 * Return the files of an input; those of a chosen folder have their paths in it.
 * @param {HTMLInputElement} input
 * @returns {PathFile[]}
 */
export const filesOfInput = (input) => [...(input.files ?? [])].map((file) => ({ file, path: file.webkitRelativePath || file.name }));

/**
 * @param {FileSystemDirectoryEntry} folder
 * @param {PathFile[]} files receives the files
 */
async function readFolder(folder, files) {
  const reader = folder.createReader();
  for (;;) {
    /** @type {FileSystemEntry[]} */
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)); // some at a time
    if (entries.length === 0) return;
    for (const entry of entries) {
      if (entry.isDirectory) await readFolder(/** @type {FileSystemDirectoryEntry} */ (entry), files);
      else {
        /** @type {File} */
        const file = await new Promise((resolve, reject) => /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject));
        files.push({ file, path: entry.fullPath.replace(/^\//, "") });
      }
    }
  }
}

/**
 * Sort files into batches: two or more traces of a folder are a run with the folder's name. Folders that are named after a
 * rank belong to the folder around them. Files in folders that are not named like traces are left out.
 * @param {PathFile[]} files
 * @returns {{ batches: Batch[], leftOut: string[] }}
 */
export function batchesOf(files) {
  /** @param {PathFile} file */
  const isTaken = ({ path }) => !path.includes("/") || suffixes().some((suffix) => path.toLowerCase().endsWith(suffix));
  /** @type {Map<string, PathFile[]>} */
  const byFolder = new Map();
  for (const file of files.filter(isTaken).sort((a, b) => collator.compare(a.path, b.path))) {
    const folder = runFolderOf(file.path);
    byFolder.set(folder, [...(byFolder.get(folder) ?? []), file]);
  }
  /** @type {Batch[]} */
  const runs = [];
  /** @type {PathFile[]} */
  const single = [];
  for (const [folder, members] of byFolder) {
    if (folder && members.length > 1) runs.push({ run: groupNameOf(folder), items: itemsOf(members, groupNameOf(folder)) });
    else single.push(...members);
  }
  const batches = single.length > 0 ? [...runs, { run: null, items: itemsOf(single, null) }] : runs;
  return { batches, leftOut: files.filter((file) => !isTaken(file)).map(({ path }) => path) };
}

/**
 * The folder of a file, without the folders at its end that are named after a rank; "" for a file of no folder.
 * @param {string} path
 */
function runFolderOf(path) {
  const folders = path.split("/").slice(0, -1);
  while (folders.length > 1 && OF_RANK.test(folders[folders.length - 1])) folders.pop();
  return folders.join("/");
}

/**
 * Make a valid name of a group of a folder's path.
 * @param {string} folder
 */
function groupNameOf(folder) {
  const plain = folder.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "_").replace(/[^\S ]/gu, " ");
  const bytes = new TextEncoder().encode(plain);
  const short = bytes.length <= GROUP_NAME_MAX ? plain : new TextDecoder().decode(bytes.slice(-GROUP_NAME_MAX)).replaceAll("\ufffd", "");
  return short.trim() || "folder";
}

/**
 * Name the traces after their files; files of one name also after their folders.
 * @param {PathFile[]} files
 * @param {string | null} group
 * @returns {UploadItem[]}
 */
function itemsOf(files, group) {
  const names = files.map(({ file }) => file.name);
  return files.map(({ file, path }) => {
    const isShared = names.filter((name) => name === file.name).length > 1;
    const folder = path.split("/").at(-2);
    return { file, path, group, name: isShared && folder ? `${folder}.${file.name}` : file.name };
  });
}
