"""A module for a GPU to two: host functions that launch kernels, and the kernels.

Thread-bound loops become device functions (``SplitHostDevice``), which take pointers and scalars in the order of their
parameters, then the extents of their thread axes at launch. What is left for the host launches them by name with raw
pointers and touches no memory of the device itself. Buffers that kernels pass to each other are workspaces of the
device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from weft import error, ir, runtime, tir
from weft.target.target import Target
from weft.tir.analysis import replace_node
from weft.tir.pipeline import lower_module
from weft.tir.transform import NarrowDataType, lower_intrin, split_host_device, thread_sync

_DYNAMIC = "tir.use_dyn_shared_memory"
_ON_CHIP = ("local", "shared", "warp", "shared.dyn", "wmma")


class SplitModule(NamedTuple):
    """Host functions, and the device functions that they launch."""

    host: ir.IRModule
    device: dict[str, tir.PrimFunc]


def lower_for_gpu(mod: ir.IRModule, target: Target) -> SplitModule:
    """Lower the functions of a module, in block form or later, and split them.

    Host functions have the attributes ``tir.device_type`` (DLPack's number of the target's kind of device: arguments
    are checked to be tensors of one such device, on which kernels then run) and ``tir.kernels`` (names to look up in
    the module's imports). Functions with the attribute ``tir.is_host_func`` are the host's alone and take its memory.

    Device functions are flat (one index for each access, of type int32 where bounds allow it), scalar and without
    blocks. ``buffer_map`` gives the type of each pointer; loops are thread-bound, serial or unrolled; barriers are
    ``tir.tvm_storage_sync``.

    Raises
    ------
    CodegenError
        When the host would touch memory of the device: some loop is not bound to threads.
    """
    kind = target.kind.name
    mod = mod.with_functions({v.name_hint: _with_bound_loops(f) for v, f in mod.items()})
    syncs = [thread_sync(scope) for scope in ("shared", "shared.dyn")]
    finishing = ir.Sequential([*syncs, lower_intrin(target=kind)], name=f"{kind}.lower")
    split = split_host_device()(_sunk(finishing(lower_module(mod, target))))
    host: dict[str, Any] = {}
    device: dict[str, tir.PrimFunc] = {}
    for var, func in split.items():
        if not isinstance(func, tir.PrimFunc):
            continue
        if func.attrs.get("tir.is_global_func"):
            device[var.name_hint] = _with_dynamic_shared(func)
        else:
            host[var.name_hint] = func
    device_type = runtime.Device(target.kind.device).device_type
    host = {
        name: func if func.attrs.get("tir.is_host_func") else _host(name, func, device, device_type)
        for name, func in host.items()
    }
    narrow = NarrowDataType(32)(ir.IRModule(device))  # a GPU multiplies 64 bits by several instructions
    return SplitModule(ir.IRModule(host), {v.name_hint: f for v, f in narrow.items() if isinstance(f, tir.PrimFunc)})


def _with_bound_loops(func: Any) -> Any:
    """Attributes that bind a thread axis (``T.launch_thread``) become loops over it."""

    def visit(node: Any) -> Any:
        if not isinstance(node, tir.Stmt):
            return node
        node = ir.rebuild(node, visit)
        if not (isinstance(node, tir.AttrStmt) and node.attr_key in ("thread_extent", "virtual_thread")):
            return node
        axis: Any = node.node
        if not isinstance(axis, ir.IterVar) or not axis.thread_tag:
            return node
        var = replace_node(axis.var)
        zero, body = ir.const(0, var.dtype), ir.substitute(node.body, {axis.var: var})
        return tir.For(
            var, zero, ir.cast(var.dtype, node.value), tir.ForKind.THREAD_BINDING, body, replace_node(axis, var=var)
        )

    return _rewritten(func, visit)


def _rewritten(func: Any, visit: Callable[[tir.Stmt], Any]) -> Any:
    """A TIR function with another body, itself where nothing changes; any other function as it is."""
    body = visit(func.body) if isinstance(func, tir.PrimFunc) else None
    return func if body is None or body is func.body else func.replace(body=body)


def _sunk(mod: ir.IRModule) -> ir.IRModule:
    """Allocations of on-chip memory around a nest of thread-bound loops go inside it."""

    def visit(node: Any) -> Any:
        if not isinstance(node, tir.Stmt):
            return node
        node = ir.rebuild(node, visit)
        if isinstance(node, tir.AllocBuffer) and node.buffer.scope.startswith(_ON_CHIP):
            return _inside(node.body, node.buffer)
        return node

    return mod.with_functions({v.name_hint: _rewritten(f, visit) for v, f in mod.items()})


def _inside(body: tir.Stmt, buffer: tir.Buffer) -> tir.Stmt:
    if isinstance(body, tir.For) and body.kind is tir.ForKind.THREAD_BINDING:
        return replace_node(body, body=_inside(body.body, buffer))
    return tir.AllocBuffer(buffer, body)


def dynamic_bytes(buffer: tir.Buffer) -> int:
    """Return the bytes of dynamic shared memory that a buffer of constant size takes."""
    size = math.prod((ir.as_int(d) or 0 for d in buffer.shape), start=ir.DataType(buffer.dtype).itemsize)
    return max(1, -(-size // 16)) * 16


def dynamic_shared(func: tir.PrimFunc) -> int:
    """Return the bytes of dynamic shared memory that a launch of a device function gives each block."""
    return sum(
        dynamic_bytes(n.buffer)
        for n in ir.walk(func.body)
        if isinstance(n, tir.AllocBuffer) and n.buffer.scope == "shared.dyn"
    )


def _with_dynamic_shared(func: tir.PrimFunc) -> tir.PrimFunc:
    """A kernel with dynamic shared memory takes its bytes at launch."""
    tags = tuple(func.attrs["tir.kernel_launch_params"])
    if not dynamic_shared(func) or _DYNAMIC in tags:
        return func
    return func.with_attr("tir.kernel_launch_params", (*tags, _DYNAMIC))


# --- the host's half --------------------------------------------------------------------------------------------------


def _host(name: str, func: tir.PrimFunc, device: dict[str, tir.PrimFunc], device_type: int) -> tir.PrimFunc:
    kernels: list[str] = []
    pointers = {b.data for _, b in func.buffer_map}

    def visit(node: Any) -> Any:
        if isinstance(node, tir.AllocBuffer) and _used_by_kernels(node, device):
            pointers.add(node.buffer.data)
            return _workspace(node.buffer, visit(node.body))
        if isinstance(node, tir.Evaluate) and (kernel := _launched(node, device)) is not None:
            assert isinstance(node.value, ir.CallIntrin)
            kernels.append(kernel)
            args = [a.data if isinstance(a, tir.Buffer) else a for a in node.value.args[1:]]
            shared = dynamic_shared(device[kernel])
            return tir.Evaluate(tir.call_packed(kernel, *args, *([shared] if shared else [])))
        return ir.rebuild(node, visit) if isinstance(node, tir.Stmt) else node

    body = visit(func.body)
    for access in ir.walk(body):
        if isinstance(access, (tir.BufferLoad, tir.BufferStore)) and access.buffer.data in pointers:
            raise error.CodegenError(
                f"'{name}' accesses GPU memory outside of GPU threads: did you forget to bind?",
                where=access.span,
                expected="loops bound to blockIdx and threadIdx around every access",
                found=f"an access to '{access.buffer.name}' on the host",
                help="bind its loops: s[C].bind(axis, te.thread_axis('blockIdx.x'))",
            )
    func = func.replace(body=body).with_attr("tir.device_type", device_type)
    return func.with_attr("tir.kernels", tuple(dict.fromkeys(kernels)))


def _launched(node: tir.Evaluate, device: dict[str, tir.PrimFunc]) -> str | None:
    """The kernel that a statement launches."""
    call = node.value
    if isinstance(call, ir.CallIntrin) and call.args and isinstance(call.args[0], ir.StringImm):
        return call.args[0].value if call.args[0].value in device else None
    return None


def _used_by_kernels(node: tir.AllocBuffer, device: dict[str, tir.PrimFunc]) -> bool:
    return any(
        isinstance(n, tir.Evaluate)
        and _launched(n, device) is not None
        and any(isinstance(a, tir.Buffer) and a.data is node.buffer.data for a in n.value.args)  # type: ignore[attr-defined]
        for n in ir.walk(node.body)
    )


def _workspace(buffer: tir.Buffer, body: tir.Stmt) -> tir.Stmt:
    """Memory of the current device around a statement."""
    size: ir.PrimExpr = math.prod(
        (ir.cast("int64", d) for d in buffer.shape), start=ir.int64(ir.DataType(buffer.dtype).itemsize)
    )
    make = tir.call_packed("weft.device_workspace_alloc", size)
    free = tir.Evaluate(tir.call_packed("weft.device_workspace_free", buffer.data))
    return tir.LetStmt(buffer.data, replace_node(make, dtype="handle"), tir.seq(body, free))
