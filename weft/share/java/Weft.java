import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs a model that Weft compiled, through the foreign-function interface of Java 22 or newer. One file, no dependency.
 *
 * <pre>{@code
 * Weft.load(Path.of("libtvm_ffi.so"), Path.of("libweft_runtime.so"));  // weft config --tvm-ffi --library
 * try (Weft model = Weft.open(Path.of("model.so")); Arena arena = Arena.ofConfined()) {
 *   Weft.Tensor x = Weft.Tensor.of(arena.allocateFrom(JAVA_FLOAT, values), "float32", 3, 8);
 *   try (Weft.Tensor y = model.run("main", x).get(0)) { ... y.data().getAtIndex(JAVA_FLOAT, 0) ... }
 * }
 * }</pre>
 *
 * A model may be called from several threads. Errors of the runtime are {@link WeftException}s with its own words.
 */
public final class Weft implements AutoCloseable {
  /** What the runtime raised: a kind such as "ValueError", and what was wrong. */
  public static final class WeftException extends RuntimeException {
    private static final long serialVersionUID = 1;
    public final String kind;

    WeftException(String kind, String message) {
      super(kind + ": " + message);
      this.kind = kind;
    }
  }

  /** What a model says of an input or output; a dimension is a number or a name, and null stands for what it does not say. */
  public record TensorInfo(String name, String dtype, List<String> shape) {}

  /** Contiguous elements on the CPU: memory of the caller's, or of a result, which lives until it is closed. */
  public record Tensor(MemorySegment data, String dtype, long[] shape, MemorySegment handle) implements AutoCloseable {
    /** A tensor over memory of the caller's, which is not copied. It lives as long as its arena. */
    public static Tensor of(MemorySegment data, String dtype, long... shape) {
      long bytes = dtypeBits(dtype) / 8;
      for (long d : shape) bytes = Math.multiplyExact(bytes, d);
      if (!data.isNative() || data.byteSize() < bytes) {
        throw new IllegalArgumentException("a tensor of " + bytes + " bytes needs as many of native memory, found "
            + data.byteSize() + (data.isNative() ? "" : " on Java's heap") + "; allocate from an Arena");
      }
      return new Tensor(data, dtype, shape.clone(), null);
    }

    /** Gives a result back; nothing of a tensor of one's own. */
    @Override public void close() {
      if (handle != null) release(handle);
    }
  }

  private static final String[] CODES = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  private static final int NONE = 0, INT = 1, BOOL = 2, SMALL_STRING = 11, STRING = 65, TENSOR = 70, ARRAY = 71, MODULE = 73;
  private static final int RAW_STRING = 8;
  private static final long HEADER = 24, ANY = 16;  // bytes of an object's header, and of a value
  private static MethodHandle loadModule, createMachine, getGlobal, callFunction, releaseObject, takeError, fromDlpack;

  /** Loads the runtime; once, before anything else. */
  public static synchronized void load(Path tvmFfi, Path weftRuntime) {
    if (loadModule != null) return;
    SymbolLookup[] loaded = new SymbolLookup[1];
    withSignalHandlersKept(() -> loaded[0] = SymbolLookup.libraryLookup(tvmFfi, Arena.global()));
    SymbolLookup ffi = loaded[0];
    SymbolLookup weft = SymbolLookup.libraryLookup(weftRuntime, Arena.global());
    MemoryLayout device = MemoryLayout.structLayout(JAVA_INT, JAVA_INT);
    getGlobal = handle(ffi, "TVMFFIFunctionGetGlobal", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    callFunction = handle(ffi, "TVMFFIFunctionCall", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT, ADDRESS));
    releaseObject = handle(ffi, "TVMFFIObjectDecRef", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    takeError = handle(ffi, "TVMFFIErrorMoveFromRaised", FunctionDescriptor.ofVoid(ADDRESS));
    fromDlpack = handle(ffi, "TVMFFITensorFromDLPack", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT, ADDRESS));
    createMachine = handle(weft, "weft_vm_create", FunctionDescriptor.of(JAVA_INT, ADDRESS, device, ADDRESS));
    loadModule = handle(weft, "weft_load_module", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
  }

  /** tvm-ffi sets a handler of SIGSEGV when it is loaded; Java finds null pointers by its own, which is set again. */
  private static void withSignalHandlersKept(Runnable action) {
    final int segmentationFault = 11;
    Linker linker = Linker.nativeLinker();
    MemorySegment sigaction = linker.defaultLookup().find("sigaction").orElse(null);
    if (sigaction == null) {  // Windows has no such signals
      action.run();
      return;
    }
    MethodHandle set = linker.downcallHandle(sigaction, FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment before = arena.allocate(256, 16);  // larger than the structure on any system
      invoke(set, segmentationFault, MemorySegment.NULL, before);
      action.run();
      invoke(set, segmentationFault, before, MemorySegment.NULL);
    }
  }

  /** Opens a library that {@code weft compile} or {@code export_library} wrote, on the CPU. */
  public static Weft open(Path library) {
    if (loadModule == null) throw new IllegalStateException("call Weft.load with the runtime's libraries first");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ADDRESS);
      check(invoke(loadModule, arena.allocateFrom(library.toString()), out));
      MemorySegment module = out.get(ADDRESS, 0);
      try {
        MemorySegment device = arena.allocate(8);
        device.set(JAVA_INT, 0, 1);
        check(invoke(createMachine, module, device, out));
        return new Weft(out.get(ADDRESS, 0));
      } finally {
        release(module);
      }
    }
  }

  private MemorySegment machine;

  private Weft(MemorySegment machine) {
    this.machine = machine;
  }

  /** Calls a function of the model. A tuple is a list of its fields, all of which are tensors. Close the results. */
  public List<Tensor> run(String function, Tensor... inputs) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment callee = function(arena, function);
      MemorySegment args = arena.allocate(ANY * Math.max(1, inputs.length), 8);
      int made = 0;
      try {
        for (; made < inputs.length; ++made) object(args, made, TENSOR, tensor(arena, inputs[made]));
        MemorySegment result = call(arena, callee, args, inputs.length);
        return tensors(result);
      } finally {
        for (int i = 0; i < made; ++i) release(address(args, i));
        release(callee);
      }
    }
  }

  /** Inputs of {@code main}; empty where the model does not say, as those that no importer made. */
  public List<TensorInfo> inputs() {
    return described("inputs");
  }

  /** Outputs of {@code main}. */
  public List<TensorInfo> outputs() {
    return described("outputs");
  }

  @Override public synchronized void close() {
    if (machine != null) release(machine);
    machine = null;
  }

  // ---- what models say of themselves --------------------------------------------------------------------------------

  private List<TensorInfo> described(String which) {
    List<TensorInfo> out = new ArrayList<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment callee;
      try {
        callee = function(arena, "weft.metadata");
      } catch (WeftException e) {
        return out;
      }
      MemorySegment text = kept(arena, call(arena, callee, arena.allocate(ANY, 8), 0));
      release(callee);
      MemorySegment about = global(arena, "ffi.json.Parse", text);
      MemorySegment entries = item(arena, about, which);
      for (int i = 0; i < size(entries); ++i) {
        MemorySegment entry = element(entries, i), shape = item(arena, entry, "shape");
        List<String> dims = shape.get(JAVA_INT, 0) == ARRAY ? new ArrayList<>() : null;
        for (int d = 0; dims != null && d < size(shape); ++d) dims.add(text(element(shape, d)));
        out.add(new TensorInfo(text(item(arena, entry, "name")), text(item(arena, entry, "dtype")), dims));
      }
    }
    return out;
  }

  private static MemorySegment item(Arena arena, MemorySegment map, String key) {
    return global(arena, "ffi.MapGetItem", map, string(arena, key));
  }

  /** What a value is as text: of strings, numbers, and null of nothing. */
  private static String text(MemorySegment any) {
    int type = any.get(JAVA_INT, 0);
    if (type == NONE) return null;
    if (type == INT) return Long.toString(any.get(JAVA_LONG, 8));
    if (type == SMALL_STRING) return text(any.asSlice(8), any.get(JAVA_INT, 4));
    if (type == STRING) return bytes(any.get(ADDRESS, 8).reinterpret(HEADER + ANY), HEADER);
    throw new IllegalStateException("a value of type " + type + " is no text");
  }

  // ---- calls ---------------------------------------------------------------------------------------------------------

  private MemorySegment function(Arena arena, String name) {
    if (machine == null) throw new IllegalStateException("the model is closed");
    MemorySegment module = arena.allocate(ANY, 8), no = arena.allocate(ANY, 8);
    object(module, 0, MODULE, machine);
    no.set(JAVA_INT, 0, BOOL);
    MemorySegment found = unowned(arena, "ffi.ModuleGetFunction", module, string(arena, name), no);
    if (found.get(JAVA_INT, 0) == NONE) throw new WeftException("ValueError", "the model has no function \"" + name + "\"");
    return found.get(ADDRESS, 8);
  }

  /** Calls a global function; a result that is an object stays until the arena is closed. */
  private static MemorySegment global(Arena arena, String name, MemorySegment... values) {
    return kept(arena, unowned(arena, name, values));
  }

  /** Calls a global function; whoever calls this gives a result that is an object back. */
  private static MemorySegment unowned(Arena arena, String name, MemorySegment... values) {
    MemorySegment out = arena.allocate(ADDRESS), key = arena.allocate(16, 8);
    byte[] text = name.getBytes(StandardCharsets.UTF_8);
    key.set(ADDRESS, 0, arena.allocateFrom(JAVA_BYTE, text));
    key.set(JAVA_LONG, 8, text.length);
    check(invoke(getGlobal, key, out));
    MemorySegment args = arena.allocate(ANY * values.length, 8), callee = out.get(ADDRESS, 0);
    for (int i = 0; i < values.length; ++i) args.asSlice(ANY * i, ANY).copyFrom(values[i].asSlice(0, ANY));
    try {
      return call(arena, callee, args, values.length);
    } finally {
      release(callee);
    }
  }

  /** The value, which is given back when the arena is closed: its address is a segment of the arena with that cleanup. */
  private static MemorySegment kept(Arena arena, MemorySegment any) {
    if (any.get(JAVA_INT, 0) >= 64) any.get(ADDRESS, 8).reinterpret(HEADER, arena, Weft::release);
    return any;
  }

  private static MemorySegment call(Arena arena, MemorySegment callee, MemorySegment args, int count) {
    MemorySegment result = arena.allocate(ANY, 8);
    check(invoke(callFunction, callee, args, count, result));
    return result;
  }

  private static int invoke(MethodHandle handle, Object... args) {
    try {
      return (int) handle.invokeWithArguments(args);
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static void check(int status) {
    if (status == 0) return;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ADDRESS);
      takeError.invokeWithArguments(out);
      MemorySegment error = out.get(ADDRESS, 0).reinterpret(HEADER + 2 * ANY);
      String kind = bytes(error, HEADER), message = bytes(error, HEADER + ANY);
      release(error);
      throw new WeftException(kind, message);
    } catch (RuntimeException e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static void release(MemorySegment object) {
    invoke(releaseObject, object);
  }

  // ---- values --------------------------------------------------------------------------------------------------------

  private static void object(MemorySegment args, long at, int type, MemorySegment handle) {
    args.set(JAVA_INT, ANY * at, type);
    args.set(JAVA_INT, ANY * at + 4, 0);
    args.set(ADDRESS, ANY * at + 8, handle);
  }

  private static MemorySegment address(MemorySegment args, long at) {
    return args.get(ADDRESS, ANY * at + 8);
  }

  private static MemorySegment string(Arena arena, String value) {
    MemorySegment any = arena.allocate(ANY, 8);
    object(any, 0, RAW_STRING, arena.allocateFrom(value));
    return any;
  }

  private static long size(MemorySegment array) {
    return address(array, 0).reinterpret(HEADER + 16).get(JAVA_LONG, HEADER + 8);
  }

  private static MemorySegment element(MemorySegment array, long index) {
    MemorySegment data = address(array, 0).reinterpret(HEADER + 16).get(ADDRESS, HEADER);
    return data.reinterpret(ANY * (index + 1)).asSlice(ANY * index, ANY);
  }

  private static String bytes(MemorySegment object, long at) {
    long size = object.get(JAVA_LONG, at + 8);
    return text(object.get(ADDRESS, at).reinterpret(size), size);
  }

  private static String text(MemorySegment data, long size) {
    return new String(data.asSlice(0, size).toArray(JAVA_BYTE), StandardCharsets.UTF_8);
  }

  /** A tensor of the runtime over the same memory; DLPack lets it have no deleter. */
  private static MemorySegment tensor(Arena arena, Tensor value) {
    if (value.handle != null) {
      throw new IllegalArgumentException("a result is no argument; give a tensor over its data: Tensor.of(y.data(), ...)");
    }
    MemorySegment managed = arena.allocate(64, 8), out = arena.allocate(ADDRESS);
    managed.set(ADDRESS, 0, value.data);
    managed.set(JAVA_INT, 8, 1);
    managed.set(JAVA_INT, 16, value.shape.length);
    int code = dtypeCode(value.dtype);
    managed.set(JAVA_BYTE, 20, (byte) code);
    managed.set(JAVA_BYTE, 21, (byte) dtypeBits(value.dtype));
    managed.set(JAVA_SHORT, 22, (short) 1);
    managed.set(ADDRESS, 24, arena.allocateFrom(JAVA_LONG, value.shape.length == 0 ? new long[1] : value.shape));
    check(invoke(fromDlpack, managed, 0, 0, out));
    return out.get(ADDRESS, 0);
  }

  private static List<Tensor> tensors(MemorySegment result) {
    int type = result.get(JAVA_INT, 0);
    if (type == TENSOR) return List.of(result(address(result, 0)));
    if (type != ARRAY) {
      if (type >= 64) release(address(result, 0));
      throw new WeftException("TypeError", "the function returned a value of type " + type + ", expected tensors");
    }
    List<Tensor> out = new ArrayList<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment array = kept(arena, arena.allocate(ANY, 8).copyFrom(result));
      for (long i = 0; i < size(array); ++i) {  // the array's function gives each item a reference of its own
        MemorySegment index = arena.allocate(ANY, 8);
        index.set(JAVA_INT, 0, INT);
        index.set(JAVA_LONG, 8, i);
        out.add(result(address(unowned(arena, "ffi.ArrayGetItem", array, index), 0)));
      }
    }
    return out;
  }

  private static Tensor result(MemorySegment handle) {
    MemorySegment t = handle.reinterpret(HEADER + 48).asSlice(HEADER);
    int rank = t.get(JAVA_INT, 16), bits = t.get(JAVA_BYTE, 21) & 255;
    long[] shape = t.get(ADDRESS, 24).reinterpret(8L * rank).toArray(JAVA_LONG);
    long bytes = bits;
    for (long d : shape) bytes *= d;
    String name = CODES[t.get(JAVA_BYTE, 20)];
    MemorySegment data = MemorySegment.ofAddress(t.get(ADDRESS, 0).address() + t.get(JAVA_LONG, 40)).reinterpret(bytes / 8);
    return new Tensor(data, name.equals("bool") ? name : name + bits, shape, handle);
  }

  private static int dtypeCode(String dtype) {
    for (int i = 0; i < CODES.length; ++i) {
      if (dtype.replaceAll("[0-9]+$", "").equals(CODES[i])) return i;
    }
    throw new IllegalArgumentException("unknown dtype " + dtype + "; expected float32, int64, bool, ...");
  }

  private static int dtypeBits(String dtype) {
    dtypeCode(dtype);
    return dtype.equals("bool") ? 8 : Integer.parseInt(dtype.replaceAll("^[a-z]+", ""));
  }

  private static MethodHandle handle(SymbolLookup library, String name, FunctionDescriptor type) {
    return Linker.nativeLinker().downcallHandle(library.find(name).orElseThrow(
        () -> new UnsatisfiedLinkError(name + " is missing; the library is another one, or of another version")), type);
  }
}
