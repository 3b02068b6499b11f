// Files that `weft compile --target wasm32` writes: a WebAssembly module, and sections with what it is to be linked by
// (weft/runtime/wasm_link.py).
import { WeftError } from "./abi.js";

const MAGIC = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];

function damaged(text) {
  return new WeftError("ExecutableError", `this is no model for WebAssembly: ${text}`);
}

function* sections(file) {
  if (file.length < 8 || MAGIC.some((b, i) => file[i] !== b)) throw damaged("it does not begin as WebAssembly does");
  let at = 8;
  const number = () => {
    let value = 0, shift = 0, b;
    do {
      if (at >= file.length || shift > 28) throw damaged("it is cut short");
      b = file[at++];
      value += (b & 127) * 2 ** shift;
      shift += 7;
    } while (b > 127);
    return value;
  };
  while (at < file.length) {
    const begin = at, kind = file[at++], size = number(), end = at + size, length = kind === 0 ? number() : 0;
    if (end > file.length) throw damaged("it is cut short");
    const name = new TextDecoder().decode(file.subarray(at, at + length));
    yield { kind, begin, end, name, content: file.subarray(at + length, end) };
    at = end;
  }
}

/**
 * The parts of a file: `code` without the sections for the loader, where its addresses are, and the blob of modules.
 */
export function readModelFile(file) {
  let end = 8, link = null, modules = null;
  for (const section of sections(file)) {
    if (section.kind !== 0) end = section.end;
    if (section.name === "weft.link") link = readLink(section.content, end);
    if (section.name === "weft.modules") modules = section.content;
  }
  if (link === null) throw damaged("it has no section weft.link; make it by `weft compile --target wasm32`");
  return { code: file.slice(0, end), link, modules };
}

/** Code whose memory, which it imports with a limit, is shared. */
export function withSharedMemory(code) {
  const entry = [3, ...new TextEncoder().encode("env"), 6, ...new TextEncoder().encode("memory"), 2, 1];
  const at = code.findIndex((_, i) => entry.every((b, k) => code[i + k] === b));
  if (at < 0) throw damaged("its memory cannot be shared; compile it again");
  const shared = code.slice();
  shared[at + entry.length - 1] = 3;
  return shared;
}

/** Code for a further thread: what fills memory and what starts is done. */
export async function forFurtherThreads(code) {
  const done = [8, 11, 12], kept = [code.subarray(0, 8)];
  for (const { kind, begin, end } of sections(code)) if (!done.includes(kind)) kept.push(code.subarray(begin, end));
  return new Uint8Array(await new Blob(kept).arrayBuffer());
}

function readLink(content, end) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength), fixed = 16;
  const n = content.byteLength < fixed ? -1 : view.getUint32(12, true);
  if (content.byteLength !== fixed + 8 * n) throw damaged("its section weft.link is cut short");
  const places = new Uint32Array(2 * n).map((_, i) => view.getUint32(fixed + 4 * i, true));
  for (let i = 0; i < n; ++i) {
    if (places[2 * i] > 4 || places[2 * i + 1] + 5 > end + 1) throw damaged("its section weft.link is damaged");
  }
  return { memoryBytes: view.getUint32(0, true), tableEntries: view.getUint32(4, true), context: view.getUint32(8, true), places };
}

/** Adds what memory and table begin at to the addresses in the code. */
export function relocate(code, places, memoryBase, tableBase) {
  const view = new DataView(code.buffer, code.byteOffset, code.byteLength);
  for (let i = 0; i < places.length; i += 2) {
    const kind = places[i], at = places[i + 1], base = kind === 2 || kind === 3 ? tableBase : memoryBase;
    if (kind % 2 === 1) {
      view.setUint32(at, view.getUint32(at, true) + base, true);
      continue;
    }
    let value = 0;
    for (let k = 0; k < 5; ++k) value |= (code[at + k] & 127) << (7 * k);
    value = (value + base) | 0;
    for (let k = 0; k < 4; ++k) code[at + k] = ((value >> (7 * k)) & 127) | 128;
    code[at + 4] = kind === 4 ? value >>> 28 : (value >> 28) & 127;
  }
  return code;
}
