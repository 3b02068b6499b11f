/** Models that Weft compiled to WebAssembly (`weft compile model.onnx --target wasm32 -o model.wasm`). */

export type DType =
  | "int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "uint64"
  | "float16" | "bfloat16" | "float32" | "float64" | "bool";

export type TypedArray =
  | Int8Array | Int16Array | Int32Array | BigInt64Array | Uint8Array | Uint8ClampedArray | Uint16Array | Uint32Array
  | BigUint64Array | Float32Array | Float64Array;

/** What a packed function takes and returns. Whole numbers of JavaScript are integers there, others floats. */
export type Value =
  | Tensor | Module | PackedFunction | ((...args: any[]) => any) | number | bigint | boolean | string | null | undefined
  | Value[];

/** A function of a model or of the runtime; errors are thrown as WeftError. */
export interface PackedFunction {
  (...args: Value[]): any;
  /** Gives the function back before the collector does. */
  dispose(): void;
}

/** An error of the runtime, a kernel or a callback: `kind` is its class ("InvalidArgument", "ExecutableError", ...). */
export class WeftError extends Error {
  constructor(kind: string, message: string, options?: ErrorOptions);
  readonly kind: string;
  /** The frames of the virtual machine that the error passed. */
  readonly trace?: string;
}

/** A tensor in the runtime's memory, row by row. */
export class Tensor {
  private constructor();
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly size: number;
  /** The elements where they lie: float16 and bfloat16 as their bits. Take it anew after each call: memory may grow. */
  readonly data: TypedArray;
  /** A copy of the elements. */
  toTypedArray(): TypedArray;
  /** Gives the memory back before the collector does. */
  dispose(): void;
}

/** A compiled model, or kernels. */
export class Module {
  private constructor();
  /** A function of the module or of what it imports. Throws WeftError("InvalidArgument") where there is none. */
  getFunction(name: string): PackedFunction;
  dispose(): void;
}

/** Where bytes come from: an address, in Node.js also a path, or the bytes themselves. */
export type Source = string | URL | ArrayBuffer | Uint8Array;

/** Starts the runtime; `load` does so by itself. The first call decides where `runtime.wasm` comes from. */
export function start(runtime?: Source, options?: { threads?: number }): Promise<void>;

/** How many pieces of kernels' loops each thread has run; the first is the caller's. */
export function threadPieces(): number[];

/** Loads a model. Throws WeftError("ExecutableError") for a file that is none, is damaged or needs other functions. */
export function load(model: Source): Promise<Module>;

/** A tensor with a copy of an array; `shape` is `[array.length]` and `dtype` the array's by default. */
export function tensor(array: TypedArray, shape?: readonly number[], dtype?: DType): Tensor;

/** A tensor of zeros, float32 by default. */
export function zeros(shape: readonly number[], dtype?: DType): Tensor;

/** A function that the runtime or `registerFunction` put under a name. */
export function getGlobalFunction(name: string): PackedFunction;

/** Puts a JavaScript function under a name that kernels and models call. It answers at once, not by a promise. */
export function registerFunction(name: string, f: (...args: any[]) => Value, options?: { override?: boolean }): void;
