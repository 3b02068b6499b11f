// A page as a server of remote calls: it joins a proxy over a WebSocket (docs/web.md). weft/rpc/codec.py has the packets.
import { Module, Tensor, WeftError, getGlobalFunction, load, start, tensor, zeros } from "./index.js";

const MAGIC = 0xff271, MAX_KEY = 4096, MAX_PACKET = 2 ** 30, VERSION = "0.8.0", RETRY_MS = 2000;
const SHUTDOWN = 1, INIT = 2, CALL = 3, RETURN = 4, EXCEPTION = 5, COPY_FROM = 6, COPY_TO = 7, COPY_ACK = 8;
const GLOBAL_FUNCTION = 9, FREE_HANDLE = 10, SET_DEVICE = 11, ATTRIBUTE = 12, ALLOCATE = 13, FREE_DATA = 14, SYNC = 15;
const COPY_AMONG = 16, ALLOCATE_TENSOR = 17, CREATE_STREAM = 18, FREE_STREAM = 19, SET_STREAM = 20;
const CPU = 1, FUNCTION = 68, TENSOR = 70, MODULE = 73, OBJECT = 64;
const CODES = { int: 0, uint: 1, float: 2, bfloat: 4, bool: 6 };
const text = new TextDecoder(), utf8 = new TextEncoder();

class Malformed extends Error {}

/** A number that stands for what this side keeps, behind the index of its type. */
class Handle {
  constructor(kind, number) {
    Object.assign(this, { kind, number });
  }
}

function dtypeOf([code, bits, low, high]) {
  const name = Object.keys(CODES).find((n) => CODES[n] === code);
  if (name === undefined || low + 256 * high !== 1) throw new WeftError("InvalidArgument", `this server has no dtype of code ${code}, ${bits} bits`);
  return name === "bool" ? name : name + bits;
}

const bytesOf = (dtype) => (dtype === "bool" ? 1 : Number(/\d+$/.exec(dtype)[0]) / 8);
const countOf = (shape) => shape.reduce((a, b) => a * b, 1);

/** Reads the values of a packet. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  take(n) {
    if (!(n <= this.bytes.length - this.at)) throw new Malformed(`${n} bytes where ${this.bytes.length - this.at} follow`);
    this.at += n;
    return this.at - n;
  }

  i32() { return this.view.getInt32(this.take(4), true); }
  f64() { return this.view.getFloat64(this.take(8), true); }
  u64() { return Number(this.view.getBigUint64(this.take(8), true)); }
  slice(n) { return this.bytes.subarray(this.take(n), this.at); }

  i64() {
    const value = this.view.getBigInt64(this.take(8), true);
    return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  }

  tensor() {
    const data = this.u64(), device = [this.i32(), this.i32()], rank = this.i32(), dtype = this.slice(4);
    if (rank < 0 || rank > 64) throw new Malformed(`a tensor of rank ${rank}`);
    return { data, device, dtype, shape: Array.from({ length: rank }, () => Number(this.i64())), offset: this.u64(), isTensor: true };
  }

  value() {
    const kind = this.i32();
    if (kind === 0) return null;
    if (kind === 1) return this.i64();
    if (kind === 2) return this.i64() !== 0;
    if (kind === 3) return this.f64();
    if (kind === 4 || kind === FUNCTION || kind === MODULE) return new Handle(kind, this.u64());
    if (kind === 5) return dtypeOf(this.slice(8));
    if (kind === 6) return [this.i32(), this.i32()];
    if (kind === 7) return this.tensor();
    if (kind === 8) return text.decode(this.slice(this.u64()));
    if (kind === 9) return this.slice(this.u64()).slice();
    const object = kind >= OBJECT || kind === 11 || kind === 12 ? this.i32() : -1;
    if (object === 115) return new Handle(OBJECT, this.u64());
    if (object === 65) return text.decode(this.slice(this.u64()));
    if (object === 66) return this.slice(this.u64()).slice();
    throw new Malformed(`a value of type ${kind}`);
  }

  values() {
    const n = this.i32();
    if (n < 0 || n > this.bytes.length) throw new Malformed(`${n} values`);
    const found = Array.from({ length: n }, () => this.value());
    if (this.at !== this.bytes.length) throw new Malformed("bytes behind the values");
    return found;
  }
}

function packed(...parts) { // [size, value]: a number of 4 or 8 bytes, "f" a float; or bytes as they are
  const size = parts.reduce((n, p) => n + (p instanceof Uint8Array ? p.length : p[0] === 4 ? 4 : 8), 0);
  const out = new Uint8Array(size), view = new DataView(out.buffer);
  let at = 0;
  for (const part of parts) {
    if (part instanceof Uint8Array) {
      out.set(part, at);
      at += part.length;
    } else if (part[0] === 4) {
      view.setInt32(at, part[1], true);
      at += 4;
    } else {
      if (part[0] === "f") view.setFloat64(at, part[1], true);
      else view.setBigInt64(at, BigInt.asIntN(64, BigInt(part[1])), true);
      at += 8;
    }
  }
  return out;
}

function encoded(value) {
  if (value == null) return packed([4, 0]);
  if (typeof value === "boolean") return packed([4, 2], [8, Number(value)]);
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return packed([4, 1], [8, value]);
  if (typeof value === "number") return packed([4, 3], ["f", value]);
  if (value instanceof Handle) return packed([4, 4], [8, value.number]);
  if (value instanceof Uint8Array) return packed([4, 9], [8, value.length], value);
  if (typeof value === "string") {
    const bytes = utf8.encode(value);
    return packed([4, 8], [8, bytes.length], bytes);
  }
  const { number, dtype, shape } = value, bits = dtype === "bool" ? 8 : 8 * bytesOf(dtype);
  const name = packed([4, CODES[dtype.replace(/\d+$/, "")] | (bits << 8) | (1 << 16)]);
  return packed([4, 7], [8, number], [4, CPU], [4, 0], [4, shape.length], name, ...shape.map((d) => [8, d]), [8, 0]);
}

const packet = (code, ...parts) => packed([8, 4 + parts.reduce((n, p) => n + p.length, 0)], [4, code], ...parts);
const answer = (...values) => packet(RETURN, packed([4, values.length]), ...values.map(encoded));

/** What the other side sent, read by number of bytes; null at the end. */
class Stream {
  constructor(socket) {
    this.chunks = [];
    this.size = 0;
    this.wake = () => {};
    this.open = true;
    socket.addEventListener("message", ({ data }) => {
      this.chunks.push(new Uint8Array(data));
      this.size += data.byteLength;
      this.wake();
    });
    socket.addEventListener("close", () => {
      this.open = false;
      this.wake();
    });
  }

  async read(n) {
    while (this.size < n) {
      if (!this.open) return null;
      await new Promise((go) => (this.wake = go));
    }
    const out = new Uint8Array(n);
    for (let at = 0; at < n;) {
      const part = this.chunks[0].subarray(0, n - at);
      out.set(part, at);
      at += part.length;
      if (part.length === this.chunks[0].length) this.chunks.shift();
      else this.chunks[0] = this.chunks[0].subarray(part.length);
    }
    this.size -= n;
    return out;
  }
}

const viewed = (whole, shape, dtype, offset) => getGlobalFunction("weft.tensor_view")(whole, shape, dtype, offset);

/** The same elements, for who keeps them when the client has let go of its own. */
const again = (value) => (value instanceof Tensor ? viewed(value, [...value.shape], value.dtype, 0) : value);

/** An executable's functions as a client's virtual machine asks for them. */
function machine(module) {
  const inputs = {}, outputs = {};
  const output = (name, path) => path.reduce((found, i) => found[i], outputs[name]);
  return {
    vm_initialization: () => null,
    set_input: (name, ...args) => void (inputs[name] = args.map(again)),
    invoke_stateful: (name) => void (outputs[name] = module.getFunction(name)(...(inputs[name] ?? []))),
    get_output: (name, ...path) => again(output(name, path)),
    get_output_arity: (name, ...path) => (Array.isArray(output(name, path)) ? output(name, path).length : -1),
    isMachine: module,
  };
}

/** One client: what it keeps here, and the answer to each packet. */
class Session {
  constructor() {
    this.objects = new Map();
    this.next = 4096;
    this.files = new Map();
    this.ready = false;
    const files = this.files;
    const file = (name) => {
      if (!files.has(name)) throw new WeftError("InvalidArgument", `there is no file '${name}'`);
      return files.get(name);
    };
    this.functions = {
      "tvm.rpc.server.upload": (name, data) => void files.set(name, typeof data === "string" ? utf8.encode(data) : data),
      "tvm.rpc.server.download": file,
      "tvm.rpc.server.remove": (name) => void (file(name), files.delete(name)),
      "tvm.rpc.server.listdir": () => [...files.keys()].sort().join(),
      "tvm.rpc.server.load_module": (name) => load(file(name)),
      "tvm.rpc.server.ModuleGetFunction": (module, name) => this.functionOf(module, name),
      "runtime.RPCTimeEvaluator": (module, name, kind, index, ...options) =>
        timed(module === null ? getGlobalFunction(name) : this.functionOf(module, name), ...options),
    };
  }

  functionOf(module, name) {
    if (module.isMachine !== undefined && Object.hasOwn(module, name)) return module[name];
    if (name === "vm_load_executable") return () => machine(module);
    try {
      return (module.isMachine ?? module).getFunction(name);
    } catch {
      return null;
    }
  }

  keep(value) {
    this.objects.set(++this.next, value);
    return this.next;
  }

  held({ number }) {
    if (number === 0) return null;
    if (!this.objects.has(number)) throw new WeftError("InvalidArgument", `there is nothing with the handle ${number}`);
    return this.objects.get(number);
  }

  free({ number }) {
    const found = this.objects.get(number);
    this.objects.delete(number);
    if (found instanceof Tensor) found.dispose(); // what others may refer to is left to the collector
    return null;
  }

  /** The tensor that a client says lies in memory that it holds; `bytes` are as many as it copies. */
  view({ data, dtype, shape, offset }) {
    const whole = this.held({ number: data });
    if (!(whole instanceof Tensor)) throw new WeftError("InvalidArgument", `the handle ${data} is no memory`);
    return viewed(whole, shape, dtypeOf(dtype), offset);
  }

  async call(reader) {
    const f = this.held(new Handle(FUNCTION, reader.u64())), views = [];
    const args = reader.values().map((v) => {
      if (v instanceof Handle) return this.held(v);
      if (!v?.isTensor) return v;
      views.push(this.view(v));
      return views.at(-1);
    });
    if (typeof f !== "function") throw new WeftError("InvalidArgument", "this is no function");
    try {
      const result = await f(...args);
      if (result instanceof Tensor) {
        const number = this.keep(result);
        return answer(TENSOR, { number, dtype: result.dtype, shape: result.shape }, new Handle(4, number));
      }
      const kinds = { string: 65, boolean: 2, bigint: 1, number: Number.isSafeInteger(result) ? 1 : 3 };
      if (result == null) return answer(0, null);
      if (result instanceof Uint8Array) return answer(66, result);
      if (typeof result in kinds) return answer(kinds[typeof result], result);
      const kind = typeof result === "function" ? FUNCTION : result instanceof Module || result.isMachine ? MODULE : OBJECT;
      return answer(kind, new Handle(4, this.keep(result)));
    } finally {
      views.forEach((v) => v.dispose());
    }
  }

  copy(code, reader) {
    const wire = reader.tensor(), n = reader.u64(), flat = { ...wire, dtype: [1, 8, 1, 0], shape: [n] };
    const elements = code === COPY_TO ? reader.slice(n) : null, view = this.view(flat);
    try {
      if (elements === null) return packet(COPY_ACK, view.toTypedArray());
      view.data.set(elements);
      return answer(null);
    } finally {
      view.dispose();
    }
  }

  allocate(n, [kind]) {
    if (kind !== CPU) throw new WeftError("InvalidArgument", `this machine has no device of type ${kind}`);
    return new Handle(4, this.keep(zeros([n], "uint8")));
  }

  system(code, values) {
    const [first, second] = values;
    switch (code) {
      case GLOBAL_FUNCTION: {
        let found = Object.hasOwn(this.functions, first) ? this.functions[first] : null;
        try {
          found ??= getGlobalFunction(first);
        } catch { /* there is none */ }
        return new Handle(4, found === null ? 0 : this.keep(found));
      }
      case FREE_HANDLE: return this.free(first);
      case FREE_DATA: return this.free(second);
      case ATTRIBUTE: return second === 0 ? Number(first[0] === CPU && first[1] === 0) : null;
      case ALLOCATE: return this.allocate(second, first);
      case ALLOCATE_TENSOR: return this.allocate(countOf(first.shape) * bytesOf(dtypeOf(first.dtype)), first.device);
      case COPY_AMONG: {
        const [from, to] = [this.view(first), this.view(second)];
        getGlobalFunction("weft.tensor_copy")(from, to);
        from.dispose();
        to.dispose();
        return null;
      }
      case CREATE_STREAM: return new Handle(4, 0);
      case SET_DEVICE: case SYNC: case FREE_STREAM: case SET_STREAM: return null;
      default: throw new Malformed(`a packet of code ${code}`);
    }
  }

  /** The packet that answers a packet. */
  async reply(body) {
    const reader = new Reader(body), code = reader.i32();
    try {
      if (code === INIT) {
        const version = text.decode(reader.slice(reader.u64()));
        if (version !== VERSION) throw new WeftError("RPCError", `this server speaks ${VERSION}, its client ${version}`);
        if (reader.values().length > 0) throw new WeftError("RPCError", "a page serves its own sessions alone");
        this.ready = true;
        return answer(null);
      }
      if (!this.ready) throw new Malformed("a session begins with its constructor");
      if (code === CALL) return await this.call(reader);
      if (code === COPY_TO || code === COPY_FROM) return this.copy(code, reader);
      return answer(this.system(code, reader.values()));
    } catch (error) {
      if (error instanceof Malformed) throw error;
      return packet(EXCEPTION, packed([4, 1]), encoded(`${error.kind ?? error.name ?? "Error"}: ${error.message ?? error}`));
    }
  }

  close() {
    for (const number of this.objects.keys()) this.free({ number });
    this.files.clear();
  }
}

/** A function that times another; it returns a double of seconds for each repeat, as bytes. */
function timed(f, number, repeat, minRepeatMs, limitZero) {
  if (f === null) throw new WeftError("InvalidArgument", "there is no such function to time");
  return (...args) => {
    const once = (n) => {
      const begin = performance.now();
      for (let i = 0; i < n; ++i) f(...args)?.dispose?.();
      return performance.now() - begin;
    };
    once(1);
    let n = Math.max(1, number);
    const seconds = Float64Array.from({ length: repeat }, () => {
      let ms = once(n);
      // Clocks of browsers are coarse: what takes no time is done more often.
      for (let zeros = 0; ms < minRepeatMs || (ms === 0 && zeros < limitZero); zeros += ms === 0) ms = once((n *= 2));
      return ms / n / 1000;
    });
    return new Uint8Array(seconds.buffer);
  };
}

/** One connection: waits for a client, serves it until it leaves; false where the proxy refuses the key. */
async function connected(url, key, signal, onSession) {
  const socket = new WebSocket(url), session = new Session();
  socket.binaryType = "arraybuffer";
  const stream = new Stream(socket), close = () => socket.close();
  signal?.addEventListener("abort", close);
  try {
    await new Promise((go, fail) => {
      socket.addEventListener("open", go);
      socket.addEventListener("error", () => fail(new WeftError("RPCError", `cannot connect to ${url}`)));
    });
    const name = utf8.encode(`server:${key}`);
    socket.send(packed([4, MAGIC], [4, name.length], name));
    const code = await stream.read(4);
    if (code === null) return true;
    if (new Reader(code).i32() !== MAGIC) return false;
    const length = await stream.read(4), size = length === null ? 0 : new Reader(length).i32();
    if (length === null || size < 0 || size > MAX_KEY || (await stream.read(size)) === null) return true;
    onSession?.(true);
    for (;;) {
      const head = await stream.read(8), bytes = head === null ? 4 : new Reader(head).u64();
      if (bytes === 0) continue;
      const body = head === null || bytes < 4 || bytes > MAX_PACKET ? null : await stream.read(bytes);
      if (body === null || new Reader(body).i32() === SHUTDOWN) return true;
      socket.send(await session.reply(body));
    }
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    return true;
  } finally {
    onSession?.(false);
    signal?.removeEventListener("abort", close);
    socket.close();
    session.close();
  }
}

export async function serve({ url, key, signal, onSession, retryMs = RETRY_MS }) {
  await start();
  while (!signal?.aborted) {
    try {
      if (!(await connected(url, key, signal, onSession))) throw new WeftError("InvalidArgument", `the proxy refuses the key '${key}'`);
    } catch (error) {
      if (error.kind !== "RPCError") throw error;
      if (!signal?.aborted) await new Promise((go) => setTimeout(go, retryMs));
    }
  }
}
