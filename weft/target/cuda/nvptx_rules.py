"""What device code emits in a way of its own: thread axes, barriers, shuffles, memory of a thread and of a block."""

import math
import re
from collections.abc import Callable
from typing import Any

from weft.error import CodegenError
from weft.ir import CallIntrin, DataType, PrimExpr, Range, StringImm, as_int
from weft.registry import Registry
from weft.target.llvm.convert import convert
from weft.target.llvm.emitter import FunctionEmitter, ModuleEmitter
from weft.target.llvm.expr import guarded
from weft.target.llvm.stmt import STMT
from weft.target.llvm.types import llvm_type, memory_type
from weft.tir import AllocBuffer, AssertStmt, For, ForKind, Prefetch

INTRINSICS: Registry[Callable[[CallIntrin, Any], str]] = Registry("tir.")
"""Intrinsic to the rule that comes before that of target llvm."""
STATEMENTS: dict[type, Callable[[Any, Any], None]] = {}
"""Kind of statement to the rule that comes before that of target llvm."""

_SHARED_LIMIT = 49152  # bytes of shared memory that a kernel may have without asking for more at its launch
_LOCAL_LIMIT = 65536


class KernelEmitter(FunctionEmitter):
    """One kernel: the thread axes around the present place, and the shared memory taken so far."""

    def __init__(self, module: ModuleEmitter, name: str) -> None:
        super().__init__(module, name)
        self.bound_axes: frozenset[str] = frozenset()
        self.shared_bytes = 0


# --- threads ----------------------------------------------------------------------------------------------------------


def _loop(node: For, s: KernelEmitter) -> None:
    if node.kind is ForKind.SERIAL:
        rule = STMT.get(For)
        assert rule is not None
        rule(node, s)
        return
    if node.kind is not ForKind.THREAD_BINDING:
        raise CodegenError(f"a {node.kind.name.lower()} loop on a GPU", where=node.span, help="bind it to threads")
    assert node.thread_binding is not None
    tag = node.thread_binding.thread_tag
    kind, axis = tag.split(".")
    register = s.intrinsic(f"llvm.nvvm.read.ptx.sreg.{'ctaid' if kind == 'blockIdx' else 'tid'}.{axis}", "i32", [])
    dtype = DataType(node.loop_var.dtype)
    index = convert(s, register, DataType("int32"), dtype)
    if as_int(node.min) != 0:
        index = s.value(f"add {llvm_type(dtype)} {index}, {s.expr(node.min)}")
    s.env[node.loop_var] = index
    s.analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent), allow_override=True)
    outer = s.bound_axes
    s.bound_axes = outer | {tag}
    if tag in outer:
        _shared_work(node, index, s)
    else:
        STMT(node.body, s)
    s.bound_axes = outer


def _shared_work(node: For, index: str, s: KernelEmitter) -> None:
    """Emit the body for the threads that have an iteration."""
    then, end = s.label("then"), s.label("endif")
    last = s.expr(node.min + node.extent)
    s.branch(s.value(f"icmp slt {llvm_type(node.loop_var.dtype)} {index}, {last}"), then, end)
    with s.scope():
        s.start(then)
        STMT(node.body, s)
        s.jump(end)
    s.start(end)
    s.forget()


@INTRINSICS.on("tvm_storage_sync")
def _barrier(e: CallIntrin, s: FunctionEmitter) -> str:
    scope = e.args[0].value if e.args and isinstance(e.args[0], StringImm) else "shared"
    if scope == "warp":
        name, argument = "llvm.nvvm.bar.warp.sync", "-1"
    elif scope in ("shared", "shared.dyn"):
        name, argument = "llvm.nvvm.barrier.cta.sync.aligned.all", "0"
    else:
        raise CodegenError(
            f"threads cannot wait for each other at scope '{scope}'",
            where=e.span,
            expected="'shared' or 'warp'",
            help="launch another kernel",
        )
    s.module.declare(name, f"declare void @{name}(i32)")
    s.emit(f"call void @{name}(i32 {argument})")
    return "0"


_SHUFFLES = {"tvm_warp_shuffle": ("idx", 31), "tvm_warp_shuffle_up": ("up", 0), "tvm_warp_shuffle_down": ("down", 31)}


@INTRINSICS.on(*_SHUFFLES)
def _shuffle(e: CallIntrin, s: FunctionEmitter) -> str:
    """``shuffle(mask, value, lane or delta, width, warp size)``: the value of another thread of the warp."""
    mode, last = _SHUFFLES[e.op.name.removeprefix("tir.")]
    dt = DataType(e.dtype)
    args: list[PrimExpr] = list(e.args)
    given, value, at = args[:3]
    width = as_int(args[3]) if len(args) > 3 else 32
    if dt.lanes != 1 or width is None or width not in (1, 2, 4, 8, 16, 32):
        raise CodegenError(
            "a warp shuffle moves one number among 1, 2, 4, 8, 16 or 32 threads",
            where=e.span,
            found=f"{dt} among {args[3] if len(args) > 3 else 32}",
        )
    mask, lane = (convert(s, s.expr(a), DataType(a.dtype), DataType("uint32")) for a in (given, at))
    name = f"llvm.nvvm.shfl.sync.{mode}.i32"
    bits = _as_words(s.expr(value), dt, s)
    clamp = str((32 - width) << 8 | last)
    words = [s.call(name, "i32", [("i32", mask), ("i32", w), ("i32", lane), ("i32", clamp)]) for w in bits]
    return _from_words(words, dt, s)


def _as_words(value: str, dt: DataType, s: FunctionEmitter) -> list[str]:
    """Split the bits of a number into words of 32."""
    n, t = max(dt.bits, 8) if dt.code != "bool" else 1, llvm_type(dt)
    if dt.is_float and n >= 32:
        value = s.value(f"bitcast {t} {value} to i{n}")
    if n == 32:
        return [value]
    if n < 32:
        return [s.value(f"zext i{n} {value} to i32")]
    return [s.value(f"trunc i64 {value} to i32"), s.value(f"trunc i64 {s.value(f'lshr i64 {value}, 32')} to i32")]


def _from_words(words: list[str], dt: DataType, s: FunctionEmitter) -> str:
    n = dt.bits if dt.code != "bool" else 1
    value = words[0]
    if n < 32:
        return s.value(f"trunc i32 {value} to i{n}")
    if n == 64:
        low, high = (s.value(f"zext i32 {w} to i64") for w in words)
        value = s.value(f"or i64 {low}, {s.value(f'shl i64 {high}, 32')}")
    return s.value(f"bitcast i{n} {value} to {llvm_type(dt)}") if dt.is_float else value


@INTRINSICS.on("tvm_warp_activemask")
def _active(e: CallIntrin, s: FunctionEmitter) -> str:
    return convert(s, s.call("llvm.nvvm.activemask", "i32", []), DataType("uint32"), DataType(e.dtype))


# --- memory -----------------------------------------------------------------------------------------------------------


def _alloc(node: AllocBuffer, s: KernelEmitter) -> None:
    buffer = node.buffer
    count = math.prod(as_int(d) or 0 for d in buffer.shape) if None not in map(as_int, buffer.shape) else None
    n_bytes = None if count is None else count * DataType(buffer.dtype).itemsize
    shared = buffer.scope in ("shared", "shared.dyn")
    if count is None or n_bytes is None or not (shared or buffer.scope in ("local", "global", "")):
        raise CodegenError(
            f"cannot allocate '{buffer.name}' on a GPU",
            where=node.span,
            expected="a buffer of constant size, of scope 'shared' or 'local'",
            found=f"scope '{buffer.scope}', shape {buffer.shape}",
        )
    used = s.shared_bytes + n_bytes if shared else n_bytes
    limit = _SHARED_LIMIT if shared else _LOCAL_LIMIT
    if used > limit:
        raise CodegenError(
            f"'{buffer.name}' does not fit into the memory of a {'block' if shared else 'thread'}",
            where=node.span,
            expected=f"at most {limit} bytes in all",
            found=str(used),
            help="use smaller tiles",
        )
    array = f"[{max(count, 1)} x {memory_type(buffer.dtype)}]"
    if shared:
        s.shared_bytes = used
        plain = re.sub(r"\W", "_", buffer.name)
        symbol = f"@{s.name}_{plain}_{len(s.module.globals)}"
        s.module.globals.append(f"{symbol} = internal addrspace(3) global {array} poison, align 16")
        pointer = s.fresh("shared")
        s.allocas.append(f"  {pointer} = addrspacecast ptr addrspace(3) {symbol} to ptr")
    else:
        pointer = s.alloca(f"{array}, align 16")
    s.pointers[buffer.data] = pointer
    STMT(node.body, s)


def _skip(node: Prefetch, s: FunctionEmitter) -> None:
    """A prefetch is a hint, which threads that hide latency do not need."""


def _assert(node: AssertStmt, s: FunctionEmitter) -> None:
    raise CodegenError(
        "device code cannot report a failed assertion",
        where=node.span,
        found=f"assert {node.condition}",
        help="check it in host code before the launch",
    )


STATEMENTS.update({For: _loop, AllocBuffer: _alloc, Prefetch: _skip, AssertStmt: _assert})


# --- intrinsics -------------------------------------------------------------------------------------------------------


@INTRINSICS.on("prefetch")
def _prefetch(e: CallIntrin, s: FunctionEmitter) -> str:
    return "0"


@INTRINSICS.on("if_then_else")
def _if_then_else(e: CallIntrin, s: FunctionEmitter) -> str:
    """Evaluate only the side that is taken, by a branch that becomes a predicate."""
    return guarded(s, s.expr(e.args[0]), e.args[1], e.args[2])


@INTRINSICS.on("call_extern", "call_pure_extern", "tvm_call_packed", "call_packed", "tvm_call_cpacked")
def _host_call(e: CallIntrin, s: FunctionEmitter) -> str:
    name = e.args[0].value if e.args and isinstance(e.args[0], StringImm) else "?"
    raise CodegenError(
        f"device code cannot call the host's function '{name}' ({e.op.name})",
        where=e.span,
        help="call it outside of the loops that are bound to threads",
    )
