// The runtime's WebAssembly instance: what it asks of its host, calls of packed functions, and what JavaScript holds.
import * as abi from "./abi.js";
import { forFurtherThreads, readModelFile, relocate, withSharedMemory } from "./modelfile.js";
import { MOST, startWorkers } from "./threads.js";

const { WeftError } = abi;
const NO_CONTEXT = 0xffffffff;
const INITIAL_PAGES = 256, MOST_PAGES = 65535, STACK_BYTES = 1 << 20;

// Handles of objects that nobody holds any more are given back when the collector says so.
const leftovers = new FinalizationRegistry(({ runtime, handle }) => runtime.exports.TVMFFIObjectDecRef(handle));

/** An object of the runtime, held until `dispose` or until nobody refers to it. */
class Held {
  constructor(runtime, handle) {
    this.runtime = runtime;
    this.handle = handle;
    leftovers.register(this, { runtime, handle }, this);
  }

  /** The handle, where the object is still held. */
  live() {
    if (this.handle === 0) throw new WeftError("InvalidArgument", `this ${this.constructor.name} was disposed of`);
    return this.handle;
  }

  dispose() {
    if (this.handle === 0) return;
    leftovers.unregister(this);
    this.runtime.exports.TVMFFIObjectDecRef(this.handle);
    this.handle = 0;
  }
}

export class Tensor extends Held {
  constructor(runtime, handle) {
    super(runtime, handle);
    const { shape, dtype } = runtime.memory.tensor(handle);
    this.shape = Object.freeze(shape);
    this.dtype = dtype;
  }

  get size() {
    return this.shape.reduce((a, b) => a * b, 1);
  }

  /** The elements where they lie. The array is of no use after the memory has grown: take it anew after each call. */
  get data() {
    const { array } = abi.dtypeInfo(this.dtype);
    return new array(this.runtime.memory.buffer, this.runtime.memory.tensor(this.live()).at, this.size);
  }

  /** A copy of the elements. */
  toTypedArray() {
    return this.data.slice();
  }
}

export class Module extends Held {
  getFunction(name) {
    const { exports, memory } = this.runtime;
    const handle = memory.onStack(16, (out) => memory.withText(name, (at) => {
      this.runtime.check(exports.weft_host_lookup(this.live(), at, out));
      return memory.u32(out);
    }));
    if (handle === 0) throw new WeftError("InvalidArgument", `this module has no function '${name}'`);
    return this.runtime.functionOf(handle);
  }
}

function isPlain(value) {
  return typeof value === "number" || typeof value === "bigint" || typeof value === "boolean" || value == null;
}

export class Runtime {
  /** Compiles and starts the runtime; its memory is shared with workers where there are several threads. */
  static async start(code, threads) {
    if (!Number.isInteger(threads) || threads < 1 || threads > MOST) {
      throw new WeftError("InvalidArgument", `threads are a number from 1 to ${MOST}, found ${threads}`);
    }
    const shared = threads > 1;
    if (shared && (typeof SharedArrayBuffer === "undefined" || globalThis.crossOriginIsolated === false)) {
      throw new WeftError("InvalidArgument", "threads share memory: serve the page with Cross-Origin-Opener-Policy: " +
        "same-origin and Cross-Origin-Embedder-Policy: require-corp");
    }
    const memory = new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum: MOST_PAGES, shared });
    const own = shared ? withSharedMemory(code) : code, runtime = new Runtime(await WebAssembly.compile(own), memory);
    const stackOf = () => runtime.memory.allocate(STACK_BYTES) + STACK_BYTES - 16;
    if (shared) runtime.pool = await startWorkers(threads, await forFurtherThreads(own), memory, stackOf);
    return runtime;
  }

  constructor(module, memory) {
    this.pool = null;
    this.memory = null;
    this.functions = new Map(); // JavaScript functions by the number that the runtime has
    this.numbers = 0;
    this.thrown = null; // what a callback threw last, until it arrives on this side again
    const imports = { env: { memory }, weft: { call: this.#callback.bind(this), drop: (n) => this.functions.delete(n) } };
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      if (!(name in (imports[from] ??= {}))) imports[from][name] = this.#system(name);
    }
    const instance = new WebAssembly.Instance(module, imports);
    this.exports = instance.exports;
    this.memory = new abi.Memory(this.exports);
    this.exports._initialize();
  }

  /** What the C library asks of the system: a clock, and where messages go; there are no files and no environment. */
  #system(name) {
    const done = 0, badFile = 8;
    const calls = {
      clock_time_get: (id, precision, at) => {
        const ns = id === 0 ? BigInt(Date.now()) * 1000000n : BigInt(Math.round(performance.now() * 1e6));
        this.memory.view.setBigInt64(at, ns, true);
        return done;
      },
      environ_sizes_get: (count, bytes) => {
        this.memory.view.setUint32(count, 0, true);
        this.memory.view.setUint32(bytes, 0, true);
        return done;
      },
      environ_get: () => done,
      fd_write: (file, parts, n, written) => {
        let text = "", total = 0;
        for (let i = 0; i < n; ++i) {
          const size = this.memory.u32(parts + 8 * i + 4);
          text += this.memory.text(this.memory.u32(parts + 8 * i), size);
          total += size;
        }
        console.error(text.replace(/\n$/, ""));
        this.memory.view.setUint32(written, total, true);
        return done;
      },
      proc_exit: (code) => {
        throw new WeftError("InternalError", `the runtime ended with code ${code}`);
      },
    };
    return calls[name] ?? (() => badFile);
  }

  /** Throws what a call raised, where its code is not 0. */
  check(code) {
    if (code === 0) return;
    const { exports, memory } = this;
    const handle = memory.onStack(16, (out) => {
      exports.TVMFFIErrorMoveFromRaised(out);
      return memory.u32(out);
    });
    if (handle === 0) throw new WeftError("InternalError", `a call failed with code ${code} and said nothing`);
    const { kind, text, trace } = memory.error(handle);
    exports.TVMFFIObjectDecRef(handle);
    const cause = this.thrown !== null && text === this.thrown.text ? this.thrown.error : undefined;
    this.thrown = null;
    const error = new WeftError(kind, text, { cause });
    error.trace = trace;
    throw error;
  }

  /** Writes a value at `at`; what was made for it goes to `made`, to be given back after the call. */
  write(at, value, made) {
    const { memory, exports } = this;
    const object = (kind, handle) => memory.setAny(at, kind, (view, p) => view.setUint32(p, handle, true));
    if (value instanceof Tensor) return object(abi.TENSOR, this.#own(value).live());
    if (value instanceof Module) return object(abi.MODULE, this.#own(value).live());
    if (typeof value === "function") {
      const known = handles.get(value);
      if (known !== undefined) return object(abi.FUNCTION, this.#own(known).live());
      made.push(this.#functionHandle(value));
      return object(abi.FUNCTION, made.at(-1));
    }
    if (typeof value === "string") {
      memory.withText(value, (text, n) => memory.onStack(16, (name) => {
        memory.view.setUint32(name, text, true);
        memory.view.setUint32(name + 4, n, true);
        memory.setAny(at, abi.NONE);
        this.check(exports.TVMFFIStringFromByteArray(name, at));
      }));
      if (memory.kindOf(at) >= abi.FIRST_OBJECT) made.push(memory.u32(at + 8));
      return;
    }
    if (Array.isArray(value)) {
      made.push(this.#array(value, made));
      return object(abi.ARRAY, made.at(-1));
    }
    if (!isPlain(value)) {
      const found = value?.constructor?.name ?? typeof value;
      throw new WeftError("InvalidArgument", `a packed function takes tensors, numbers, strings, functions, modules and ` +
        `arrays of them, found ${found}; make a tensor of a typed array by tensor(array, shape)`);
    }
    if (value == null) return memory.setAny(at, abi.NONE);
    if (typeof value === "boolean") return memory.setAny(at, abi.BOOL, (v, p) => v.setBigInt64(p, BigInt(value), true));
    if (typeof value === "bigint" || Number.isSafeInteger(value)) {
      if (BigInt.asIntN(64, BigInt(value)) !== BigInt(value)) {
        throw new WeftError("InvalidArgument", `${value} does not fit into 64 bits`);
      }
      return memory.setAny(at, abi.INT, (v, p) => v.setBigInt64(p, BigInt(value), true));
    }
    memory.setAny(at, abi.FLOAT, (v, p) => v.setFloat64(p, value, true));
  }

  #own(held) {
    if (held.runtime !== this) throw new WeftError("InvalidArgument", "this value belongs to another runtime");
    return held;
  }

  #array(values, made) {
    return this.memory.onStack(abi.ANY_BYTES * values.length + 16, (at) => {
      values.forEach((v, i) => this.write(at + 16 + abi.ANY_BYTES * i, v, made));
      this.check(this.exports.weft_host_array(at + 16, values.length, at));
      return this.memory.u32(at);
    });
  }

  /** The value at `at`, whose reference the caller gives up where `owned`. */
  read(at, owned) {
    const { memory, exports } = this, kind = memory.kindOf(at), value = memory.u32(at + 8);
    if (kind === abi.NONE) return null;
    if (kind === abi.BOOL) return memory.view.getBigInt64(at + 8, true) !== 0n;
    if (kind === abi.FLOAT) return memory.view.getFloat64(at + 8, true);
    if (kind === abi.INT) {
      const wide = memory.view.getBigInt64(at + 8, true);
      return Number.isSafeInteger(Number(wide)) ? Number(wide) : wide;
    }
    if (kind === abi.SMALL_STRING || kind === abi.RAW_STRING) return memory.stringOf(at);
    const classes = { [abi.TENSOR]: Tensor, [abi.MODULE]: Module };
    if (kind in classes || kind === abi.FUNCTION) {
      if (!owned) exports.TVMFFIObjectIncRef(value);
      return kind === abi.FUNCTION ? this.functionOf(value) : new classes[kind](this, value);
    }
    try {
      if (kind === abi.STRING) return memory.stringOf(at);
      if (kind === abi.SHAPE) return memory.shape(value);
      if (kind === abi.ARRAY) {
        const items = memory.array(value);
        return Array.from({ length: items.n }, (_, i) => this.read(items.at + abi.ANY_BYTES * i, false));
      }
      throw new WeftError("InvalidArgument", `JavaScript has no value for the kind ${kind} of tvm-ffi`);
    } finally {
      if (owned && kind >= abi.FIRST_OBJECT) exports.TVMFFIObjectDecRef(value);
    }
  }

  /** Calls a packed function by its handle. */
  call(handle, args) {
    const { memory, exports } = this, made = [];
    return memory.onStack(abi.ANY_BYTES * (args.length + 1), (at) => {
      const result = at + abi.ANY_BYTES * args.length;
      try {
        args.forEach((value, i) => this.write(at + abi.ANY_BYTES * i, value, made));
        memory.setAny(result, abi.NONE);
        this.check(exports.TVMFFIFunctionCall(handle, at, args.length, result));
        return this.read(result, true);
      } finally {
        for (const object of made) exports.TVMFFIObjectDecRef(object);
      }
    });
  }

  /** A packed function as a JavaScript function, which holds it. */
  functionOf(handle) {
    const held = new Held(this, handle);
    const call = (...args) => this.call(held.live(), args);
    call.dispose = () => held.dispose();
    handles.set(call, held);
    return call;
  }

  #functionHandle(f) {
    const number = ++this.numbers;
    this.functions.set(number, f);
    return this.memory.onStack(16, (out) => {
      this.check(this.exports.weft_host_function(number, out));
      return this.memory.u32(out);
    });
  }

  /** A call from the other side: no exception may pass through the runtime's own code. */
  #callback(number, args, n, ret) {
    const made = [];
    try {
      const values = Array.from({ length: n }, (_, i) => this.read(args + abi.ANY_BYTES * i, false));
      const result = this.functions.get(number)(...values);
      if (typeof result?.then === "function") {
        throw new WeftError("InvalidArgument", "a packed function answers at once; this one returned a promise");
      }
      this.write(ret, result, made);
      // The result owns what it refers to.
      const kind = this.memory.kindOf(ret), object = this.memory.u32(ret + 8);
      if (kind >= abi.FIRST_OBJECT) this.exports.TVMFFIObjectIncRef(object);
      return 0;
    } catch (error) {
      const kind = error instanceof WeftError ? error.kind : error?.name ?? "Error";
      const text = String(error?.message ?? error);
      this.thrown = { error, text };
      this.memory.withText(kind, (k) => this.memory.withText(text, (m) => this.exports.TVMFFIErrorSetRaisedFromCStr(k, m)));
      return -1;
    } finally {
      for (const object of made) this.exports.TVMFFIObjectDecRef(object);
    }
  }

  /** A global function by its name. */
  globalFunction(name) {
    const { memory, exports } = this;
    const handle = memory.onStack(32, (at) => memory.withText(name, (text, n) => {
      memory.view.setUint32(at, text, true);
      memory.view.setUint32(at + 4, n, true);
      this.check(exports.TVMFFIFunctionGetGlobal(at, at + 16));
      return memory.u32(at + 16);
    }));
    if (handle === 0) throw new WeftError("InvalidArgument", `there is no global function '${name}'`);
    return this.functionOf(handle);
  }

  registerFunction(name, f, override) {
    const { memory, exports } = this, handle = this.#functionHandle(f);
    try {
      memory.onStack(16, (at) => memory.withText(name, (text, n) => {
        memory.view.setUint32(at, text, true);
        memory.view.setUint32(at + 4, n, true);
        this.check(exports.TVMFFIFunctionSetGlobal(at, handle, override ? 1 : 0));
      }));
    } finally {
      exports.TVMFFIObjectDecRef(handle);
    }
  }

  tensor(array, shape, dtype) {
    const { memory, exports } = this, info = abi.dtypeInfo(dtype), size = shape.reduce((a, b) => a * b, 1);
    if (!shape.every((d) => Number.isSafeInteger(d) && d >= 0)) {
      throw new WeftError("InvalidArgument", `a shape has whole numbers from 0 on, found [${shape}]`);
    }
    if (array !== null && (!(array instanceof info.array) && !(info.array === Uint8Array && array.BYTES_PER_ELEMENT === 1))) {
      throw new WeftError("InvalidArgument", `a tensor of ${dtype} is made of a ${info.array.name}, found a ${array.constructor.name}`);
    }
    if (array !== null && array.length !== size) {
      throw new WeftError("InvalidArgument", `the shape [${shape}] has ${size} elements, the array ${array.length}`);
    }
    const handle = memory.onStack(8 * shape.length, (at) => {
      shape.forEach((d, i) => memory.view.setBigInt64(at + 8 * i, BigInt(d), true));
      return exports.weft_host_tensor(at, shape.length, info.packed);
    });
    if (handle === 0) this.check(-1);
    const made = new Tensor(this, handle);
    if (array === null) made.data.fill(info.bytes === 8 && info.array !== Float64Array ? 0n : 0);
    else made.data.set(array);
    return made;
  }

  /** Links a model's file with the runtime and returns its root module. */
  async load(file) {
    const { memory, exports } = this, { code, link, modules } = readModelFile(file);
    const table = exports.__indirect_function_table;
    const base = memory.allocate(link.memoryBytes + 1), first = table.grow(link.tableEntries);
    const { pool } = this, placed = relocate(pool === null ? code : withSharedMemory(code), link.places, base, first);
    const compiled = await WebAssembly.compile(placed);
    const env = {}, missing = [];
    for (const { name } of WebAssembly.Module.imports(compiled)) {
      if (name in exports) env[name] = pool === null ? exports[name] : pool.board.imported(exports, name);
      else missing.push(name);
    }
    if (missing.length > 0) {
      throw new WeftError("ExecutableError", `the model needs functions that the runtime lacks: ${missing.join(", ")}`);
    }
    const instance = await WebAssembly.instantiate(compiled, { env });
    if (pool !== null) {
      const model = await WebAssembly.compile(await forFurtherThreads(placed)), tableEnd = first + link.tableEntries;
      await pool.tell(() => ({ model, tableEnd }));
    }
    const entries = Object.entries(instance.exports), start = table.grow(entries.length);
    entries.forEach(([, f], i) => table.set(start + i, f));
    const names = entries.map(([name]) => name.replace("__tvm_ffi_", ""));
    const context = link.context === NO_CONTEXT ? 0 : base + link.context;
    const make = this.globalFunction("weft.jit_module");
    const kernels = make(names, entries.map((_, i) => start + i), [], null, context);
    make.dispose();
    if (modules === null) return kernels;
    const blob = memory.allocate(modules.length);
    memory.bytes(blob, modules.length).set(modules);
    const handle = memory.onStack(16, (out) => {
      this.check(exports.weft_host_modules(blob, modules.length, kernels.live(), out));
      return memory.u32(out);
    });
    return new Module(this, handle);
  }
}

const handles = new WeakMap(); // of the functions that functionOf made
