"""Ahead-of-time: a graph of kernels becomes one native function that calls them, and a graph of one node."""

from __future__ import annotations

from typing import Any

from weft import error, relax, runtime, tir
from weft.ir import Attrs, CallIntrin, DataType, IRModule, Op, StringImm, Var, int64
from weft.relax.vm.direct import kernel_signature
from weft.relay.graph import ALIGNMENT, VIEW, Entry, KernelGraph
from weft.target import Target


def compile_ahead(
    graph: KernelGraph, storage: dict[Entry, int], kernels: IRModule, target: Target, name: str
) -> tuple[KernelGraph, runtime.Module | None]:
    """Compile the calls of a graph to one function.

    Parameters
    ----------
    graph : KernelGraph
        The graph.
    storage : dict of Entry to int
        Its storage; what is neither input nor result becomes a place in the function's arena.
    kernels : IRModule
        The TIR functions that it calls.
    target : Target
        A CPU.
    name : str
        The function's name. It takes inputs, constants and results.

    Returns
    -------
    (KernelGraph, Module or None)
        A graph whose only call is that of the function, and the code. No call, no function: None.
    """
    inputs = [Entry(i) for i, n in enumerate(graph.nodes) if n.function is None]
    results = list(dict.fromkeys(e for h in graph.heads if not graph.is_input(e := graph.source(h))))
    outer = KernelGraph(params=graph.params)
    known = {e: outer.add(graph.nodes[e.node].name, None, (), graph.nodes[e.node].outputs)[0] for e in inputs}
    code = None
    if any(n.function not in (None, VIEW) for n in graph.nodes):
        entry = _entry(graph, storage, kernels, target, name, [*inputs, *results])
        code = relax.compile_with_callers(IRModule({name: entry}), kernels, target)
        outputs = outer.add(name, name, [known[e] for e in inputs], [graph.type_of(e) for e in results])
        known.update(zip(results, outputs, strict=True))
    for head in graph.heads:
        if head not in known:
            view = graph.nodes[head.node]
            known[head] = outer.add(view.name, VIEW, [known[graph.source(head)]], view.outputs)[0]
    outer.heads = [known[h] for h in graph.heads]
    return outer, code


def _entry(
    graph: KernelGraph, storage: dict[Entry, int], kernels: IRModule, target: Target, name: str, args: list[Entry]
) -> tir.PrimFunc:
    """Write the function, in lowered form."""
    if target.kind.compile is None:
        raise error.LoweringError(
            "ahead-of-time compilation is for CPUs", found=f"target '{target.kind}'", help="use executor='graph'"
        )
    buffers = [tir.decl_buffer(shape, dtype, f"a{i}") for i, (shape, dtype) in enumerate(map(graph.type_of, args))]
    data: dict[Entry, Any] = {e: b.data for e, b in zip(args, buffers, strict=True)}
    places, n_bytes = tensor_places(graph, storage, set(args))
    arena = tir.decl_buffer((int64(n_bytes),), "uint8", "arena")

    def address(entry: Entry) -> Any:
        source = graph.source(entry)
        if source in data:
            return data[source]
        load = tir.BufferLoad(arena, (int64(places[source]),))
        return CallIntrin(DataType("handle"), Op.get("tir.address_of"), (load,))

    calls = []
    for at, node in enumerate(graph.nodes):
        if node.function in (None, VIEW):
            continue
        _check_callable(kernels, node.function)
        operands = [address(e) for e in (*node.inputs, *(Entry(at, k) for k in range(len(node.outputs))))]
        args_of_call = (StringImm(node.function), int64(0), *operands)
        calls.append(tir.Evaluate(CallIntrin(DataType("void"), Op.get("tir.call_kernel"), args_of_call)))
    body = tir.seq(*calls)
    if n_bytes:
        body = tir.AllocBuffer(arena, body, Attrs.of({"stack_bytes": target.machine.stack_buffer_bytes}))
    params = [Var(b.name, "handle") for b in buffers]
    attrs = Attrs.of({"global_symbol": name, "tir.noalias": False})
    return tir.PrimFunc(tuple(params), body, buffer_map=tuple(zip(params, buffers, strict=True)), attrs=attrs)


def tensor_places(graph: KernelGraph, storage: dict[Entry, int], given: set[Entry]) -> tuple[dict[Entry, int], int]:
    """Lay the storages of tensors that are not arguments one behind the other."""
    inner = [e for e in storage if graph.nodes[e.node].function != VIEW and e not in given]
    sizes: dict[int, int] = {}
    for e in inner:
        sizes[storage[e]] = max(sizes.get(storage[e], 0), -(-graph.n_bytes(e) // ALIGNMENT) * ALIGNMENT)
    offsets, total = dict[int, int](), 0
    for s, size in sizes.items():
        offsets[s] = total
        total += size
    return {e: offsets[storage[e]] for e in inner}, total


def _check_callable(kernels: IRModule, name: str) -> None:
    func = kernels[name] if name in kernels else None
    if not isinstance(func, tir.PrimFunc) or kernel_signature(func) is None:
        raise error.LoweringError(
            f"'{name}' cannot be called ahead of time",
            expected="a kernel on compact tensors",
            help="use executor='graph'",
        )
