// Values of tvm-ffi in the memory of the runtime (wasm32): kinds, offsets of fields, and what JavaScript sees.

export const NONE = 0, INT = 1, BOOL = 2, FLOAT = 3, POINTER = 4, DTYPE = 5, DEVICE = 6, VIEW = 7, RAW_STRING = 8;
export const SMALL_STRING = 11, FIRST_OBJECT = 64, STRING = 65, FUNCTION = 68, SHAPE = 69, TENSOR = 70, ARRAY = 71;
export const MODULE = 73;
export const ANY_BYTES = 16;

const HEADER = 24; // of an object; its fields follow
const DLTENSOR = { data: 0, deviceType: 4, ndim: 12, code: 16, bits: 17, lanes: 18, shape: 20, strides: 24, offset: 32 };

/** What a WebAssembly function of the runtime, a kernel or a callback raised; `kind` is the class of the error. */
export class WeftError extends Error {
  constructor(kind, message, options) {
    super(message, options);
    this.name = "WeftError";
    this.kind = kind;
  }
}

// dtype: DLPack's code and bits, and the array that holds its elements (bits where JavaScript has no such number).
const DTYPES = {
  int8: [0, 8, Int8Array], int16: [0, 16, Int16Array], int32: [0, 32, Int32Array], int64: [0, 64, BigInt64Array],
  uint8: [1, 8, Uint8Array], uint16: [1, 16, Uint16Array], uint32: [1, 32, Uint32Array], uint64: [1, 64, BigUint64Array],
  float16: [2, 16, Uint16Array], float32: [2, 32, Float32Array], float64: [2, 64, Float64Array],
  bfloat16: [4, 16, Uint16Array], bool: [6, 8, Uint8Array],
};

/** The number under which the runtime knows a dtype, and the class of arrays of it. */
export function dtypeInfo(name) {
  const found = Object.hasOwn(DTYPES, name) ? DTYPES[name] : null;
  if (found === null) {
    throw new WeftError("InvalidArgument", `unknown dtype '${name}'; expected one of ${Object.keys(DTYPES).join(", ")}`);
  }
  return { packed: found[0] | (found[1] << 8) | (1 << 16), bytes: found[1] / 8, array: found[2] };
}

/** The dtype that a typed array has where none is named. */
export function dtypeOfArray(array) {
  const names = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];
  const found = names.find((name) => array instanceof DTYPES[name][2]);
  if (found === undefined && !(array instanceof Uint8ClampedArray)) {
    throw new WeftError("InvalidArgument", "a tensor is made of a typed array, such as a Float32Array");
  }
  return found ?? "uint8";
}

function dtypeName(code, bits, lanes) {
  const found = Object.entries(DTYPES).find(([, row]) => row[0] === code && row[1] === bits);
  const name = found === undefined ? `code ${code} of ${bits} bits` : found[0];
  return lanes === 1 ? name : `${name}x${lanes}`;
}

/** Reads and writes the runtime's memory, whose buffer is another one after it has grown. */
export class Memory {
  constructor(exports) {
    this.exports = exports;
    this.decoder = new TextDecoder();
    this.encoder = new TextEncoder();
  }

  get buffer() {
    return this.exports.memory.buffer;
  }

  get view() {
    if (this.cached?.buffer !== this.buffer) this.cached = new DataView(this.buffer);
    return this.cached;
  }

  bytes(at, n) {
    return new Uint8Array(this.buffer, at, n);
  }

  text(at, n) {
    return this.decoder.decode(this.bytes(at, n).slice()); // a decoder takes no shared memory
  }

  u32(at) {
    return this.view.getUint32(at, true);
  }

  /** The bytes that a TVMFFIByteArray names, as text. */
  byteArray(at) {
    return this.text(this.u32(at), this.u32(at + 4));
  }

  /** Runs `use(address)` with `n` bytes of the stack. */
  onStack(n, use) {
    const pointer = this.exports.__stack_pointer, before = pointer.value;
    pointer.value = before - ((n + 15) & ~15);
    try {
      this.bytes(pointer.value, n).fill(0);
      return use(pointer.value);
    } finally {
      pointer.value = before;
    }
  }

  /** Runs `use(address)` with the text and a byte of zero behind it, in memory of its own. */
  withText(text, use) {
    const bytes = this.encoder.encode(text), at = this.allocate(bytes.length + 1);
    try {
      this.bytes(at, bytes.length).set(bytes);
      this.view.setUint8(at + bytes.length, 0);
      return use(at, bytes.length);
    } finally {
      this.exports.weft_host_free(at);
    }
  }

  allocate(n) {
    const at = n <= 0xffff0000 ? this.exports.weft_host_alloc(n) >>> 0 : 0;
    if (at === 0) throw new WeftError("OutOfMemory", `cannot allocate ${n} bytes: WebAssembly has at most 4 GB`);
    return at;
  }

  setAny(at, kind, set) {
    const view = this.view;
    view.setInt32(at, kind, true);
    view.setUint32(at + 4, 0, true);
    view.setBigInt64(at + 8, 0n, true);
    set?.(view, at + 8);
  }

  kindOf(at) {
    return this.view.getInt32(at, true);
  }

  objectKind(object) {
    return this.view.getInt32(object + 8, true);
  }

  stringOf(at) {
    const kind = this.kindOf(at), value = this.u32(at + 8);
    if (kind === SMALL_STRING) return this.text(at + 8, this.u32(at + 4));
    if (kind === STRING) return this.byteArray(value + HEADER);
    let end = value;
    while (this.view.getUint8(end) !== 0) ++end;
    return this.text(value, end - value);
  }

  /** Shape, dtype and place of a tensor object. */
  tensor(object) {
    const t = object + HEADER, view = this.view;
    const ndim = view.getInt32(t + DLTENSOR.ndim, true), shapeAt = this.u32(t + DLTENSOR.shape);
    const shape = Array.from({ length: ndim }, (_, i) => Number(view.getBigInt64(shapeAt + 8 * i, true)));
    const dtype = dtypeName(view.getUint8(t + DLTENSOR.code), view.getUint8(t + DLTENSOR.bits),
      view.getUint16(t + DLTENSOR.lanes, true));
    const at = this.u32(t + DLTENSOR.data) + Number(view.getBigUint64(t + DLTENSOR.offset, true));
    return { shape, dtype, at };
  }

  shape(object) {
    const at = this.u32(object + HEADER), n = this.u32(object + HEADER + 4);
    return Array.from({ length: n }, (_, i) => Number(this.view.getBigInt64(at + 8 * i, true)));
  }

  /** Where an Array's values begin, and how many there are. */
  array(object) {
    return { at: this.u32(object + HEADER), n: Number(this.view.getBigInt64(object + HEADER + 8, true)) };
  }

  error(object) {
    const kind = this.byteArray(object + HEADER), text = this.byteArray(object + HEADER + 8);
    return { kind, text, trace: this.byteArray(object + HEADER + 16) };
  }
}
