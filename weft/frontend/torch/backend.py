"""``torch.compile(model, backend="weft")``: what Weft converts runs in Weft, the rest as PyTorch runs it.

PyTorch hands over graphs of functional ATen operators. Runs of nodes that have converters become one function each,
compiled at its first call. Parameters are compiled in, so that their layout is the kernels' own; a call that finds one
of them written since (its version or its memory is another) compiles again. Tensors pass both ways through DLPack,
without a copy where they lie in order.
"""

from __future__ import annotations

import operator
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import TracingContext
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

import weft
from weft import ir, relax, runtime
from weft.error import InvalidArgument, ModelImportError, WeftError
from weft.frontend.dataflow import to_dataflow
from weft.frontend.torch import registry
from weft.frontend.torch.control import HIGHER_ORDER
from weft.frontend.torch.graph import Graph, as_real, calls, constant, find_converter, is_size
from weft.frontend.torch.node import dtype_name
from weft.frontend.torch.symbols import as_expr
from weft.frontend.torch.views import IN_PYTORCH, memory_order, read_bases, share_memory
from weft.ir import Pass

_OPTIONS = {"target", "precision", "tuned", "relax_pipeline"}
_CHECKS = ("aten._assert_async", "aten._assert_scalar")
"""What stops a program; PyTorch runs it behind the part that computes its condition, which it does not cut."""
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def weft_backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that ``torch.compile`` has traced; found by the name ``"weft"``.

    Parameters
    ----------
    module : torch.fx.GraphModule
    example_inputs : sequence
    mode : str, optional
        PyTorch's modes say how much its own compiler does; here they change nothing.
    options : mapping, optional
        ``target``, ``precision``, ``tuned`` and ``relax_pipeline`` of :func:`weft.compile`.

    Raises
    ------
    InvalidArgument
        For another option or mode.
    """
    given = dict(options or {})
    if mode not in _MODES:
        raise InvalidArgument("unknown mode of torch.compile", expected=", ".join(_MODES[1:]), found=str(mode))
    if given.keys() - _OPTIONS:
        raise InvalidArgument(
            "unknown options of the backend 'weft'",
            expected=", ".join(sorted(_OPTIONS)),
            found=", ".join(sorted(given.keys() - _OPTIONS)),
        )

    def inference(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        read_bases(graph)
        share_memory(graph)
        graph.graph.eliminate_dead_code()
        graph.recompile()
        return _boxed(_partitioned(graph, _weights(len(inputs)), given))

    compilers: dict[str, Any] = {"fw_compiler": _eager, "inference_compiler": inference}
    return aot_module_simplified(module, example_inputs, decompositions=_decompositions(), **compilers)


def relax_dynamo(pipeline: Pass | str | None = None) -> Callable[..., Any]:
    """The backend with a pipeline of its own: ``torch.compile(model, backend=relax_dynamo(pipeline))``.

    Parameters
    ----------
    pipeline : Pass or str, optional
        What ``relax.build(relax_pipeline=)`` takes.
    """
    options = {} if pipeline is None else {"relax_pipeline": pipeline}
    return lambda module, example_inputs, **kwargs: weft_backend(module, example_inputs, options=options)


def _decompositions() -> Any:
    table = torch.export.default_decompositions()
    return {op: rule for op, rule in table.items() if registry.find(op) is None}


def _eager(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Graphs that gradients are asked of run as PyTorch runs them."""
    warnings.warn("the backend 'weft' runs inference: call the model under torch.no_grad()", stacklevel=2)
    return _boxed(graph)


def _boxed(graph: Any) -> Callable[..., Any]:
    """The calling convention of AOTAutograd: a list, which may be emptied."""

    def run(args: list[Any]) -> Any:
        return graph(*args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _weights(count: int) -> set[int]:
    """Which inputs are parameters and buffers that the graph does not write to."""
    known = getattr(TracingContext.try_get(), "fw_metadata", None)
    found = getattr(known, "static_input_indices", None) or []
    return {i for i in found if i < count} - set(getattr(known, "mutated_inp_runtime_indices", ()))


class _Support(OperatorSupportBase):
    """Tells PyTorch's partitioner what Weft converts: all but one call, where its converter has refused that."""

    def __init__(self, refused: Any = None) -> None:
        self.refused = refused

    def is_node_supported(self, submodules: Mapping[str, Any], node: Any) -> bool:
        value = node.meta.get("val")
        if node is self.refused or IN_PYTORCH in node.meta or node.op != "call_function" or not _is_plain(value):
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.args[0])
        if is_size(node):
            return all(not is_size(node) or n.op != "call_function" for n in node.all_input_nodes)
        inputs = (n.meta.get("val") for n in node.all_input_nodes)
        return self._is_converted(node) and all(map(_is_plain, inputs))

    def _is_converted(self, node: Any) -> bool:
        if str(node.target) not in HIGHER_ORDER:
            return find_converter(node) is not None and not registry.is_drawn(node.target, node.args)
        return all(self.is_node_supported({}, n) for n in calls(node.all_input_nodes))


def _is_plain(value: Any) -> bool:
    """Whether Weft has a type for a value: tensors of known rank in the CPU's memory, numbers."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if not hasattr(value, "dtype"):
        return value is None or isinstance(value, (bool, int, float, torch.SymInt, torch.SymBool, torch.SymFloat))
    try:
        dtype_name(value.dtype)
    except WeftError:
        return False
    return value.device.type == "cpu" and value.layout is torch.strided


def _partitioned(graph: Any, weights: set[int], options: Mapping[str, Any], refused: Any = None) -> Any:
    """The graph with each run of nodes that Weft converts as one call."""
    support = _Support(refused)
    seeded = (n for n in graph.graph.nodes if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()))
    drawn = [node for node in seeded if not support.is_node_supported({}, node)]
    for before, node in pairwise(drawn):  # as if it read what the call before it has drawn
        node.kwargs = {**node.kwargs, "after": before}
    parts = CapabilityBasedPartitioner(graph, support, allows_single_node_partition=True)
    made = parts.fuse_partitions(parts.propose_partitions())
    for node in made.graph.nodes:
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != "after"}
    made.recompile()
    placeholders = [node for node in made.graph.nodes if node.op == "placeholder"]
    fixed = {node for i, node in enumerate(placeholders) if i in weights}
    kept = (n for n in made.graph.nodes if n.op == "call_function" and not is_size(n) and IN_PYTORCH not in n.meta)
    names = (str(n.target) for n in kept if not registry.is_drawn(n.target) and n.target is not operator.getitem)
    left = sorted({name for name in names if not name.startswith(_CHECKS)})
    if left and refused is None:
        warnings.warn(f"PyTorch runs what has no converter: {', '.join(left)}", stacklevel=2)
    for node in made.graph.nodes:
        if node.op == "call_module":
            _pass_sizes(made, node)
            places = {i for i, arg in enumerate(node.args) if arg in fixed}
            setattr(made, node.target, _Compiled(getattr(made, node.target), places, options))
    return made


def _pass_sizes(made: Any, call: Any) -> None:
    """Give a part the sizes of the whole graph that its inputs' shapes are computed from and do not show."""
    graph = getattr(made, call.target).graph
    inner = [n for n in graph.nodes if n.op == "placeholder"]
    shown, wanted = set(), set()
    for value in (n.meta.get("val") for n in inner):
        for d in [value] if isinstance(value, torch.SymInt) else getattr(value, "shape", ()):
            if isinstance(d, torch.SymInt):
                (shown if d.node.expr.is_Symbol else wanted).update(d.node.expr.free_symbols)
    sizes = [n for n in made.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.SymInt)]
    for size in sizes:
        if size.meta["val"].node.expr in wanted - shown:
            with graph.inserting_after(inner[-1]):
                inner.append(graph.placeholder(size.name))
            inner[-1].meta["val"] = size.meta["val"]
            call.args = (*call.args, size)
    getattr(made, call.target).recompile()


def _reader(node: Any) -> Callable[[Any], Any]:
    """What makes of a result of Weft what PyTorch waits for."""
    if not hasattr(node.meta["val"], "dtype"):
        return lambda x: x.item()
    return torch.view_as_complex if node.meta["val"].dtype.is_complex else lambda x: x


def _given(x: Any) -> Any:
    """A tensor or a number as Weft takes it."""
    x = torch.tensor(x, dtype=torch.float64) if isinstance(x, float) else x
    return runtime.ShapeTuple((x,)) if isinstance(x, int) else weft.runtime.from_dlpack(as_real(x))


def _lay_out(part: Any) -> list[list[int] | None]:
    """Let a part return its results in the order of PyTorch's memory; the views that undo it are free."""
    output = next(iter(reversed(part.graph.nodes)))
    (given,) = output.args
    many = isinstance(given, (list, tuple))
    results, backs = list(given) if many else [given], []
    for i, node in enumerate(results):
        order = memory_order(node.meta.get("val")) if isinstance(node, torch.fx.Node) else None
        backs.append(order and [order.index(axis) for axis in range(len(order))])
        if order is not None:
            with part.graph.inserting_before(output):
                results[i] = part.graph.call_function(torch.ops.aten.permute.default, (node, order))
            results[i].meta["val"] = node.meta["val"].permute(order)
    output.args = (type(given)(results) if many else results[0],)
    part.recompile()
    return backs


class _Compiled(torch.nn.Module):
    """One part of a graph, compiled at its first call."""

    def __init__(self, part: Any, weights: set[int], options: Mapping[str, Any]) -> None:
        super().__init__()
        self.backs = _lay_out(part)
        self.part, self.weights, self.options = [part], weights, options  # a list: no submodule
        self.seen: dict[int, tuple[int, int]] | None = None
        self.changes: Counter[int] = Counter()
        self.function: Any = None
        self.inputs: list[int] = []
        self.reads: list[Callable[[Any], Any]] = []

    def forward(self, *args: Any) -> Any:
        """Run the part, and show its results in the order of their shapes."""
        found = self._run(args)
        if not any(self.backs):
            return found
        results = found if isinstance(found, (list, tuple)) else [found]
        shown = [x if back is None else x.permute(back) for x, back in zip(results, self.backs, strict=True)]
        return shown if isinstance(found, (list, tuple)) else shown[0]

    def _run(self, args: Sequence[Any]) -> Any:
        """Run the part; it is compiled again where a weight was written since, which after twice is an input."""
        if self.seen is None:  # what inference mode has made does not say when it is written
            self.weights = {i for i in self.weights if not args[i].is_inference()}
        now = {i: (args[i]._version, args[i].data_ptr()) for i in self.weights}
        if now != self.seen:
            self.changes.update(i for i in now if self.seen is not None and now[i] != self.seen[i])
            self.weights = {i for i in self.weights if self.changes[i] < 2}
            self.seen = {i: now[i] for i in self.weights}
            self._build(args)
        if self.function is None:
            return self.part[0](*args)
        found = self.function(*(_given(args[i]) for i in self.inputs))
        results = [
            read(torch.from_dlpack(x)) for x, read in zip(found if self.many else [found], self.reads, strict=True)
        ]
        return results if self.many else results[0]

    def _build(self, args: Sequence[Any]) -> None:
        """Compile the part, or take it apart around the call that its converter refuses."""
        (part,) = self.part
        graph = Graph(part, {})
        try:
            mod = self._converted(graph, args)
        except ModelImportError as error:
            warnings.warn(f"PyTorch runs a part of the model: {error}", stacklevel=3)
            if graph.at is not None:
                self.part = [_partitioned(part, self.weights, self.options, graph.at)]
            self.function, self.weights, self.seen = None, set(), {}
            return
        target = self.options.get("target")
        rest = {k: v for k, v in self.options.items() if k != "target"}
        self.machine = relax.VirtualMachine(weft.compile(mod, target, **rest), weft.cpu())
        self.function = self.machine["main"]

    def _converted(self, graph: Graph, args: Sequence[Any]) -> ir.IRModule:
        part = graph.root
        placeholders = [n for n in part.graph.nodes if n.op == "placeholder"]
        ends = next(n for n in part.graph.nodes if n.op == "output").args[0]
        self.many = isinstance(ends, (list, tuple))
        self.reads = [_reader(n) for n in (ends if self.many else [ends])]
        graph.define_sizes([n.meta.get("val") for n in placeholders])
        passed = graph.define_passed([n.meta.get("val") for n in placeholders])
        values: list[Any] = []
        self.inputs = []
        for i, node in enumerate(placeholders):
            if i in self.weights:
                values.append(constant(args[i]))
            elif isinstance(args[i], torch.fx.GraphModule):
                values.append(args[i])  # a branch, a loop's body
            elif hasattr(node.meta["val"], "dtype") or not is_size(node):
                self.inputs.append(i)
                values.append(relax.Var(node.name, graph.type_of(graph.known(node))))
            elif i in passed:
                self.inputs.append(i)
                values.append(relax.Var(node.name, ir.ShapeType((as_expr(graph.symbols.dim(node.meta["val"])),), 1)))
            else:
                values.append(graph.symbols.dim(node.meta["val"]))
        with graph.bb.function("main", [values[i] for i in self.inputs]):
            for i, node in enumerate(placeholders):
                value = node.meta.get("val")
                values[i] = graph.symbols.dim(value) if i in passed else graph.opened(values[i], value)
            results = [graph.as_tensor(v) for v in graph.inlined(part, values)]
            graph.bb.emit_func_output(graph.bb.emit(ir.Tuple(tuple(results))) if self.many else results[0])
        mod = graph.bb.get()
        mod.update_func(mod.get_global_var("main"), to_dataflow(mod["main"]))
        return mod
