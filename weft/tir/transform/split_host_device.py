"""SplitHostDevice: what is bound to device threads becomes functions of its own, which the rest launches."""

from __future__ import annotations

from typing import Any

from weft.error import LoweringError
from weft.ir import Attrs, IRModule, Node, PrimExpr, Var, find, module_pass, rebuild, substitute, walk
from weft.spelling import unused_name
from weft.tir.analysis.structure import replace_node
from weft.tir.analysis.verify import undefined_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import call_packed
from weft.tir.stmt import BufferStore, Evaluate, For, ForKind, Stmt

_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


@module_pass(name="SplitHostDevice")
def split_host_device(mod: IRModule) -> IRModule:
    """Put each nest of thread-bound loops into a function, and a call with the launch extents in its place.

    A device function has the attributes ``tir.is_global_func``, ``calling_conv`` (2, as TVM numbers device kernels)
    and ``tir.kernel_launch_params``, the thread tags whose extents follow the arguments of the call.

    Requires: No blocks.
    Ensures: The same form; host functions have no thread-bound loop. Parameters of a device function are the buffers it
        uses, in order of their first use, then the scalars.
    Before::

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            for i in T.thread_binding(4, thread="blockIdx.x"):
                for j in T.thread_binding(16, thread="threadIdx.x"):
                    B[i * 16 + j] = A[i * 16 + j] + 1.0

    After::

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            T.call_packed("f_kernel", B, A, 4, 16)

        @T.prim_func
        def f_kernel(B: T.Buffer((64,), "float32"), A: T.Buffer((64,), "float32")):
            T.func_attr({"calling_conv": 2, "tir.is_global_func": True,
                         "tir.kernel_launch_params": ["blockIdx.x", "threadIdx.x"]})
            for i in T.thread_binding(4, thread="blockIdx.x"):
                for j in T.thread_binding(16, thread="threadIdx.x"):
                    B[i * 16 + j] = A[i * 16 + j] + 1.0
    Cost: Linear in statements.
    Source: TVM's ``AnnotateDeviceRegions``, ``SplitHostDevice`` and ``LowerDeviceKernelLaunch``.
    """
    functions: dict[str, Any] = {}
    kernels: dict[str, PrimFunc] = {}
    for var, func in mod.items():
        name = var.name_hint
        if isinstance(func, PrimFunc) and not func.attrs.get("tir.is_global_func"):
            splitter = _Splitter(mod, str(func.attrs.get("global_symbol") or name), func, kernels)
            body = splitter.visit(func.body)
            func = func.replace(body=body)
        functions[name] = func
    return mod.with_functions({**functions, **kernels})


class _Splitter:
    def __init__(self, mod: IRModule, name: str, func: PrimFunc, kernels: dict[str, PrimFunc]) -> None:
        self.mod, self.name, self.func, self.kernels = mod, name, func, kernels

    def visit(self, node: Node) -> Any:
        """Replace the outermost thread-bound loops."""
        if not isinstance(node, Stmt):
            return node
        if isinstance(node, For) and node.kind == ForKind.THREAD_BINDING:
            return self.launch(node)
        return rebuild(node, self.visit)

    def launch(self, nest: For) -> Stmt:
        """Make a kernel of a nest and return the call that launches it."""
        extents = _extents(nest)
        buffers, scalars = _free(nest)
        fresh: dict[Any, Any] = {v: replace_node(v) for v in scalars}
        copies = []
        for b in buffers:
            fresh[b.data] = replace_node(b.data)
            copies.append(substitute(replace_node(b, data=fresh[b.data]), fresh))
        fresh.update(zip(buffers, copies, strict=True))
        handles = [Var(f"{b.name}_handle", "handle") for b in buffers]
        tags = [t for t in _TAGS if t in extents]
        attrs: dict[str, Any] = {"calling_conv": 2, "tir.is_global_func": True, "tir.kernel_launch_params": tuple(tags)}
        if self.func.attrs.get("target") is not None:
            attrs["target"] = self.func.attrs["target"]
        if self.func.attrs.get("tir.noalias"):
            attrs["tir.noalias"] = True
        name = unused_name(f"{self.name}_kernel", {*self.kernels, *(v.name_hint for v in self.mod)})
        if self.func.attrs.get("global_symbol"):
            attrs["global_symbol"] = name
        params = (*handles, *(fresh[v] for v in scalars))
        self.kernels[name] = PrimFunc(
            params, substitute(nest, fresh), None, tuple(zip(handles, copies, strict=True)), Attrs.of(attrs)
        )
        return Evaluate(call_packed(name, *buffers, *scalars, *(extents[t] for t in tags)))


def _extents(nest: For) -> dict[str, PrimExpr]:
    """Return the extent of each thread axis; they are known before the launch."""
    extents: dict[str, PrimExpr] = {}
    inside = {n.loop_var for n in find(nest, For)}
    for loop in walk(nest):
        if isinstance(loop, For) and loop.kind == ForKind.THREAD_BINDING:
            assert loop.thread_binding is not None
            if any(n in inside or isinstance(n, BufferLoad) for n in walk(loop.extent)):
                raise LoweringError(
                    f"the extent of '{loop.thread_binding.thread_tag}' is known only on the device",
                    found=str(loop.extent),
                    where=loop.span,
                )
            extents.setdefault(loop.thread_binding.thread_tag, loop.extent)
    return extents


def _free(nest: Stmt) -> tuple[list[Buffer], list[Var]]:
    """List the buffers and scalars that a statement takes from outside, in order of their first use."""
    free = dict.fromkeys(undefined_vars(nest))
    accesses = (n for n in find(nest, BufferLoad, BufferStore) if n.buffer.data in free)
    buffers = list(dict.fromkeys(n.buffer for n in accesses))
    data = {b.data for b in buffers}
    return buffers, [v for v in free if v not in data]
