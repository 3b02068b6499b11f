// Parallel loops of kernels on several threads: workers in one memory, each with instances, a table and a stack of its own.
import { WeftError } from "./abi.js";

// Words of the board, on which the threads agree. `CLAIM` has the number of the loop, and in 16 bits that of its next piece.
const BODY = 0, CONTEXT = 1, PIECES = 2, DONE = 3, FAILED = 4, BELL = 5, TURN = 6, LOCK = 7, COUNTS = 8;
const CLAIM = 0, EXTENT = 1, PIECE = 2, CLOSED = 0xffffn, STOPPED = -2;
const ALONE = /^(malloc|free|aligned_alloc|snprintf|weft_workspace_.*|weft_set_error|weft_arg_error)$/;
export const MOST = 64;
export const inNode = typeof process !== "undefined" && process.versions?.node !== undefined;

export class Board {
  constructor(threads, number = 0, buffer = new SharedArrayBuffer(4 * (COUNTS + MOST) + 64)) {
    Object.assign(this, { threads, number, buffer, busy: number > 0, held: 0 });
    this.big = new BigInt64Array(buffer, 0, 8);
    this.words = new Int32Array(buffer, 64);
  }

  /** What a model calls of the runtime's instance of this thread; one thread at a time what allocates, or raises. */
  imported(exports, name) {
    if (name.startsWith("weft_parallel_f")) return this.run.bind(this, exports.__indirect_function_table);
    if (name === "weft_num_threads") return () => this.threads;
    if (name.startsWith("TVMFFI") && this.number > 0) return () => { throw new Error("a packed function"); };
    if (!ALONE.test(name)) return exports[name];
    return (...args) => {
      while (this.held === 0 && Atomics.compareExchange(this.words, LOCK, 0, 1) !== 0);
      ++this.held;
      try {
        return exports[name](...args);
      } finally {
        if (--this.held === 0) Atomics.store(this.words, LOCK, 0);
      }
    };
  }

  /** Runs a loop as weft_parallel_for does: on all threads, unless this one is in a loop already, or it is short. */
  run(table, body, context, extent, grain) {
    const { words, big } = this, least = grain < 0n ? -grain : grain || 1n, most = BigInt(4 * this.threads);
    const piece = [least, (extent + most - 1n) / most].reduce((a, b) => a > b ? a : b);
    if (extent <= 0n) return 0;
    if (this.busy || extent < 2n * piece) return table.get(body)(0n, extent, context);
    this.busy = true;
    const loop = BigInt.asIntN(64, (Atomics.load(big, CLAIM) | CLOSED) + 1n), pieces = Number((extent + piece - 1n) / piece);
    Atomics.store(big, CLAIM, loop | CLOSED);
    [[BODY, body], [CONTEXT, context], [PIECES, pieces], [DONE, 0], [FAILED, 0]].forEach(([i, v]) => Atomics.store(words, i, v));
    [[EXTENT, extent], [PIECE, piece], [CLAIM, loop]].forEach(([i, v]) => Atomics.store(big, i, v));
    this.ring();
    this.work(table);
    for (let n; (n = Atomics.load(words, DONE)) < pieces;) if (inNode) Atomics.wait(words, DONE, n); // a page may not
    this.busy = false;
    const code = Atomics.load(words, FAILED);
    if (code === STOPPED) {
      throw new WeftError("InternalError", "a parallel loop was stopped: it trapped, or called a packed function, " +
        "which the first thread alone can");
    }
    return code;
  }

  ring() {
    Atomics.add(this.words, BELL, 1);
    Atomics.notify(this.words, BELL);
  }

  /** Takes pieces of a loop until there is none. What was read of it is right where its claim has not changed. */
  work(table) {
    const { words, big } = this;
    for (;;) {
      const claim = Atomics.load(big, CLAIM), index = claim & CLOSED;
      if (index >= BigInt(Atomics.load(words, PIECES))) return;
      const [body, context] = [BODY, CONTEXT].map((i) => Atomics.load(words, i));
      const [extent, piece] = [EXTENT, PIECE].map((i) => Atomics.load(big, i)), end = (index + 1n) * piece;
      if (Atomics.compareExchange(big, CLAIM, claim, claim + 1n) !== claim) continue;
      let code = STOPPED;
      try {
        code = table.get(body)(index * piece, end < extent ? end : extent, context);
      } catch {} // by a trap
      if (code !== 0) Atomics.store(words, FAILED, code);
      ++words[COUNTS + this.number];
      Atomics.add(words, DONE, 1);
      Atomics.notify(words, DONE);
    }
  }

  /** What a worker does until the next message; `turn` is the number of the last one. */
  serve(table, turn) {
    while (Atomics.load(this.words, TURN) === turn) {
      const bell = Atomics.load(this.words, BELL);
      this.work(table);
      if (Atomics.load(this.words, TURN) === turn) Atomics.wait(this.words, BELL, bell);
    }
  }

  /** How many pieces of loops each thread has run. */
  counts() {
    return Array.from(this.words.subarray(COUNTS, COUNTS + this.threads));
  }
}

/** The workers of a runtime; `further` is its code for them, `stackOf` gives the end of a stack. */
export async function startWorkers(threads, further, memory, stackOf) {
  const board = new Board(threads), address = new URL("./worker.js", import.meta.url);
  const Thread = inNode ? (await import("node:worker_threads")).Worker : Worker;
  const workers = Array.from({ length: threads - 1 }, () => new Thread(address, { type: "module" }));
  const tell = async (message) => {
    const turn = Atomics.add(board.words, TURN, 1) + 1;
    board.ring();
    await Promise.all(workers.map((worker, i) => new Promise((resolve, reject) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = ({ data }) => (port1.close(), data === null ? resolve() : reject(new WeftError("InternalError", data)));
      (worker.on ?? worker.addEventListener).call(worker, "error", reject);
      worker.postMessage({ ...message(i + 1), turn, reply: port2 }, [port2]);
    })));
  };
  const module = await WebAssembly.compile(further);
  await tell((number) => ({ module, memory, threads, number, buffer: board.buffer, stack: stackOf() }));
  workers.forEach((worker) => worker.unref?.());
  return { board, tell };
}
