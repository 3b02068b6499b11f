"""Device functions to CUDA C: statements, functions and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from weft import tir
from weft.error import CodegenError
from weft.ir import CallIntrin, Dispatch, IntImm, IRModule, PrimExpr, Var, as_int, const, walk
from weft.target.cuda.expr import EXPR, Emitter, c_type
from weft.target.cuda.lower import dynamic_bytes, lower_for_gpu
from weft.target.cuda.prelude import HALF, PRELUDE
from weft.target.cuda.threads import AXES, launch_extents
from weft.target.target import Target

__all__ = ["Kernel", "emit_cuda", "emit_function", "emit_kernel"]


class Kernel(NamedTuple):
    """A kernel: its text, the host's variables that it takes in order (pointers and scalars), and its launch."""

    name: str
    source: str
    params: tuple[Var, ...]
    grid: tuple[PrimExpr, PrimExpr, PrimExpr]
    block: tuple[PrimExpr, PrimExpr, PrimExpr]


def _not_stmt(node: tir.Stmt, s: Emitter) -> None:
    raise CodegenError(f"target cuda has no code for {type(node).__name__} yet", where=node.span)


_STMT = Dispatch("CUDA statement", (tir.Stmt,), default=_not_stmt)


def _nested(s: Emitter, opening: str, body: tir.Stmt) -> None:
    s.emit(opening + " {" if opening else "{")
    s.depth += 1
    _STMT(body, s)
    s.depth -= 1
    s.emit("}")


# --- statements -------------------------------------------------------------------------------------------------------


@_STMT.on(tir.SeqStmt)
def _seq(node: tir.SeqStmt, s: Emitter) -> None:
    for x in node.seq:
        _nested(s, "", x)


@_STMT.on(tir.BufferStore)
def _store(node: tir.BufferStore, s: Emitter) -> None:
    c_type(node.value.dtype, node)
    if node.predicate is not None:
        _not_stmt(node, s)
    s.emit(f"{s.element(node.buffer, node.indices)} = {EXPR(node.value, s)};")
    s.stored.add(node.buffer.data)


@_STMT.on(tir.LetStmt)
def _let(node: tir.LetStmt, s: Emitter) -> None:
    s.define(node.var, EXPR(node.value, s))
    _STMT(node.body, s)


@_STMT.on(tir.AttrStmt, tir.DeclBuffer)
def _around(node: tir.AttrStmt, s: Emitter) -> None:
    _STMT(node.body, s)


@_STMT.on(tir.Evaluate)
def _evaluate(node: tir.Evaluate, s: Emitter) -> None:
    if not isinstance(node.value, IntImm):
        s.emit(f"{EXPR(node.value, s)};")


@_STMT.on(tir.IfThenElse)
def _if(node: tir.IfThenElse, s: Emitter) -> None:
    _nested(s, f"if ({EXPR(node.condition, s)})", node.then_case)
    if node.else_case is not None:
        _nested(s, "else", node.else_case)


@_STMT.on(tir.While)
def _while(node: tir.While, s: Emitter) -> None:
    _nested(s, f"while ({EXPR(node.condition, s)})", node.body)


@_STMT.on(tir.AllocBuffer)
def _alloc(node: tir.AllocBuffer, s: Emitter) -> None:
    buffer, sizes = node.buffer, [as_int(d) for d in node.buffer.shape]
    if buffer.scope not in ("local", "global", "", "shared", "shared.dyn") or None in sizes:
        raise CodegenError(
            f"target cuda cannot allocate '{buffer.name}' in a kernel",
            where=node.span,
            expected="a buffer of one thread or a shared one, of constant size",
            found=f"scope {buffer.scope}, shape {buffer.shape}",
        )
    of, size = c_type(buffer.dtype, node), max(1, math.prod(d for d in sizes if d is not None))
    s.pointers[buffer.data] = of
    name = s.fresh(buffer.data)
    if buffer.scope == "shared.dyn":
        s.emit(f"{of}* {name} = ({of}*)(weft_shared + {s.dynamic_shared});")
        s.dynamic_shared += dynamic_bytes(buffer)
    else:
        s.emit(f"{'__shared__ ' if buffer.scope == 'shared' else ''}{of} {name}[{size}];")
    _STMT(node.body, s)


@_STMT.on(tir.For)
def _for(node: tir.For, s: Emitter) -> None:
    low, of = EXPR(node.min, s), c_type(node.loop_var.dtype, node)
    if node.kind is tir.ForKind.THREAD_BINDING:
        assert node.thread_binding is not None
        tag = node.thread_binding.thread_tag
        base = f"({of}){tag}" + ("" if as_int(node.min) == 0 else f" + {low}")
        s.define(node.loop_var, base)
        if tag in s.axes:  # work that the threads share: each does one iteration of it
            _nested(s, f"if ({s.names[node.loop_var]} < {EXPR(node.min + node.extent, s)})", node.body)
            return
        s.axes.add(tag)
        _STMT(node.body, s)
        s.axes.discard(tag)
        return
    if node.kind is tir.ForKind.PARALLEL:
        raise CodegenError("a parallel loop on target cuda", where=node.span, help="bind it")
    if node.kind is tir.ForKind.UNROLLED:
        s.emit("#pragma unroll")
    end, name = EXPR(node.min + node.extent, s), s.fresh(node.loop_var)
    _nested(s, f"for ({of} {name} = {low}; {name} < {end}; ++{name})", node.body)


# --- functions --------------------------------------------------------------------------------------------------------


def emit_function(func: tir.PrimFunc, max_threads: int = 1024) -> str:
    """Write a device function, as ``lower_for_gpu`` makes them, without the prelude."""
    extents = launch_extents(func, max_threads)
    s = Emitter()
    buffers = dict(func.buffer_map)
    for p in func.params:
        buffer = buffers.get(p)
        var = p if buffer is None else buffer.data
        s.params.append(var)
        s.fresh(var)
        if buffer is not None:
            s.pointers[var] = c_type(buffer.dtype, buffer)
    _STMT(func.body, s)
    restrict = " __restrict__" if func.attrs.get("tir.noalias") else ""
    params: list[str] = []
    for p in s.params:
        pointee = s.pointers.get(p)
        const_ = "" if p in s.stored else "const "
        of = f"{const_}{pointee}*{restrict}" if pointee else c_type(p.dtype, p)
        params.append(f"{of} {s.names[p]}")
    sizes = [as_int(extents[tag]) for tag in AXES[3:] if tag in extents]
    bounds = f" __launch_bounds__({math.prod(n for n in sizes if n)})" if sizes and None not in sizes else ""
    head = f'extern "C" __global__ void{bounds} {func.attrs["global_symbol"]}({", ".join(params)}) {{'
    shared = ["  extern __shared__ __align__(16) unsigned char weft_shared[];"] if s.dynamic_shared else []
    return "\n".join([head, *shared, *s.lines, "}", ""])


def emit_cuda(functions: Mapping[str, tir.PrimFunc], max_threads: int = 1024) -> str:
    """Write device functions as one program of CUDA C; a block of a kernel may have `max_threads` threads."""
    body = "\n".join(emit_function(f.with_attr("global_symbol", name), max_threads) for name, f in functions.items())
    return "\n".join([PRELUDE, *([HALF] if "float16" in body else []), body])


def emit_kernel(func: tir.PrimFunc) -> Kernel:
    """Lower a function that is one nest of thread-bound loops and write it as CUDA C.

    Parameters
    ----------
    func : PrimFunc
        In block form or lowered, scheduled with ``bind``.

    Raises
    ------
    CodegenError
        When a loop is not bound to threads, or for what target cuda does not express yet.
    """
    symbol = func.attrs.get("global_symbol") or "main"
    host, device = lower_for_gpu(IRModule({symbol: func}), Target("cuda"))
    if len(device) != 1:
        raise CodegenError(
            f"'{symbol}' is not one kernel", found=f"{len(device)} nests of bound loops", where=func.span
        )
    ((name, kernel),) = device.items()
    (call,) = [n for n in walk(host[symbol]) if isinstance(n, CallIntrin) and getattr(n.args[0], "value", "") == name]
    given, params = call.args[1:], len(kernel.params)
    extents = dict(zip(kernel.attrs["tir.kernel_launch_params"], given[params:], strict=True))
    axes = [extents.get(tag, const(1, "int32")) for tag in AXES]
    return Kernel(name, emit_cuda(device), tuple(given[:params]), tuple(axes[:3]), tuple(axes[3:]))
