"""What generated code asks of the runtime, as calls of the functions in ``services``."""

from collections.abc import Sequence

from weft.target.llvm import services
from weft.target.llvm.emitter import FunctionEmitter, ModuleEmitter


def parallel_for(s: FunctionEmitter, body: str, context: str, extent: str, grain: str, forwards: bool = False) -> str:
    """Run ``body(begin, end, context)`` over an extent in pieces of at least `grain`; return the code.

    Parameters
    ----------
    forwards : bool
        Whether iterations ask for what the next ones read, so that threads should take pieces in ascending order.
    """
    name = services.parallel_forwards(s.module) if forwards else services.parallel_for(s.module)
    return s.effect(f"call i32 {name}(ptr {body}, ptr {context}, i64 {extent}, i64 {grain})")


def allocate_workspace(s: FunctionEmitter, nbytes: str) -> str:
    """Allocate scratch memory, 64-byte aligned; leave with -2 when there is none.

    The caller frees it with :func:`free_workspace`.
    """
    pointer = s.effect(f"call ptr {services.workspace_alloc(s.module)}(i64 {nbytes})", "ws")
    missing, there = s.label("nomem"), s.label("ok")
    s.branch(s.value(f"icmp eq ptr {pointer}, null"), missing, there)
    s.start(missing)
    s.leave("-2")
    s.start(there)
    return pointer


def free_workspace(s: FunctionEmitter, pointer: str) -> None:
    """Give scratch memory back."""
    s.emit(f"call void {services.workspace_free(s.module)}(ptr {pointer})")


def request_tiles(s: FunctionEmitter, function: str) -> None:
    """Leave with an error where the process may not use matrix tiles: without leave their instructions end it."""
    module = s.module
    services.weak(module, "i32", "weft_request_tiles", "")
    module.declare("syscall", "declare i64 @syscall(i64, ...)")
    for line in ("@.tiles_granted = internal global i32 0", "@__weft_needs_tiles = weak constant i8 1"):
        if line not in module.globals:
            module.globals.append(line)
    # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), as the runtime asks
    module.support(
        "weft.request_tiles",
        lambda: (
            """define internal i32 @weft.request_tiles() #2 {
  %here = icmp ne ptr @weft_request_tiles, null
  br i1 %here, label %runtime, label %alone
runtime:
  %rc = call i32 @weft_request_tiles()
  br label %out
alone:
  %answer = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  %low = icmp ne i64 %answer, 0
  %refused = sext i1 %low to i32
  br label %out
out:
  %code = phi i32 [ %rc, %runtime ], [ %refused, %alone ]
  %granted = icmp eq i32 %code, 0
  %bit = zext i1 %granted to i32
  store atomic i32 %bit, ptr @.tiles_granted monotonic, align 4
  ret i32 %code
}"""
        ),
    )
    ask, bad, good = (s.label(name) for name in ("ask", "notiles", "tiles"))
    state = s.effect("load atomic i32, ptr @.tiles_granted monotonic, align 4")
    s.branch(s.value(f"icmp ne i32 {state}, 0"), good, ask)
    s.start(ask)
    s.branch(s.value(f"icmp eq i32 {s.effect('call i32 @weft.request_tiles()')}, 0"), good, bad)
    s.start(bad)
    text = module.string(
        f"{function}: compiled for a processor with matrix tiles (amx-tile), which this process may not use: the "
        "processor has none, or the operating system refuses them; compile for the target of this machine, or with "
        "-matrix-tiles=off"
    )
    s.leave(s.effect(raise_error(module, module.string("EvaluationError"), text)))
    s.start(good)


def raise_error(module: ModuleEmitter, kind: str, message: str) -> str:
    """Return the call expression that raises an error; its value is -1. `kind` and `message` are symbols of strings."""
    return f"call i32 {services.set_error(module)}(ptr {kind}, ptr {message})"


def argument_error(
    module: ModuleEmitter, signature: str, text: str, arg: int, code: int, dim: int, expected: str, args: str, n: str
) -> str:
    """Return the call expression that raises the error of a failed argument check; its value is -1.

    `args` points to the arguments, of which there are `n`; `text` is the symbol of a message for processes without
    libweft_runtime, in which nothing can tell more.
    """
    given = f"ptr {text}, ptr {signature}, i32 {arg}, i32 {code}, i64 {dim}, i64 {expected}, ptr {args}, i32 {n}"
    return f"call i32 {services.arg_error(module)}({given})"


def checked_tensor(module: ModuleEmitter, spec: str, arg: int, signature: str, text: str, args: str, n: str) -> str:
    """Return the call expression that checks argument `arg`: its DLTensor, or null where an error has been raised.

    `spec` is the symbol of what is asked (:func:`tensor_spec`); the other operands are those of :func:`argument_error`.
    """
    given = f"ptr {args}, i32 {n}, i32 {arg}, ptr {spec}, ptr {text}, ptr {signature}"
    return f"call ptr {services.tensor(module)}({given})"


def tensor_spec(
    module: ModuleEmitter, dtype: int, device_type: int, alignment: int, compact: bool, shape: Sequence[int | None]
) -> str:
    """Return the symbol of what :func:`checked_tensor` asks of a tensor, a ``services.SPEC``.

    Parameters
    ----------
    dtype : int
        Code, bits and lanes in one word.
    alignment : int
        Of the first element in bytes, a power of two.
    compact : bool
        Whether strides have to be those of a compact tensor.
    shape : sequence of int or None
        Extents; None where they may be any.
    """
    extents = ", ".join(f"i64 {-1 if n is None else n}" for n in shape)
    kind, rank = f"[{len(shape)} x i64]", len(shape)
    fields = f"i32 {rank}, i32 {dtype}, i32 {device_type}, i16 {alignment - 1}, i16 {int(compact)}"
    listed = f"[ {extents} ]" if rank else "zeroinitializer"
    return module.constant(f"{{ i32, i32, i32, i16, i16, {kind} }} {{ {fields}, {kind} {listed} }}")
