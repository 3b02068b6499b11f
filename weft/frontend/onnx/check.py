"""What is checked of an ONNX graph before anything is converted: names, order, and that every operator is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft.error import ErrorGroup, ModelImportError, UnsupportedOperator
from weft.frontend.onnx.attribute_values import value_errors
from weft.frontend.onnx.limits import subgraphs
from weft.frontend.onnx.model import onnx
from weft.frontend.onnx.registry import find_converter, has_no_schema
from weft.frontend.onnx.schema import ATTRIBUTE_KINDS, NEWEST_OPSET, Schema, find_schema, normal_domain


def node_label(index: int, node: onnx.NodeProto) -> str:
    """Name a node for messages: ``ONNX node 17 "/encoder/MatMul" (MatMul)``."""
    name = node.name or next((o for o in node.output if o), "")
    return f'ONNX node {index} "{name}" ({node.op_type})'


def opset_imports(proto: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Return the opset version of each domain that a model or function imports."""
    return {normal_domain(o.domain): o.version for o in proto.opset_import}


def check_opsets(opsets: dict[str, int]) -> None:
    """Check that the default domain's opset is one that the importer knows.

    Raises
    ------
    UnsupportedOperator
        When it is too old or too new.
    """
    version = opsets.get("")
    if version is not None and not 1 <= version <= NEWEST_OPSET:
        raise UnsupportedOperator(
            f"the model uses ONNX opset {version}",
            expected=f"1 to {NEWEST_OPSET}",
            found=str(version),
            help="update the onnx package" if version > NEWEST_OPSET else None,
        )


# --- order and names --------------------------------------------------------------------------------------------------


def sorted_nodes(graph: onnx.GraphProto | onnx.FunctionProto, outer: Iterable[str], what: str) -> list[tuple[int, Any]]:
    """Return (index, node) in an order in which every value is made before it is used.

    Parameters
    ----------
    graph : onnx.GraphProto or onnx.FunctionProto
        The graph.
    outer : iterable of str
        Names that are defined outside.
    what : str
        What to call the graph in messages.

    Raises
    ------
    ModelImportError
        When a name is defined twice or nowhere, or nodes depend on themselves.
    """
    _check_text(graph, what)
    defined = _defined_names(graph, what)
    available = {*outer, *defined}
    maker: dict[str, int] = {}
    for i, node in enumerate(graph.node):
        for name in node.output:
            if not name:
                continue
            if name in maker or name in defined:
                raise ModelImportError(
                    f"{what} defines '{name}' twice", where=node_label(i, node), help="names of values must be unique"
                )
            maker[name] = i
    needs = [[n for n in used_names(node) if n not in available] for node in graph.node]
    for i, node in enumerate(graph.node):
        for name in needs[i]:
            if name not in maker:
                raise ModelImportError(
                    f"input '{name}' is not defined anywhere",
                    where=node_label(i, node),
                    expected="a graph input, a weight or another node's output",
                )
    if all(maker[n] < i for i, names in enumerate(needs) for n in names):
        return list(enumerate(graph.node))
    return _topological(graph, needs, maker, what)


def _check_text(graph: onnx.GraphProto | onnx.FunctionProto, what: str) -> None:
    """Refuse names that are not UTF-8, which protobuf hands over as bytes."""
    for i, node in enumerate(graph.node):
        names = (node.op_type, node.domain, node.name, *node.input, *node.output)
        for name in (*names, *(a.name for a in node.attribute)):
            if isinstance(name, bytes):
                raise ModelImportError(f"{what} has a name that is no text", where=f"ONNX node {i}", found=repr(name))
    for info in (*graph.input, *graph.output, *getattr(graph, "initializer", ())):
        name = info if isinstance(info, (str, bytes)) else info.name
        if isinstance(name, bytes):
            raise ModelImportError(f"{what} has a name that is no text", found=repr(name))


def _defined_names(graph: onnx.GraphProto | onnx.FunctionProto, what: str) -> set[str]:
    names: set[str] = set()
    inputs = [i if isinstance(i, str) else i.name for i in graph.input]
    for name in inputs:
        if name in names:
            raise ModelImportError(f"{what} has two inputs called '{name}'", help="names of values must be unique")
        names.add(name)
    weights: set[str] = set()
    sparse = [t.values.name for t in getattr(graph, "sparse_initializer", ())]
    for name in [t.name for t in getattr(graph, "initializer", ())] + sparse:
        if name in weights:
            raise ModelImportError(f"{what} has two weights called '{name}'", help="names of values must be unique")
        weights.add(name)
    return names | weights


def used_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node uses, those that its subgraphs take from outside included."""
    for name in node.input:
        if name:
            yield name
    for attribute in node.attribute:
        for graph in subgraphs(attribute):
            inner = _defined_names(graph, "a subgraph") | {o for n in graph.node for o in n.output}
            yield from (n for sub in graph.node for n in used_names(sub) if n not in inner)
            yield from (o.name for o in graph.output if o.name not in inner)


def _topological(graph: Any, needs: list[list[str]], maker: dict[str, int], what: str) -> list[tuple[int, Any]]:
    waiting = [len(set(n)) for n in needs]
    users: dict[str, list[int]] = {}
    for i, names in enumerate(needs):
        for n in set(names):
            users.setdefault(n, []).append(i)
    ready = [i for i, w in enumerate(waiting) if w == 0]
    order: list[tuple[int, Any]] = []
    while ready:
        i = ready.pop()
        order.append((i, graph.node[i]))
        for name in graph.node[i].output:
            for user in users.get(name, ()) if maker.get(name) == i else ():
                waiting[user] -= 1
                if waiting[user] == 0:
                    ready.append(user)
    if len(order) < len(graph.node):
        done = {i for i, _ in order}
        stuck = next(i for i in range(len(graph.node)) if i not in done)
        raise ModelImportError(
            f"{what} has nodes that depend on their own results",
            where=node_label(stuck, graph.node[stuck]),
            expected="a graph without cycles",
        )
    return order


# --- operators --------------------------------------------------------------------------------------------------------


def check_operators(
    graph: onnx.GraphProto | onnx.FunctionProto,
    opsets: dict[str, int],
    functions: dict[tuple[str, str], Any],
    otherwise: Callable[[str, str, int | None], bool] | None = None,
) -> None:
    """Check that every operator, in subgraphs and functions too, can be converted, or done `otherwise`.

    Raises
    ------
    UnsupportedOperator
        Listing all that cannot, each with a node.
    """
    _check_text(graph, "the graph")
    missing: dict[tuple[str, str, int | None], str] = {}
    for label, domain, op_type, opset in _unsupported(graph, opsets, functions, set()):
        if otherwise is None or not otherwise(domain, op_type, opset):
            missing.setdefault((domain, op_type, opset), label)
    if not missing:
        return
    lines = [
        f"{op_type} (domain {domain or 'ai.onnx'}, "
        + ("opset not imported" if opset is None else f"opset {opset}")
        + f"), first at {label}"
        for (domain, op_type, opset), label in missing.items()
    ]
    raise UnsupportedOperator(
        f"the model uses {len(lines)} operator{'s' if len(lines) > 1 else ''} that Weft cannot import:\n    "
        + "\n    ".join(lines),
        help="write the operator as a model-local function, ask for it with the name and opset above, or run it on the "
        "host with fallback='reference'",
    )


def _unsupported(
    graph: onnx.GraphProto | onnx.FunctionProto, opsets: dict[str, int], functions: dict[Any, Any], seen: set[Any]
) -> Iterator[tuple[str, str, str, int | None]]:
    """Yield (node, domain, operator, opset) of what cannot be converted, of each function once."""
    for i, node in enumerate(graph.node):
        domain = normal_domain(node.domain)
        key, opset = (domain, node.op_type), opsets.get(domain)
        body = functions.get(key)
        if body is None and not _has_converter(domain, node.op_type, opset):
            schema = find_schema(domain, node.op_type, opset) if opset is not None else None
            if schema is None or not schema.has_body:
                held = ", ".join(repr(a.name) for a in node.attribute if subgraphs(a))
                label = node_label(i, node) + f"; its {held} can be imported as a model of its own" * bool(held)
                yield label, domain, node.op_type, opset
            elif schema.raw.has_function:
                body = schema.raw.function_body
        if body is not None and key not in seen:
            seen.add(key)
            known = functions if key in functions else {}
            for label, d, op, v in _unsupported(body, {**opsets, **opset_imports(body)}, known, seen):
                yield f"{node_label(i, node)}, inside of it {label}", d, op, v
        for attribute in node.attribute:
            for sub in subgraphs(attribute):
                yield from _unsupported(sub, opsets, functions, seen)


def _has_converter(domain: str, op_type: str, opset: int | None) -> bool:
    if opset is None or find_converter(domain, op_type) is None:
        return False
    return has_no_schema(domain, op_type) or find_schema(domain, op_type, opset) is not None


def check_node(node: onnx.NodeProto, opset: int, where: str, types: Sequence[str | None]) -> None:
    """Check a node's inputs, their element `types` and attributes against its schema.

    Raises
    ------
    ModelImportError
        Naming the node; of several errors, all in one group.
    """
    schema = find_schema(normal_domain(node.domain), node.op_type, opset)
    if schema is None:
        return
    errors = [*_input_errors(node, schema), *_attribute_errors(node, schema, opset)]
    errors += _type_errors(node.op_type, schema, types) if not errors else []
    if not errors and not normal_domain(node.domain):
        errors = list(value_errors(node))
    for e in errors:
        e.where = where
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise _Group(f"{where} has {len(errors)} errors", errors)


def _input_errors(node: onnx.NodeProto, schema: Schema) -> Iterator[ModelImportError]:
    op, n_in, n_out = node.op_type, len(node.input), len(node.output)
    if not schema.min_inputs <= n_in <= schema.max_inputs:
        expected = _range(schema.min_inputs, schema.max_inputs)
        yield ModelImportError(f"{op} has a wrong number of inputs", expected=expected, found=str(n_in))
    for i, given in enumerate(node.input if schema.inputs else ()):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]  # the last may stand for several
        if formal.required and not given:
            what = f"{op}: its input '{formal.name}' is missing"
            yield ModelImportError(what, expected="the name of a value", found="an empty name")
    if not schema.min_outputs <= n_out <= schema.max_outputs:
        expected = _range(schema.min_outputs, schema.max_outputs)
        yield ModelImportError(f"{op} has a wrong number of outputs", expected=expected, found=str(n_out))


def _type_errors(op: str, schema: Schema, types: Sequence[str | None]) -> Iterator[ModelImportError]:
    """Element types that an input may not have, or that differ where a type variable stands for one."""
    bound: dict[str, tuple[str, str]] = {}
    for i, found in enumerate(types):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if found is None:
            continue
        if found not in formal.types:
            what = f"{op}: input {i}, '{formal.name}', has a wrong element type"
            yield ModelImportError(what, expected=", ".join(sorted(formal.types)), found=found)
            continue
        first, expected = bound.setdefault(formal.variable or str(i), (formal.name, found))
        if found != expected:
            what = f"{op}: input {i}, '{formal.name}', and '{first}' have different types"
            yield ModelImportError(what, expected=expected, found=found, help="add a Cast node")


def _attribute_errors(node: onnx.NodeProto, schema: Schema, opset: int) -> Iterator[ModelImportError]:
    op, seen = node.op_type, set[str]()
    for a in node.attribute:
        kind, known = ATTRIBUTE_KINDS.get(a.type), schema.attributes.get(a.name)
        if a.name in seen:
            yield ModelImportError(f"{op}: attribute '{a.name}' is given twice")
        elif known is None:
            expected = ", ".join(schema.attributes) or "no attributes"
            what = f"{op} has no attribute '{a.name}' in opset {opset}"
            yield ModelImportError(what, expected=expected, found=a.name)
        elif kind != known[0]:
            found = kind or f"type number {a.type}"
            yield ModelImportError(f"{op}: attribute '{a.name}' has the wrong type", expected=known[0], found=found)
        seen.add(a.name)
    for name, (kind, required) in schema.attributes.items():
        if required and name not in seen:
            yield ModelImportError(f"{op}: attribute '{name}' is missing", expected=f"a value of type {kind}")


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} or more" if high > 1000 else f"{low} to {high}"


class _Group(ErrorGroup, ModelImportError):
    """Several errors of one node."""
