"""from_onnx: an ONNX model becomes an IRModule with one Relax function, dimensions symbolic, weights as constants.

Nodes are converted in order. Values that are shapes in the making (``Shape``, ``Gather``, ``Concat``, ...) are followed
element by element (``shape_values``) and become expressions only where a tensor is asked for; everything else goes
through the converter of its operator, or through the function body that its schema or the model has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.error import ModelImportError, OutOfMemory, WeftError, is_defect, own_errors
from weft.frontend.dataflow import to_dataflow
from weft.frontend.onnx import check, function_body, shape_values
from weft.frontend.onnx.fallback import can_fall_back, check_fallback, run_on_host
from weft.frontend.onnx.graph import Graph, Scope
from weft.frontend.onnx.inputs import describe, make_inputs
from weft.frontend.onnx.limits import check_limits
from weft.frontend.onnx.model import Model, TensorReader, check_rank, load_model, onnx
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.old_forms import OLDEST_FORM, modern_form
from weft.frontend.onnx.registry import find_converter
from weft.frontend.onnx.schema import find_schema, normal_domain, type_text
from weft.frontend.onnx.value import Value
from weft.ir import IRModule, Tuple
from weft.ir.int_range import exact_sizes
from weft.runtime.host import STORED

WEIGHT_FILES = "weft.weight_files"
"""The attribute of a module that names the files beside the model in which it has weights."""


@own_errors("importing the model")
def from_onnx(
    model: Model,
    shape_dict: Mapping[str, Sequence[int | str]] | None = None,
    dtype_dict: Mapping[str, str] | str | None = None,
    opset: int | None = None,
    keep_params_in_input: bool = False,
    fallback: str | None = None,
) -> IRModule:
    """Import an ONNX model.

    Parameters
    ----------
    model : onnx.ModelProto, bytes, str or os.PathLike
        The model, its serialized form, or a file's path. Weights in files beside it are found only by path.
    shape_dict : mapping of str to sequence of int or str, optional
        Input shapes in place of the model's; a string is a symbolic dimension. A number for a dimension that the model
        names holds for every input with that name.
    dtype_dict : mapping of str to str, or str, optional
        Input data types in place of the model's; one string is for all inputs.
    opset : int, optional
        The opset of the default domain, in place of the model's.
    keep_params_in_input : bool
        Whether weights become parameters of ``main`` behind the inputs, their values listed in its attribute
        ``params``.
    fallback : str, optional
        ``"reference"``: operators that Weft does not have are run on the host, by what
        :func:`weft.runtime.host.register_operator` was given for them or else by ONNX's reference implementation, with
        a warning each. By default they are an error that lists them.

    Returns
    -------
    IRModule
        A function ``main``, and kernels that it calls; the module's attribute ``weft.weight_files`` has the files with
        weights beside the model by name, with their ``weft.runtime.file_identity`` when they were opened, if there are
        some. The function has ``num_input``, ``params``, and ``weft.io``: JSON with names, data types and shapes of the
        inputs and outputs.

    Raises
    ------
    ModelImportError
        When the model is malformed, naming the node.
    UnsupportedOperator
        Listing all operators that the importer lacks.
    """
    check_fallback(fallback)
    proto, reader = load_model(model)
    with _as_import_errors("the model's graph"):
        graph = _checked_graph(proto, reader, opset, keep_params_in_input, fallback is not None)
        return _module(graph, proto, reader, shape_dict, dtype_dict)


def _module(
    graph: Graph,
    proto: Any,
    reader: TensorReader,
    shape_dict: Mapping[str, Sequence[int | str]] | None,
    dtype_dict: Mapping[str, str] | str | None,
) -> IRModule:
    inputs = make_inputs(graph, proto.graph, shape_dict, dtype_dict)
    params = [i.var for i in inputs]
    bb = graph.bb
    with bb.function("main"):
        _convert_graph(graph, proto.graph, [i.name for i in inputs], "the graph")
        with _as_import_errors("the model's outputs"):
            values = [_output(graph, o.name) for o in proto.graph.output]
            outputs = [graph.expr(v) for v in values]
        if not outputs:
            raise ModelImportError("the graph has no outputs", expected="at least one")
        bb.span = None
        result = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        bb.emit_func_output(result, [*params, *(var for var, _ in graph.params)])
    mod = bb.get()
    func = to_dataflow(mod["main"])
    io: dict[str, Any] = {
        "inputs": [describe(i.name, i.var.ty, i.labels, i.kind) for i in inputs],
        "outputs": _describe_outputs(proto.graph, values, inputs),
    }
    kinds = [v.kind for v in (*inputs, *values) if v.kind is not None]
    if graph.texts or graph.host_calls or any(not k.keys for k in kinds):
        io["texts"] = graph.texts
    func = func.with_attr(
        {"num_input": len(inputs), "params": tuple(c for _, c in graph.params), "weft.io": json.dumps(io)}
    )
    mod = mod.with_functions({**mod.functions, mod.get_global_var("main"): func})
    return mod.with_attr(WEIGHT_FILES, reader.files) if reader.files else mod


def _checked_graph(proto: Any, reader: TensorReader, opset: int | None, keep_params: bool, fallback: bool) -> Graph:
    """Start a graph for a model whose opsets, size and operators are those that can be imported."""
    opsets = check.opset_imports(proto)
    if opset is not None:
        opsets[""] = opset
    if not opsets:
        raise ModelImportError(
            "the model does not say which opset it uses", expected="an opset_import entry", help="pass opset="
        )
    check.check_opsets(opsets)
    functions = {(normal_domain(f.domain), f.name): f for f in proto.functions}
    check_limits(proto.graph, functions)
    check.check_operators(proto.graph, opsets, functions, can_fall_back if fallback else None)
    graph = Graph(reader, keep_params)
    graph.fallback, graph.proto = fallback, proto.graph
    graph.declared = {v.name: v.type for v in (*proto.graph.value_info, *proto.graph.output) if v.HasField("type")}
    graph.functions = functions
    graph.scope = Scope(None, opsets)
    return graph


def _describe_outputs(graph: Any, outputs: list[Value], inputs: list[Any]) -> list[dict[str, Any]]:
    labels = {k: v for i in inputs for k, v in i.labels.items()}
    types = [v.expr.ty for v in outputs]  # type: ignore[union-attr]
    return [describe(o.name, ty, labels, v.kind) for o, ty, v in zip(graph.output, types, outputs, strict=True)]


def _output(graph: Graph, name: str) -> Value:
    value = graph.scope.find(name)
    if value is None:
        raise ModelImportError(
            f"graph output '{name}' is not defined anywhere", expected="a graph input, a weight or a node's output"
        )
    return value


def _convert_graph(graph: Graph, proto: Any, inputs: Sequence[str], what: str, prefix: str = "") -> None:
    """Enter a graph's weights into the scope and convert its nodes in order."""
    scope = graph.scope
    order = check.sorted_nodes(proto, _visible(scope), what)
    for tensor in proto.initializer:
        if tensor.name not in inputs:
            scope.values[tensor.name] = graph.initializer(tensor.name, graph.read(tensor))
    for tensor in proto.sparse_initializer:
        name = tensor.values.name
        if name not in inputs:
            data = graph.reader.read_sparse(tensor, f"tensor '{name}'")
            scope.values[name] = graph.initializer(name, Value.of_array(data))
    convert_nodes(graph, order, prefix, [o.name for o in proto.output])


def convert_subgraph(graph: Graph, proto: onnx.GraphProto, where: str, inputs: Sequence[Value] = ()) -> list[Value]:
    """Convert a branch or body in the current scope, with the names around it in reach, and return its outputs.

    Raises
    ------
    ModelImportError
        When an output is not defined, or the number of inputs is wrong; branches have none.
    """
    if len(proto.input) != len(inputs):
        raise ModelImportError(
            "a graph inside of a node has a wrong number of inputs",
            where=where,
            expected=str(len(inputs)) if inputs else "none: branches use the names around them",
            found=", ".join(i.name for i in proto.input) or "none",
        )
    graph.scope.values.update(zip((i.name for i in proto.input), inputs, strict=True))
    names = [i.name for i in proto.input]
    _convert_graph(graph, proto, names, f"a branch of {where}", f"{where}, inside of it ")
    values = []
    for o in proto.output:
        value = graph.scope.find(o.name)
        if value is None:
            raise ModelImportError(f"output '{o.name}' of a branch is not defined anywhere", where=where)
        values.append(_in_lists(graph, value, where))
    return values


def _in_lists(graph: Graph, value: Value | None, where: str) -> Value | None:
    """Make a list of maps, which is an output of the whole graph as rows, what operators of the host take."""
    if value is None or value.kind is None or not value.kind.keys:
        return value
    node = Node(graph, onnx.helper.make_node("ZipMap", [], []), [], 1, where)
    return node.host("ZipMap", [value.expr], [replace(value.kind, keys=())], keys=value.kind.keys)[0]


def _visible(scope: Scope | None) -> Iterator[str]:
    while scope is not None:
        yield from scope.values
        scope = scope.outer


class RanksDiffer(ModelImportError):
    """The branches of an If give tensors of different ranks: what uses such a result is converted in each branch."""


_MOST_CONTINUED = 24  # what is in the branches of one is converted twice


def _continued(node: Any, after: Sequence[tuple[int, Any]], outputs: Sequence[str]) -> tuple[list[Any], Any] | None:
    """Move those nodes behind an If that use its results into its branches; None where there are none.

    Returns the other nodes, and an If that gives those of its graph's `outputs` which depend on it.
    """
    of_it, rest, moved = {name for name in node.output if name}, [], []
    for index, other in after:
        if of_it.isdisjoint(check.used_names(other)):
            rest.append((index, other))
        else:
            moved.append(other)
            of_it.update(name for name in other.output if name)
    if not moved:
        return None
    whole = onnx.NodeProto(op_type="If", name=node.name, input=node.input)
    whole.output.extend(name for name in dict.fromkeys(outputs) if name in of_it)
    for attribute in node.attribute:
        branch = whole.attribute.add(name=attribute.name, type=attribute.type).g
        branch.CopyFrom(attribute.g)
        pairs = zip(branch.output, node.output, strict=False)
        branch.node.extend(
            onnx.helper.make_node("Identity", [own.name], [name]) for own, name in pairs if name not in ("", own.name)
        )
        branch.node.extend(moved)
        del branch.output[:]
        branch.output.extend(onnx.ValueInfoProto(name=name) for name in whole.output)
    return rest, whole


def convert_nodes(
    graph: Graph, order: Sequence[tuple[int, Any]], prefix: str = "", outputs: Sequence[str] = ()
) -> None:
    """Convert nodes, entering their outputs into the scope.

    Parameters
    ----------
    prefix : str
        Put before each node's name in messages, for nodes inside of functions and branches.
    outputs : sequence of str
        The names that are used outside of the nodes' graph.
    """
    for position, (index, proto) in enumerate(order):
        where = prefix + check.node_label(index, proto)
        try:
            with _as_import_errors(where):
                _convert(graph, proto, where)
        except RanksDiffer:
            found = _continued(proto, order[position + 1 :], outputs) if proto.op_type == "If" else None
            if found is None or len(graph.continued) == _MOST_CONTINUED:
                raise
            rest, whole = found
            graph.continued.append(list(whole.output))
            return convert_nodes(graph, [*rest, (index, whole)] if whole.output else rest, prefix, outputs)


def _convert(graph: Graph, proto: Any, where: str) -> None:
    domain = normal_domain(proto.domain)
    scope = graph.scope
    inputs = [_in_lists(graph, _lookup(scope, name, where), where) for name in proto.input]
    while inputs and inputs[-1] is None:
        inputs.pop()
    graph.at(where)
    function = graph.functions.get((domain, proto.op_type))
    opset = scope.opsets.get(domain, 0)
    node = Node(graph, proto, inputs, opset, where)
    if not domain and opset < OLDEST_FORM and function is None:
        node = modern_form(node)
        proto, inputs, opset = node.proto, list(node.inputs), node.opset
    if function is not None:
        results: Any = function_body.inline_local(node, function, convert_nodes)
    else:
        check.check_node(proto, opset, where, [type_text(v.full_kind) if v is not None else None for v in inputs])
        results = shape_values.evaluate(node)
        if results is None:
            results = _converted(node, domain)
        results = _with_kinds(node, _as_values(results))
    for name, value in zip(proto.output, _as_values(results), strict=False):
        if name and value is not None:
            check_rank(len(value.shape), f"output '{name}'", where)
            scope.values[name] = value
    for name in proto.output:
        if name and name not in scope.values:
            node.unsupported(f"its output '{name}' is not computed")


def _converted(node: Node, domain: str) -> Any:
    convert = find_converter(domain, node.op_type)
    if convert is not None:
        return convert(node)
    if node.graph.fallback:
        schema = find_schema(domain, node.op_type, node.opset)
        if schema is None or not schema.has_body:
            return run_on_host(node)
    return function_body.inline_schema(node, convert_nodes)


def _with_kinds(node: Node, results: list[Value | None]) -> list[Value | None]:
    """Give outputs whose type is that of an input its element type, where the machine stores it as another one."""
    if all(v is None or v.kind is None or not v.is_tensor for v in node.inputs):
        return results
    schema = find_schema(normal_domain(node.proto.domain), node.op_type, node.opset)
    formals, variables = (schema.inputs, schema.outputs) if schema is not None else ((), ())
    bound = {
        formals[min(i, len(formals) - 1)].variable: v.kind.dtype
        for i, v in enumerate(node.inputs)
        if formals and v is not None and v.kind is not None and v.is_tensor
    }
    for i, value in enumerate(results):
        dtype = bound.get(variables[min(i, len(variables) - 1)], "") if variables else ""
        if value is not None and value.kind is None and value.dtype == STORED.get(dtype):
            results[i] = value.as_kind(dtype)
    return results


def _lookup(scope: Scope, name: str, where: str) -> Value | None:
    if not name:
        return None
    value = scope.find(name)
    if value is None:
        raise ModelImportError(f"input '{name}' is not defined anywhere", where=where)
    return value


def _as_values(results: Any) -> list[Value | None]:
    items = list(results) if isinstance(results, (tuple, list)) else [results]
    return [r if r is None or isinstance(r, Value) else Value.of_expr(r) for r in items]


class _as_import_errors(exact_sizes):
    """Turn whatever an import raises into :class:`ModelImportError` that names the place, the cause behind it."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __exit__(self, _kind: object, e: BaseException | None, _trace: object) -> None:
        super().__exit__(_kind, e, _trace)
        if isinstance(e, ModelImportError):
            e.where = self.where if e.where is None else e.where
        elif is_defect(e) or isinstance(e, (OutOfMemory, RecursionError)):
            return
        elif isinstance(e, MemoryError):
            raise OutOfMemory("this needs more memory than there is", where=self.where, found=str(e) or None) from e
        elif isinstance(e, WeftError):
            raise ModelImportError(e.what, where=self.where, expected=e.expected, found=e.found, help=e.help) from e
        elif isinstance(e, Exception):
            found = f"{type(e).__name__}: {e}"
            raise ModelImportError("this cannot be converted", where=self.where, found=found) from e
