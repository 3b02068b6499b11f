"""Kernels for devices in a language like C: threads, memory that a block shares, the function around."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from weft import error, ir, tir
from weft.target.clike.emitter import Emitter
from weft.target.clike.stmt import STMT
from weft.target.gpu import AXES, dynamic_bytes, launch_extents


def address(e: ir.CallIntrin, s: Emitter) -> str:
    """``tir.address_of``."""
    if not isinstance(e.args[0], tir.BufferLoad):
        raise s.refuse(e)
    return f"(&{s.element(e.args[0].buffer, e.args[0].indices)})"


def external(e: ir.CallIntrin, s: Emitter) -> str:
    """``tir.call_extern``: a function that the program declares elsewhere, or the language has."""
    if not isinstance(e.args[0], ir.StringImm):
        raise s.refuse(e)
    return f"{e.args[0].value}({', '.join(s.expr(a) for a in e.args[1:] if isinstance(a, ir.PrimExpr))})"


class DeviceEmitter(Emitter):
    """The state of emission of a kernel, and the thread axes around."""

    libm = Emitter.libm | {"expm1", "cbrt", "rsqrt"}
    computed_as: ClassVar = {"float16": "float32", "bfloat16": "float32"}
    special: ClassVar = {"address_of": address, "call_extern": external, "call_pure_extern": external}
    thread_axes: ClassVar[Mapping[str, str]]
    """By the tag of an axis (``"threadIdx.x"``), what a thread reads to know its place."""
    shared_prefix: ClassVar[str]
    """What stands before the declaration of memory that the threads of a block share."""
    global_space: ClassVar[str] = ""
    shared_space: ClassVar[str] = ""
    """What stands before the type of a pointer to memory of the device, or to what a block shares."""
    exactly: ClassVar[str] = ""
    """What stands before a variable whose value no optimiser may compute in another order."""
    has_dynamic_shared: ClassVar[bool] = True
    """Whether shared memory whose bytes the launch gives is one array, ``weft_shared``, or as other shared memory."""

    def __init__(self) -> None:
        super().__init__()
        self.declared: list[str] = []  # lines at the top of the function
        self.axes: dict[str, ir.PrimExpr] = {}  # the thread axes around the current statement, and their extents
        self.dynamic_shared = 0  # bytes

    def body(self, func: tir.PrimFunc) -> list[ir.Var]:
        """Emit the body of a device function, as ``lower_for_gpu`` makes them; return its parameters."""
        buffers, params = dict(func.buffer_map), list[ir.Var]()
        for p in func.params:
            buffer = buffers.get(p)
            params.append(p if buffer is None else buffer.data)
            self.fresh(params[-1])
            if buffer is not None:
                self.pointers[params[-1]] = self.memory_type(buffer.dtype, buffer)
                self.spaces[params[-1]] = self.global_space
        self.stmt(func.body)
        return params

    def function(self, func: tir.PrimFunc, restrict: str) -> str:
        """Emit the body of a device function; return the text of its parameters."""
        params = self.body(func)
        # NVRTC 12 and 13 make `c ? given[i] : made[j]` one load, stale for `made`, where `given` is const __restrict__.
        given = self.stored.intersection(params)
        changed = any(isinstance(n, tir.BufferLoad) and n.buffer.data in given for n in ir.walk(func.body))
        restrict = restrict if func.attrs.get("tir.noalias") and not changed else ""
        return ", ".join(self._parameter(p, restrict) for p in params)

    def _parameter(self, var: ir.Var, restrict: str) -> str:
        if var not in self.pointers:
            return f"{self.memory_type(var.dtype, var)} {self.names[var]}"
        const = "" if var in self.stored else "const "
        return f"{self.spaces[var]}{const}{self.pointers[var]}*{restrict} {self.names[var]}"

    def allocate(self, buffer: tir.Buffer, of: str, size: int) -> None:
        """Declare a buffer of so many elements of a type: a thread's own, or one that a block shares."""
        name, shared = self.fresh(buffer.data), buffer.scope.startswith("shared")
        self.spaces[buffer.data] = space = self.shared_space if shared else ""
        if buffer.scope == "shared.dyn" and self.has_dynamic_shared:
            self.emit(f"{space}{of}* {name} = ({space}{of}*)(weft_shared + {self.dynamic_shared});")
            self.dynamic_shared += dynamic_bytes(buffer)
        elif shared:
            self.declared.append(f"  {self.shared_prefix}{of} {name}[{size}];")
        else:
            self.emit(f"{of} {name}[{size}];")

    def bounds(self, func: tir.PrimFunc, max_threads: int) -> list[int] | None:
        """Check the threads of a device function; return how many there are along x, y, z, where all are known."""
        extents = launch_extents(func, max_threads)
        sizes = [ir.as_int(extents[tag]) if tag in extents else 1 for tag in AXES[3:]]
        return None if None in sizes else [n for n in sizes if n is not None]


def let(e: ir.Let, s: DeviceEmitter) -> str:
    """``Let`` where no expression declares a variable: it is declared above, and a comma follows its assignment."""
    value, name = s.expr(e.value), s.fresh(e.var)
    s.declared.append(f"  {s.exactly}{s.type_of(e.var.dtype, e)} {name};")
    return f"({name} = {value}, {s.expr(e.body)})"


DEVICE_STMT = ir.Dispatch("device statement like C's", (tir.Stmt,), default=STMT.default, extends=STMT)


@DEVICE_STMT.on(tir.SeqStmt)
def _seq(node: tir.SeqStmt, s: DeviceEmitter) -> None:
    for x in node.seq:
        s.nested("", x)  # whose registers and shared memory are free behind it


@DEVICE_STMT.on(tir.AllocBuffer)
def _alloc(node: tir.AllocBuffer, s: DeviceEmitter) -> None:
    buffer, sizes = node.buffer, [ir.as_int(d) for d in node.buffer.shape]
    if buffer.scope not in ("local", "global", "", "shared", "shared.dyn") or None in sizes:
        raise error.CodegenError(
            f"target {s.target} cannot allocate '{buffer.name}' in a kernel",
            where=node.span,
            expected="a buffer of one thread or a shared one, of constant size",
            found=f"scope {buffer.scope}, shape {buffer.shape}",
        )
    s.pointers[buffer.data] = of = s.memory_type(buffer.dtype, node)
    s.allocate(buffer, of, max(1, math.prod(d for d in sizes if d is not None)))
    s.stmt(node.body)


@DEVICE_STMT.on(tir.For)
def _for(node: tir.For, s: DeviceEmitter) -> None:
    low, of = s.expr(node.min), s.type_of(node.loop_var.dtype, node)
    if node.kind is tir.ForKind.THREAD_BINDING:
        _bound(node, low, of, s)
        return
    if node.kind is tir.ForKind.UNROLLED:
        s.emit("#pragma unroll")
    end, name = s.expr(node.min + node.extent), s.fresh(node.loop_var)
    s.nested(f"for ({of} {name} = {low}; {name} < {end}; ++{name})", node.body)


def _bound(node: tir.For, low: str, of: str, s: DeviceEmitter) -> None:
    assert node.thread_binding is not None
    tag = node.thread_binding.thread_tag
    s.define(node.loop_var, s.cast(of, s.thread_axes[tag]) + ("" if ir.as_int(node.min) == 0 else f" + {low}"))
    if tag in s.axes:  # work that the threads share: each does one iteration of it
        all_work = ir.structural_equal(node.extent, s.axes[tag])
        s.nested("" if all_work else f"if ({s.names[node.loop_var]} < {s.expr(node.min + node.extent)})", node.body)
        return
    s.axes[tag] = node.extent
    s.stmt(node.body)
    del s.axes[tag]
