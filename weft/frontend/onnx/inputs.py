"""Graph inputs become parameters: names made identifiers, dimensions symbolic, shapes and types overridden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.error import ModelImportError
from weft.frontend.onnx.graph import Graph
from weft.frontend.onnx.model import check_rank, dtype_name, onnx
from weft.frontend.onnx.schema import type_text
from weft.frontend.onnx.value import Value, as_dim
from weft.ir import AnyType, DataType, IntImm, TensorType, Type, Var, tensor_type
from weft.relax import Var as RelaxVar
from weft.runtime.host import Kind


@dataclass(frozen=True)
class GraphInput:
    """An input: its ONNX name, its parameter, and what the model calls its symbolic dimensions."""

    name: str
    var: Any
    labels: dict[Var, str]
    kind: Kind | None


def make_inputs(
    graph: Graph,
    proto: onnx.GraphProto,
    shape_dict: Mapping[str, Sequence[int | str]] | None,
    dtype_dict: Mapping[str, str] | str | None,
) -> list[GraphInput]:
    """Make the parameters of the graph's inputs and enter them into the scope.

    Inputs that the file has values for are among them where `shape_dict` names them; else they have these values.

    Raises
    ------
    ModelImportError
        When an input is no tensor of known rank, or `shape_dict` or `dtype_dict` do not fit.
    """
    weights = {t.name for t in proto.initializer} | {t.values.name for t in proto.sparse_initializer}
    shapes = {k: list(v) for k, v in (shape_dict or {}).items()}
    infos = [i for i in proto.input if i.name not in weights or i.name in shapes]
    dtypes = {i.name: dtype_dict for i in infos} if isinstance(dtype_dict, str) else dict(dtype_dict or {})
    for given, what in ((shapes, "shape_dict"), (dtypes, "dtype_dict")):
        for name in given:
            if name not in {i.name for i in infos}:
                raise ModelImportError(
                    f"{what} names an input that the model does not have",
                    expected=", ".join(i.name for i in infos) or "none",
                    found=name,
                )
    kinds = {i.name: kind_of(i.type, f"input '{i.name}'") for i in infos}
    declared = {i.name: _declared_dims(i) for i in infos if kinds[i.name].form == "tensor"}
    fixed = _fixed_names(declared, shapes)
    variables: dict[str, Var] = {}
    result = []
    for info in infos:
        kind = kinds[info.name]
        if kind.form != "tensor":
            var = RelaxVar(graph.fresh(info.name), AnyType())
            graph.scope.values[info.name] = Value.of_expr(var, kind)
            result.append(GraphInput(info.name, var, {}, kind))
            continue
        dtype = str(DataType(dtypes[info.name])) if info.name in dtypes else kind.storage
        check_rank(len(shapes.get(info.name) or declared[info.name] or ()), f"input '{info.name}'")
        dims = _dims_of_input(info.name, declared[info.name], shapes.get(info.name), fixed)
        labels: dict[Var, str] = {}
        shape = [_dimension(graph, d, f"{info.name}_d{i}", variables, labels) for i, d in enumerate(dims)]
        var = RelaxVar(graph.fresh(info.name), tensor_type(shape, dtype))
        value = Value.of_expr(var)
        value = value if info.name in dtypes else value.as_kind(kind.dtype)
        graph.scope.values[info.name] = value
        result.append(GraphInput(info.name, var, labels, value.kind))
    return result


def kind_of(proto: onnx.TypeProto, what: str) -> Kind:
    """Return the kind that a type in the file declares.

    Raises
    ------
    ModelImportError
        When it declares none that Weft has.
    """
    form = proto.WhichOneof("value")
    if form == "tensor_type":
        tensor = proto.tensor_type
        rank = len(tensor.shape.dim) if tensor.HasField("shape") else None
        return Kind("tensor", dtype_name(tensor.elem_type, what), rank)
    if form in ("sequence_type", "optional_type"):
        return Kind(form.removesuffix("_type"), of=kind_of(getattr(proto, form).elem_type, what))
    if form == "map_type":
        key = dtype_name(proto.map_type.key_type, f"{what} (its keys)")
        return Kind("map", key, of=kind_of(proto.map_type.value_type, what))
    raise ModelImportError(
        f"{what} has no type that Weft has", expected="a tensor, sequence, optional or map", found=form or "no type"
    )


def _declared_dims(info: onnx.ValueInfoProto) -> list[int | str | None] | None:
    """Return an input's dimensions: a number, a name, or None for each; None where the rank is unknown."""
    if not info.type.tensor_type.HasField("shape"):
        return None
    dims = info.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None for d in dims]


def _fixed_names(
    declared: Mapping[str, list[int | str | None] | None], shapes: Mapping[str, Sequence[Any]]
) -> dict[str, int]:
    """Return the numbers that `shape_dict` gives to dimensions that the model names."""
    fixed: dict[str, int] = {}
    for name, given in shapes.items():
        dims = declared.get(name)
        if dims is None or len(dims) != len(given):
            continue
        for d, g in zip(dims, given, strict=True):
            if isinstance(d, str) and isinstance(g, int) and g >= 0:
                if fixed.setdefault(d, g) != g:
                    raise ModelImportError(
                        f"shape_dict gives two sizes to the dimension '{d}'",
                        expected=str(fixed[d]),
                        found=f"{g} in input '{name}'",
                    )
    return fixed


def _dims_of_input(
    name: str, declared: list[Any] | None, given: Sequence[Any] | None, fixed: Mapping[str, int]
) -> list[Any]:
    if given is None:
        if declared is None:
            raise ModelImportError(
                f"input '{name}' has no shape in the model",
                expected="a known number of dimensions",
                help=f"pass shape_dict={{'{name}': [...]}}",
            )
        return [fixed.get(d, d) if isinstance(d, str) else d for d in declared]
    if declared is not None and len(declared) != len(given):
        raise ModelImportError(
            f"shape_dict gives input '{name}' another rank",
            expected=f"{len(declared)} dimensions",
            found=str(list(given)),
        )
    dims = []
    for i, g in enumerate(given):
        d = declared[i] if declared is not None else None
        if isinstance(g, int) and not isinstance(g, bool) and g >= 0 and isinstance(d, int) and d != g:
            raise ModelImportError(
                f"shape_dict changes a fixed dimension of input '{name}'",
                expected=f"dimension {i} of {d}",
                found=str(g),
            )
        if g is None or g == -1:
            dims.append(fixed.get(d, d) if isinstance(d, str) else d)
        elif (isinstance(g, str) and g not in ("", "?")) or (isinstance(g, int) and not isinstance(g, bool) and g >= 0):
            dims.append(g)
        else:
            raise ModelImportError(
                f"shape_dict has a malformed dimension for input '{name}'",
                expected="a number at least 0, -1, None or a name",
                found=repr(g),
            )
    return dims


def _dimension(graph: Graph, d: Any, hint: str, variables: dict[str, Var], labels: dict[Var, str]) -> Any:
    if isinstance(d, int):
        return d
    if d is None:
        var = graph.size_var(hint)
        labels[var] = var.name
        return var
    if d not in variables:
        variables[d] = graph.size_var(d)
    labels[variables[d]] = d
    return variables[d]


def describe(name: str, ty: Type, labels: Mapping[Var, str], kind: Kind | None = None) -> dict[str, Any]:
    """Describe an input or output for ``weft.io``: dimensions are numbers, names, or expressions as text."""
    if kind is not None and kind.form != "tensor":
        return {"name": name, "dtype": type_text(kind), "shape": None, "kind": kind.to_json()}
    assert isinstance(ty, TensorType)
    dims = [
        as_dim(d) if isinstance(d, IntImm) else labels.get(d, str(d)) if isinstance(d, Var) else str(d)
        for d in ty.shape or ()
    ]
    if kind is not None and not kind.is_plain:
        return {"name": name, "dtype": kind.dtype, "shape": dims, "kind": kind.to_json()}
    return {"name": name, "dtype": str(ty.dtype), "shape": dims}
