"""Helper functions inside each module: the runtime's services, with a fallback for where libweft_runtime is not loaded.

Generated code refers to ``weft_*`` weakly. With the runtime in the process they are its functions; without it a
library still loads and runs: loops run on one thread, scratch memory comes from the C library, and a failed check
raises a fixed message through tvm-ffi.
"""

from __future__ import annotations

from weft.target.llvm.emitter import FunctionEmitter, ModuleEmitter


def _weak(module: ModuleEmitter, result: str, name: str, params: str) -> None:
    module.declare(name, f"declare extern_weak {result} @{name}({params})")


def parallel_for(s: FunctionEmitter, body: str, context: str, extent: str, grain: str, forwards: bool = False) -> str:
    """Run ``body(begin, end, context)`` over an extent in pieces of at least `grain`; return the code.

    Parameters
    ----------
    forwards : bool
        Whether iterations ask for what the next ones read, so that threads should take pieces in ascending order.
    """
    _weak(s.module, "i32", "weft_parallel_for", "ptr, ptr, i64, i64")
    name = s.module.support(
        "weft.parallel_for",
        lambda: """define internal i32 @weft.parallel_for(ptr %body, ptr %ctx, i64 %extent, i64 %grain) #0 {
  %here = icmp ne ptr @weft_parallel_for, null
  br i1 %here, label %pool, label %serial
pool:
  %rc = call i32 @weft_parallel_for(ptr %body, ptr %ctx, i64 %extent, i64 %grain)
  ret i32 %rc
serial:
  %any = icmp sgt i64 %extent, 0
  br i1 %any, label %run, label %out
run:
  %alone = call i32 %body(i64 0, i64 %extent, ptr %ctx)
  ret i32 %alone
out:
  ret i32 0
}""")  # fmt: skip
    if forwards:
        _weak(s.module, "i32", "weft_parallel_forwards", "ptr, ptr, i64, i64")
        name = s.module.support(
            "weft.parallel_forwards",
            lambda: f"""define internal i32 @weft.parallel_forwards(ptr %body, ptr %ctx, i64 %extent, i64 %grain) #0 {{
  %here = icmp ne ptr @weft_parallel_forwards, null
  br i1 %here, label %pool, label %older
pool:
  %rc = call i32 @weft_parallel_forwards(ptr %body, ptr %ctx, i64 %extent, i64 %grain)
  ret i32 %rc
older:
  %any = call i32 {name}(ptr %body, ptr %ctx, i64 %extent, i64 %grain)
  ret i32 %any
}}""")  # fmt: skip
    return s.effect(f"call i32 {name}(ptr {body}, ptr {context}, i64 {extent}, i64 {grain})")


def allocate_workspace(s: FunctionEmitter, nbytes: str) -> str:
    """Allocate scratch memory, 64-byte aligned; leave with -2 when there is none.

    The caller frees it with ``@weft.workspace_free``.
    """
    module = s.module
    _weak(module, "ptr", "weft_workspace_alloc", "i64")
    _weak(module, "void", "weft_workspace_free", "ptr")
    size = module.size_type
    module.declare("aligned_alloc", f"declare ptr @aligned_alloc({size}, {size})")
    module.declare("free", "declare void @free(ptr)")
    module.support(
        "weft.workspace_alloc",
        lambda: f"""define internal noalias ptr @weft.workspace_alloc(i64 %nbytes) #0 {{
  %here = icmp ne ptr @weft_workspace_alloc, null
  br i1 %here, label %cached, label %plain
cached:
  %p = call ptr @weft_workspace_alloc(i64 %nbytes)
  ret ptr %p
plain:
  %more = add i64 %nbytes, 64
  %size = and i64 %more, -64
  {"%bytes = trunc i64 %size to i32" if size == "i32" else ""}
  %q = call ptr @aligned_alloc({size} 64, {size} {"%bytes" if size == "i32" else "%size"})
  ret ptr %q
}}
define internal void @weft.workspace_free(ptr %p) #0 {{
  %here = icmp ne ptr @weft_workspace_free, null
  br i1 %here, label %cached, label %plain
cached:
  call void @weft_workspace_free(ptr %p)
  ret void
plain:
  call void @free(ptr %p)
  ret void
}}""")  # fmt: skip
    pointer = s.effect(f"call ptr @weft.workspace_alloc(i64 {nbytes})", "ws")
    missing, there = s.label("nomem"), s.label("ok")
    s.branch(s.value(f"icmp eq ptr {pointer}, null"), missing, there)
    s.start(missing)
    s.leave("-2")
    s.start(there)
    return pointer


def request_tiles(s: FunctionEmitter, function: str) -> None:
    """Leave with an error where the process may not use matrix tiles: without leave their instructions end it."""
    module = s.module
    _weak(module, "i32", "weft_request_tiles", "")
    module.declare("syscall", "declare i64 @syscall(i64, ...)")
    for line in ("@.tiles_granted = internal global i32 0", "@__weft_needs_tiles = weak constant i8 1"):
        if line not in module.globals:
            module.globals.append(line)
    # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), as the runtime asks
    module.support("weft.request_tiles", lambda: """define internal i32 @weft.request_tiles() #2 {
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
}""")  # fmt: skip
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
    s.leave(s.effect(raise_error(module, module.string("RuntimeError"), text)))
    s.start(good)


def raise_error(module: ModuleEmitter, kind: str, message: str) -> str:
    """Return the call expression that raises an error; its value is -1. `kind` and `message` are symbols of strings."""
    _weak(module, "i32", "weft_set_error", "ptr, ptr")
    _weak(module, "void", "TVMFFIErrorSetRaisedFromCStr", "ptr, ptr")
    module.support("weft.set_error", lambda: """define internal i32 @weft.set_error(ptr %kind, ptr %message) #2 {
  %here = icmp ne ptr @weft_set_error, null
  br i1 %here, label %full, label %other
full:
  %rc = call i32 @weft_set_error(ptr %kind, ptr %message)
  ret i32 %rc
other:
  %ffi = icmp ne ptr @TVMFFIErrorSetRaisedFromCStr, null
  br i1 %ffi, label %plain, label %out
plain:
  call void @TVMFFIErrorSetRaisedFromCStr(ptr %kind, ptr %message)
  br label %out
out:
  ret i32 -1
}""")  # fmt: skip
    return f"call i32 @weft.set_error(ptr {kind}, ptr {message})"


def argument_error(
    module: ModuleEmitter, signature: str, text: str, arg: int, code: int, dim: int, expected: str, args: str, n: str
) -> str:
    """Return the call expression that raises the error of a failed argument check; its value is -1.

    `args` points to the arguments, of which there are `n`; `text` is the symbol of a message for processes without
    libweft_runtime, in which nothing can tell more.
    """
    _weak(module, "i32", "weft_arg_error", "ptr, i32, i32, i64, i64, ptr, i32")
    fallback = raise_error(module, "%kind", "%text")
    type_error, value_error = module.string("TypeError"), module.string("ValueError")
    module.support(
        "weft.arg_error",
        lambda: f"""define internal i32 @weft.arg_error(
    ptr %text, ptr %signature, i32 %arg, i32 %code, i64 %dim, i64 %expected, ptr %args, i32 %n) #2 {{
  %here = icmp ne ptr @weft_arg_error, null
  br i1 %here, label %full, label %plain
full:
  %rc = call i32 @weft_arg_error(ptr %signature, i32 %arg, i32 %code, i64 %dim, i64 %expected, ptr %args, i32 %n)
  ret i32 %rc
plain:
  %is_value = icmp ugt i32 %code, 3
  %kind = select i1 %is_value, ptr {value_error}, ptr {type_error}
  %set = {fallback}
  ret i32 %set
}}""")  # fmt: skip
    return (
        f"call i32 @weft.arg_error(ptr {text}, ptr {signature}, i32 {arg}, i32 {code}, i64 {dim}, i64 {expected}, "
        f"ptr {args}, i32 {n})"
    )
