// Running models that Weft compiled to WebAssembly: docs/web.md.
import { WeftError, dtypeOfArray } from "./abi.js";
import { Module, Runtime, Tensor } from "./runtime.js";

export { Module, Tensor, WeftError };

const RUNTIME = new URL("../runtime.wasm", import.meta.url);
const inNode = typeof process !== "undefined" && process.versions?.node !== undefined;
let started = null; // the runtime that all models of the page share

async function bytesOf(source) {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (inNode && (typeof source === "string" ? !/^[a-z]+:\/\//.test(source) : source.protocol === "file:")) {
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(source));
  }
  const response = await fetch(source);
  if (!response.ok) throw new WeftError("ExecutableError", `cannot read ${source}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** Starts the runtime, once; `load` does so by itself, with one thread. */
export async function start(source = RUNTIME, { threads = 1 } = {}) {
  started ??= bytesOf(source).then((bytes) => Runtime.start(bytes, threads));
  try {
    await started;
  } catch (error) {
    started = null;
    throw error;
  }
  runtime = await started;
}

let runtime = null;

function running() {
  if (runtime === null) throw new WeftError("InvalidArgument", "the runtime has not been started: await start() or load() first");
  return runtime;
}

export async function load(source) {
  await start();
  return running().load(await bytesOf(source));
}

export function tensor(array, shape = [array.length], dtype = dtypeOfArray(array)) {
  return running().tensor(array, [...shape], dtype);
}

export function zeros(shape, dtype = "float32") {
  return running().tensor(null, [...shape], dtype);
}

export function threadPieces() {
  return running().pool?.board.counts() ?? [0];
}

export function getGlobalFunction(name) {
  return running().globalFunction(name);
}

export function registerFunction(name, f, { override = false } = {}) {
  running().registerFunction(name, f, override);
}
