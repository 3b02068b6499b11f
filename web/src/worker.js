// A thread: instances of the runtime and of models in the memory of the others, for pieces of loops (threads.js).
import { Board, inNode } from "./threads.js";

const port = inNode ? (await import("node:worker_threads")).parentPort : self;
let board = null, exports = null;

function begin({ module, memory, threads, number, buffer, stack }) {
  const imports = { env: { memory } };
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] ??= () => -1; // the first thread alone speaks to the system
  }
  exports = new WebAssembly.Instance(module, imports).exports;
  exports.__stack_pointer.value = stack;
  board = new Board(threads, number, buffer);
}

function add({ model, tableEnd }) {
  const table = exports.__indirect_function_table, env = {};
  if (table.length < tableEnd) table.grow(tableEnd - table.length);
  for (const { name } of WebAssembly.Module.imports(model)) env[name] = board.imported(exports, name);
  new WebAssembly.Instance(model, { env });
}

port.addEventListener("message", ({ data }) => {
  let answer = null;
  try {
    (data.model === undefined ? begin : add)(data);
  } catch (error) {
    answer = `a worker cannot run this: ${error}`;
  }
  data.reply.postMessage(answer);
  if (board !== null) board.serve(exports.__indirect_function_table, data.turn);
});
port.start?.();
