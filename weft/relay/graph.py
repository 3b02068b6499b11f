"""A first-order function as a graph of kernels: made of legalized Relax, given storage, written as JSON.

The JSON is what :mod:`weft.runtime.graph_executor` runs, in Apache TVM's format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from weft import error, ir, runtime
from weft.spelling import take_name
from weft.tir.custom_datatype import stored_as

VIEW = "__nop"  # the function of nodes that give their input another shape
ALIGNMENT = 64


@dataclass(frozen=True)
class Entry:
    """A tensor: output `index` of node `node`."""

    node: int
    index: int = 0


@dataclass(frozen=True)
class GraphNode:
    """An input (`function` is None), or a call of a kernel on `inputs` that fills `outputs`."""

    name: str
    function: str | None
    inputs: tuple[Entry, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of each."""


@dataclass
class KernelGraph:
    """Nodes in the order in which they run, the results, and constants by the names of their inputs."""

    nodes: list[GraphNode] = field(default_factory=list)
    heads: list[Entry] = field(default_factory=list)
    params: dict[str, runtime.Tensor] = field(default_factory=dict)

    def add(self, name: str, function: str | None, inputs: Sequence[Entry], outputs: Sequence[Any]) -> list[Entry]:
        """Append a node, under that name or one near it, and return its outputs."""
        unique = take_name(name, self._names)
        self.nodes.append(GraphNode(unique, function, tuple(inputs), tuple(outputs)))
        return [Entry(len(self.nodes) - 1, i) for i in range(len(outputs))]

    def __post_init__(self) -> None:
        self._names = {n.name for n in self.nodes}

    def type_of(self, entry: Entry) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of a tensor."""
        return self.nodes[entry.node].outputs[entry.index]

    def source(self, entry: Entry) -> Entry:
        """The tensor whose memory a tensor has."""
        while self.nodes[entry.node].function == VIEW:
            entry = self.nodes[entry.node].inputs[0]
        return entry

    def is_input(self, entry: Entry) -> bool:
        """Whether a tensor is an input or constant."""
        return self.nodes[entry.node].function is None

    def n_bytes(self, entry: Entry) -> int:
        """Size of a tensor."""
        shape, dtype = self.type_of(entry)
        return prod(shape) * ir.DataType(dtype).itemsize

    def to_json(self, storage: dict[Entry, int], device_type: int = runtime.Device.kDLCPU) -> str:
        """Write the graph.

        Parameters
        ----------
        storage : dict of Entry to int
            The storage of every tensor, as :func:`plan_graph_memory` gives it.
        device_type : int
            The kind of device that they lie on, as DLPack numbers it.
        """
        entries = [Entry(i, k) for i, node in enumerate(self.nodes) for k in range(len(node.outputs))]
        types = [self.type_of(e) for e in entries]
        rows = [0]
        for node in self.nodes:
            rows.append(rows[-1] + len(node.outputs))
        return json.dumps(
            {
                "nodes": [_node_json(n) for n in self.nodes],
                "arg_nodes": [i for i, n in enumerate(self.nodes) if n.function is None],
                "heads": [[e.node, e.index, 0] for e in self.heads],
                "attrs": {
                    "dltype": ["list_str", [dtype for _, dtype in types]],
                    "device_index": ["list_int", [device_type] * len(entries)],
                    "storage_id": ["list_int", [storage[e] for e in entries]],
                    "shape": ["list_shape", [list(shape) for shape, _ in types]],
                },
                "node_row_ptr": rows,
            },
            indent=2,
        )


def _node_json(node: GraphNode) -> dict[str, Any]:
    inputs = [[e.node, e.index, 0] for e in node.inputs]
    if node.function is None:
        return {"op": "null", "name": node.name, "inputs": inputs}
    attrs = {
        "num_outputs": str(len(node.outputs)),
        "num_inputs": str(len(inputs)),
        "flatten_data": "0",
        "func_name": node.function,
    }
    return {"op": "tvm_op", "name": node.name, "attrs": attrs, "inputs": inputs}


# ---- from Relax ------------------------------------------------------------------------------------------------------


def graph_of(mod: ir.IRModule, name: str = "main", inputs: Sequence[str] = ()) -> KernelGraph:
    """Make the graph of a function.

    Parameters
    ----------
    mod : IRModule
        Relax in the form ``relax.legalized``.
    name : str
        The function.
    inputs : sequence of str
        What its inputs are called, if all have a name of their own; by default as its parameters are.

    Raises
    ------
    LoweringError
        When a tensor's shape is not known, or something is called that is no kernel.
    """
    func: Any = mod[name]
    made = _Maker(KernelGraph(), mod)
    names = inputs if len(set(inputs)) == len(func.params) else [p.name_hint for p in func.params]
    for p, hint in zip(func.params, names, strict=True):
        made.values[p] = made.input(hint, p.ty, p.span)
    seq = func.body
    for block in seq.blocks:
        for b in block.bindings:
            made.values[b.var] = _VALUE(b.value, made, b.var)
    made.graph.heads = list(_flat(made.atom(seq.body)))
    return made.graph


class _Maker:
    """The graph so far, and the tensor, or tuple of them, that each variable is."""

    def __init__(self, graph: KernelGraph, mod: ir.IRModule) -> None:
        self.graph, self.mod = graph, mod
        self.values: dict[ir.Expr, Any] = {}
        self.constants: dict[Any, Entry] = {}

    def input(self, name: str, ty: ir.Type | None, span: Any) -> Any:
        """Make an input; a tuple is one input a field, named by its place."""
        if isinstance(ty, ir.TupleType):
            return [self.input(f"{name}_{i}", f, span) for i, f in enumerate(ty.fields)]
        return self.graph.add(name, None, (), _outputs(ty, span))[0]

    def atom(self, expr: ir.Expr) -> Any:
        """The tensor, or list of them, that an atom is."""
        if isinstance(expr, ir.Constant):
            known = self.constants.get(expr.data)
            if known is None:
                known = self.constants[expr.data] = self.input(f"p{len(self.constants)}", expr.ty, expr.span)
                self.graph.params[self.graph.nodes[known.node].name] = expr.data
            return known
        if isinstance(expr, ir.Tuple):
            return [self.atom(f) for f in expr.fields]
        if isinstance(expr, ir.TupleGetItem):
            return self.atom(expr.tuple_value)[expr.index]
        if expr not in self.values:
            raise _no_kernel(expr, expr.span)
        return self.values[expr]


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        for v in value:
            yield from _flat(v)
    else:
        yield value


def _outputs(ty: ir.Type | None, span: Any) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of a tensor, or of the fields of a tuple."""
    out: list[tuple[tuple[int, ...], str]] = []
    fields: tuple[Any, ...] = ty.fields if isinstance(ty, ir.TupleType) else (ty,)
    for t in fields:
        shape = None if getattr(t, "shape", None) is None else [ir.as_int(d) for d in t.shape]
        if shape is None or None in shape:
            raise error.LoweringError(
                "a graph has tensors of constant shapes only",
                where=span,
                found=str(t),
                help="compile programs with dynamic shapes by relay.vm.compile",
            )
        out.append((tuple(d for d in shape if d is not None), stored_as(t.dtype)))
    return out


def _no_kernel(value: Any, span: Any) -> error.LoweringError:
    return error.LoweringError(
        f"a graph has no node for `{value}`",
        where=span,
        expected="calls of kernels, reshapes and tuples",
        help="compile the program by relay.vm.compile",
    )


_VALUE = ir.Dispatch("value of a graph", (ir.Expr,), default=lambda value, made, var: made.atom(value))


@_VALUE.on(ir.Call)
def _call(value: Any, made: _Maker, var: Any) -> Any:
    name = value.op.name if isinstance(value.op, ir.Op) else ""
    outputs = _outputs(value.ty, value.span)
    if name == "relax.reshape":
        return made.graph.add(var.name_hint, VIEW, [made.atom(value.args[0])], outputs)[0]
    if name not in ("relax.call_tir", "relax.call_dps_packed") or len(value.args) > 2:
        raise _no_kernel(value, value.span)
    callee = value.args[0]
    symbol = callee.name_hint if isinstance(callee, ir.GlobalVar) else callee.global_symbol
    if isinstance(callee, ir.GlobalVar):
        kernel: Any = made.mod[callee]
        symbol = kernel.attrs.get("global_symbol") or symbol
    entries = made.graph.add(symbol, symbol, list(_flat(made.atom(value.args[1]))), outputs)
    return entries if isinstance(value.ty, ir.TupleType) else entries[0]


# ---- storage ---------------------------------------------------------------------------------------------------------


def plan_graph_memory(graph: KernelGraph) -> dict[Entry, int]:
    """Give each tensor a storage: ``GraphPlanMemory``.

    Inputs, constants and results have storages of their own. Others take, of the storages that nobody needs any more,
    the smallest that is large enough, or else the largest, which grows. A view has the storage of its source.
    """
    last: dict[Entry, int] = {}
    for at, node in enumerate(graph.nodes):
        for e in node.inputs:
            last[graph.source(e)] = at
    forever = {graph.source(e) for e in graph.heads}
    storage: dict[Entry, int] = {}
    sizes: list[int] = []
    free: list[int] = []
    for at, node in enumerate(graph.nodes):
        for e in (Entry(at, k) for k in range(len(node.outputs))):
            if node.function == VIEW:
                storage[e] = storage[graph.source(e)]
                continue
            storage[e] = _take(
                free, sizes, -(-graph.n_bytes(e) // ALIGNMENT) * ALIGNMENT, node.function is None or e in forever
            )
        touched = [graph.source(e) for e in (*node.inputs, *(Entry(at, k) for k in range(len(node.outputs))))]
        for e in dict.fromkeys(touched):
            if last.get(e, at) == at and e not in forever and not graph.is_input(e):
                free.append(storage[e])
    return storage


def _take(free: list[int], sizes: list[int], n_bytes: int, own: bool) -> int:
    """Find or make a storage."""
    if own or not free:
        sizes.append(n_bytes)
        return len(sizes) - 1
    fitting = [s for s in free if sizes[s] >= n_bytes]
    best = min(fitting, key=lambda s: sizes[s]) if fitting else max(free, key=lambda s: sizes[s])
    free.remove(best)
    sizes[best] = max(sizes[best], n_bytes)
    return best
