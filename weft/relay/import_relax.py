"""From Relax's operators to Relay's: what the importers of models make becomes a Relay program.

An operator becomes the Relay operator that expands to that very call, which each conversion checks; one that no Relay
operator expands to keeps its shared name (``relax.nn.rms_norm``). Symbolic dimensions are unknown in Relay's types;
where an operator needs one as a number, it is computed from the shape of the tensor that has it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import ir, relax
from weft.error import UnsupportedOperator, WeftError
from weft.op import get_op_def, list_ops, simplify
from weft.relay.expr import Call, Constant, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, const
from weft.relay.expr import If as RelayIf
from weft.relay.from_relax import relay_type_of
from weft.relay.op.registry import REQUIRED, expand, get, has, op_call
from weft.relay.op.shapes import shape_argument


def import_relax(mod: ir.IRModule) -> ir.IRModule:
    """Convert a module of Relax functions of operators to Relay.

    Parameters
    ----------
    mod : IRModule
        Relax functions of tensors and tuples, with types; choices and calls of each other are allowed.

    Returns
    -------
    IRModule
        Relay functions of the same names, with types, in graph form.

    Raises
    ------
    UnsupportedOperator
        For what Relay has no form for: calls of kernels and of packed functions, closures.
    """
    out = ir.IRModule()
    for gvar, func in mod.items():
        if not isinstance(func, ir.Function):
            raise UnsupportedOperator(
                "only Relax functions of operators become Relay",
                found=type(func).__name__,
                help=f"legalize after the conversion; '{gvar.name_hint}' is lowered",
            )
        out[GlobalVar(gvar.name_hint)] = _Importer().function(func)
    return out


def imported(func: ir.Function, args: Sequence[Any]) -> Any:
    """Return what a Relax function computes of Relay expressions: its body, over them."""
    im = _Importer()
    for old, new in zip(func.params, args, strict=True):
        im.env[old] = new
        im.learn_dims(new, old.ty)
    return ir.with_deep_stack(lambda: im.tensor(func.body))


class _Importer:
    """Converts one function: what its variables stand for, and where its dimensions come from."""

    def __init__(self) -> None:
        self.env: dict[Any, Any] = {}
        self.dims: dict[ir.Var, Any] = {}

    def function(self, func: ir.Function) -> Function:
        params = [Var(p.name_hint, relay_type_of(p.ty)) for p in func.params]
        for old, new in zip(func.params, params, strict=True):
            self.env[old] = new
            self.learn_dims(new, old.ty)
        return Function(tuple(params), ir.with_deep_stack(lambda: self.tensor(func.body)))

    def learn_dims(self, value: Any, ty: ir.Type | None) -> None:
        """Say where the symbolic dimensions of a value's type come from."""
        if isinstance(ty, ir.TupleType):
            for i, field in enumerate(ty.fields):
                self.learn_dims(TupleGetItem(value, i), field)
        elif isinstance(ty, ir.TensorType) and ty.shape is not None:
            for i, d in enumerate(ty.shape):
                if isinstance(d, ir.Var) and d not in self.dims:
                    self.dims[d] = element(op_call("shape_of", value, dtype="int64"), i)

    def value(self, expr: ir.Expr) -> Any:
        """Return what an expression is: a Relay expression, or a shape."""
        known = self.env.get(expr)
        return _CONVERT(expr, self) if known is None else known

    def tensor(self, expr: ir.Expr) -> Any:
        """Return the Relay expression of a tensor or a tuple; a shape becomes the tensor of its dimensions."""
        value = self.value(expr)
        return self.shape(value.values) if isinstance(value, ir.ShapeExpr) else value

    def sequence(self, seq: Any) -> Any:
        local: list[tuple[Var, Function]] = []
        for block in seq.blocks:
            for b in block.bindings:
                if isinstance(b.value, ir.Function):
                    local.append(self.local(b.var, b.value))
                    continue
                value = self.value(b.value)
                if isinstance(b, relax.MatchCast):
                    self.match(value, b.ty)
                self.env[b.var] = value
        if not local:
            return self.value(seq.body)
        return functools.reduce(lambda body, bound: Let(*bound, body), reversed(local), self.tensor(seq.body))

    def local(self, var: Var, func: ir.Function) -> tuple[Var, Function]:
        """Convert a function inside another, such as an iteration of a loop, which calls itself."""
        self.env[var] = itself = Var(var.name_hint, relay_type_of(var.ty))
        outer = dict(self.dims)
        made = self.function(func).replace(ret_type=relay_type_of(func.ret_ty))
        self.dims = outer
        return itself, made

    def match(self, value: Any, ty: ir.Type) -> None:
        """Bind the dimensions that a cast names; that others agree is what the operators check."""
        if not isinstance(ty, ir.ShapeType):
            self.learn_dims(value, ty)
            return
        for i, d in enumerate(ty.values or ()):
            if isinstance(d, ir.Var) and d not in self.dims:
                shape = isinstance(value, ir.ShapeExpr)
                self.dims[d] = self.number(value.values[i]) if shape else element(value, i)

    def shape(self, dims: Sequence[Any]) -> Any:
        """Return a shape as a tensor: a constant, or the concatenation of what its dimensions are."""
        known = constants(dims)
        if None not in known:
            return const(np.array(known, "int64"))
        return shape_argument([self.number(d) for d in dims])

    def number(self, d: Any) -> Any:
        """Return a scalar expression as an int or a Relay expression of rank 0, int64."""
        (known,) = constants((d,))
        if known is not None:
            return known
        if d in self.dims:
            return self.dims[d]
        if type(d) is ir.Cast:
            return op_call("cast", self.scalar(d.value), dtype=str(d.dtype))
        name = _SCALARS.get(type(d))
        if name is None:
            raise UnsupportedOperator("a dimension has no form in Relay", found=str(d), where=getattr(d, "span", None))
        return op_call(name, *map(self.scalar, ir.children(d)))

    def scalar(self, d: Any) -> Any:
        """Return a scalar expression as a Relay expression of rank 0."""
        made = self.number(d)
        return const(np.array(made, ir.numpy_dtype(d.dtype))) if isinstance(made, int) else made


_SCALARS: dict[type, str] = {
    ir.Add: "add",
    ir.Sub: "subtract",
    ir.Mul: "multiply",
    ir.FloorDiv: "floor_divide",
    ir.FloorMod: "floor_mod",
    ir.Max: "maximum",
    ir.Min: "minimum",
    ir.EQ: "equal",
    ir.NE: "not_equal",
    ir.LT: "less",
    ir.LE: "less_equal",
    ir.GT: "greater",
    ir.GE: "greater_equal",
    ir.And: "logical_and",
    ir.Or: "logical_or",
    ir.Not: "logical_not",
    ir.Select: "where",
    ir.Div: "trunc_divide",
}


def constants(dims: Sequence[Any]) -> tuple[int | None, ...]:
    """Return the numbers that scalar expressions are; None for those that are none."""
    return tuple(ir.as_int(simplify(d) if isinstance(d, ir.PrimExpr) else d) for d in dims)


def element(vector: ir.Expr, i: int) -> Any:
    """Return one element of a vector."""
    return op_call("take", vector, const(i, "int64"), axis=0)


_CONVERT = ir.Dispatch("Relax to Relay", (ir.Expr,), default=lambda e, im: _refuse(e))


def _refuse(expr: ir.Expr) -> Any:
    raise UnsupportedOperator(
        f"{type(expr).__name__} has no form in Relay",
        where=expr.span,
        found=str(expr)[:80],
        expected="tensors, tuples, operators, choices and calls of functions of the module",
        help="import the model to Relax (relax.frontend)",
    )


@_CONVERT.on(ir.Constant)
def _constant(expr: Any, im: _Importer) -> Any:
    im.env[expr] = made = Constant(expr.data, span=expr.span, ty=relay_type_of(expr.ty))
    return made


@_CONVERT.on(ir.ShapeExpr)
def _shape(expr: ir.Expr, im: _Importer) -> Any:
    return expr


@_CONVERT.on(ir.Tuple)
def _tuple(expr: Tuple, im: _Importer) -> Any:
    return Tuple(tuple(im.tensor(f) for f in expr.fields), span=expr.span)


@_CONVERT.on(ir.TupleGetItem)
def _get_item(expr: TupleGetItem, im: _Importer) -> Any:
    whole = im.value(expr.tuple_value)
    return whole.fields[expr.index] if type(whole) is Tuple else TupleGetItem(whole, expr.index, span=expr.span)


@_CONVERT.on(ir.If)
def _if(expr: If, im: _Importer) -> Any:
    branches = []
    for branch in (expr.true_branch, expr.false_branch):
        outer = dict(im.dims)
        branches.append(im.tensor(branch))
        im.dims = outer
    return RelayIf(im.tensor(expr.cond), *branches, span=expr.span)


@_CONVERT.on(ir.Call)
def _call(expr: Call, im: _Importer) -> Any:
    if expr.op in im.env:
        return Call(im.env[expr.op], tuple(map(im.tensor, expr.args)), span=expr.span)
    if isinstance(expr.op, ir.GlobalVar):
        from_module = GlobalVar(expr.op.name_hint)
        return from_module(*map(im.tensor, expr.args))
    if not isinstance(expr.op, ir.Op):
        return _refuse(expr)
    name = expr.op.name.removeprefix("relax.")
    if name in _LANGUAGE:
        return _LANGUAGE[name](expr, im)
    if name not in list_ops():
        return _refuse(expr)
    made = _RULES[name](expr, im) if name in _RULES else None
    made = _twin(expr, name, im) if made is None else made
    return _own_name(expr, im) if made is None else made


@_CONVERT.on(relax.SeqExpr)
def _seq(expr: ir.Expr, im: _Importer) -> Any:
    return im.sequence(expr)


# --- operators of the language, which shapes are made with ------------------------------------------------------------


def _packed(expr: Any, im: _Importer) -> Any:
    """Rows that a loop adds one by one are concatenated; what else the host computes, Relay has no values for."""
    function, *args = expr.args
    if function.global_symbol == "vm.builtin.append":
        rows, new = map(im.tensor, args[:2])
        return op_call("concatenate", Tuple((rows, op_call("expand_dims", new, axis=0))), axis=0)
    asked = json.loads(args[0].value)["op"] if function.global_symbol == "weft.host" else function.global_symbol
    raise UnsupportedOperator(
        f"{asked} has no form in Relay",
        where=expr.span,
        expected="operators on tensors",
        found="a call of the host, as for strings, sequences and random numbers",
        help="import the model to Relax (relax.frontend)",
    )


_LANGUAGE: dict[str, Callable[[Any, _Importer], Any]] = {
    "call_pure_packed": _packed,
    "shape_of": lambda e, im: ir.shape_expr(e.args[0].ty.shape),
    "shape_to_tensor": lambda e, im: im.tensor(e.args[0]),
    "tensor_to_shape": lambda e, im: im.tensor(e.args[0]),
    "index_bounds": lambda e, im: Tuple(()),  # Relay's own operators keep indices inside
}

# --- tensor operators -------------------------------------------------------------------------------------------------

_TWINS: dict[str, tuple[str, dict[str, str]]] = {
    "astype": ("cast", {}),
    "broadcast_to": ("broadcast_to", {}),
    "clip": ("clip", {"min": "a_min", "max": "a_max"}),
    "concat": ("concatenate", {}),
    "einsum": ("einsum", {"subscripts": "equation"}),
    "fmod": ("mod", {}),
    "nn.leakyrelu": ("nn.leaky_relu", {}),
    "permute_dims": ("transpose", {}),
    "reshape": ("reshape", {"shape": "newshape"}),
    "split": ("split", {}),
    "gather_elements": ("gather", {}),
}
"""The Relay operator of a shared one where the names differ, and Relay's names of attributes and shapes."""


def _twin(expr: Any, name: str, im: _Importer) -> Any:
    """Call the Relay operator that expands to this very call; None where there is none."""
    twin, renamed = _TWINS.get(name, (name, {}))
    if not has(twin) or _is_symbolic(expr.attrs):
        return None
    op, known = get(twin), get_op_def(name)
    given = {renamed.get(k, k): v for k, v in expr.attrs.items}
    tensors = []
    for spec, arg in zip(known.inputs, expr.args, strict=False):
        if spec.kind in ("shape", "prim"):
            dims = constants(arg.values if isinstance(arg, ir.ShapeExpr) else (arg.value,))
            given[renamed.get(spec.name, spec.name)] = dims if spec.kind == "shape" else dims[0]
        else:
            tensors.append(arg)
    return _checked(expr, twin, tensors, {k: v for k, v in given.items() if k in op.attrs}, im)


def _checked(expr: Call, name: str, args: Sequence[Any], attrs: dict[str, Any], im: _Importer) -> Any:
    """Call a Relay operator if it expands to `expr`; None else."""
    values = {**get(name).attrs, **{k: v for k, v in attrs.items() if v is not None}}
    if any(v is REQUIRED for v in values.values()):
        return None
    try:
        again = expand(ir.Call(ir.Op.get(name), tuple(args), ir.Attrs.of(values)))
    except (WeftError, TypeError, ValueError):  # these attributes are not what the operator takes
        return None
    same = isinstance(again, ir.Call) and again.op is expr.op and ir.structural_equal(again, expr)
    return Call(ir.Op.get(name), tuple(map(im.tensor, args)), ir.Attrs.of(values), span=expr.span) if same else None


def _own_name(expr: Any, im: _Importer) -> Any:
    """Call the operator under its shared name."""
    if _is_symbolic(expr.attrs):
        raise UnsupportedOperator(
            f"{expr.op.name}: an attribute depends on a symbolic dimension",
            found=str(expr.attrs),
            where=expr.span,
            help="give the model's inputs constant shapes",
        )
    args = [im.shape((a.value,)) if isinstance(a, ir.PrimValue) else im.tensor(a) for a in expr.args]
    return Call(expr.op, tuple(args), expr.attrs, span=expr.span)


def _is_symbolic(attrs: ir.Attrs) -> bool:
    """Whether an attribute depends on a symbolic dimension."""
    return any(isinstance(n, ir.Var) for _, v in attrs.items for n in _scalars(v))


def _scalars(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [n for v in value for n in _scalars(v)]
    return list(ir.walk(value)) if isinstance(value, ir.PrimExpr) else []


def _matmul(expr: Call, im: _Importer) -> Any:
    """Products with a transposed matrix are layers; others are products of matrices or batches."""
    a, b = expr.args
    ranks, turned = (a.ty.ndim, b.ty.ndim), im.tensor(b)
    if ranks[1] == 2 and ranks[0] >= 1 and is_transposed(turned):
        attrs = {"units": ir.as_int(b.ty.shape[1]), "out_dtype": expr.attrs.get("out_dtype") or ""}
        return Call(ir.Op.get("nn.dense"), (im.tensor(a), turned.args[0]), ir.Attrs.of(attrs), span=expr.span)
    if ranks == (3, 3):
        return _checked(expr, "nn.batch_matmul", expr.args, {"transpose_b": False}, im)
    return _checked(expr, "nn.matmul", expr.args, {}, im) if ranks[1] == 2 else None


def is_transposed(expr: ir.Expr) -> bool:
    """Whether a Relay expression is a matrix that is transposed."""
    return type(expr) is Call and expr.op is ir.Op.get("transpose") and expr.attrs.get("axes") in (None, (1, 0))


def _take(expr: Call, im: _Importer) -> Any:
    data, indices = map(im.tensor, expr.args)
    known = isinstance(indices, Constant) and not (indices.data.numpy() < 0).any()
    return op_call("take", data, indices, axis=expr.attrs.get("axis"), mode="clip" if known else "wrap")


def _expand_dims(expr: Any, im: _Importer) -> Any:
    made = im.tensor(expr.args[0])
    for axis in sorted(a % expr.ty.ndim for a in _as_tuple(expr.attrs["axis"])):
        made = op_call("expand_dims", made, axis=axis)
    return made


def _as_tuple(value: Any) -> tuple[int, ...]:
    return tuple(map(int, value)) if isinstance(value, (tuple, list)) else (int(value),)


def _reshape(expr: Call, im: _Importer) -> Any:
    data, shape = im.tensor(expr.args[0]), im.value(expr.args[1])
    known = constants(shape.values)
    if None in known:
        return op_call("dyn.reshape", data, im.shape(shape.values), allowzero=True)
    return op_call("reshape", data, newshape=known, allowzero=0 in known)


def _broadcast_to(expr: Call, im: _Importer) -> Any:
    shape = im.value(expr.args[1])
    known = constants(shape.values)
    if None in known:
        return op_call("dyn.broadcast_to", im.tensor(expr.args[0]), im.shape(shape.values))
    return op_call("broadcast_to", im.tensor(expr.args[0]), shape=known)


def _strided_slice(expr: Call, im: _Importer) -> Any:
    attrs = dict(expr.attrs.items)
    begin, end, data = attrs["begin"], attrs["end"], im.tensor(expr.args[0])
    axes, strides = _as_tuple(attrs["axes"]), attrs.get("strides")
    steps = (1,) * len(begin) if strides is None else _as_tuple(strides)
    bounds = [constants(b) for b in (begin, end)]
    if None not in (*bounds[0], *bounds[1]):
        limited = [tuple(max(-_FAR, min(int(v), _FAR)) for v in b) for b in bounds]  # type: ignore[arg-type]
        return op_call("strided_slice", data, begin=limited[0], end=limited[1], strides=steps, axes=axes)
    made = [im.shape(b) for b in (begin, end)]
    return op_call("dyn.strided_slice", data, *made, const(np.array(steps, "int64")), axes=axes)


_FAR = 2**31 - 1


def _topk(expr: Call, im: _Importer) -> Any:
    attrs = dict(expr.attrs.items)
    if not _is_symbolic(expr.attrs):
        return None
    given = {k: v for k, v in attrs.items() if k in get("dyn.topk").attrs}
    given["is_ascend"] = not attrs["largest"]
    return op_call("dyn.topk", im.tensor(expr.args[0]), im.shape((attrs["k"],)), **given)


def _conv(expr: Any, im: _Importer) -> Any:
    """Say channels and the kernel's size, which Relay's passes read."""
    name = expr.op.name.removeprefix("relax.")
    layout, weight = expr.attrs["kernel_layout"], expr.args[1].ty.shape
    known = dict(zip(layout, map(ir.as_int, weight), strict=True))
    spatial = tuple(known[c] for c in layout if c not in "OI")
    if None in (*spatial, known["O"]) or name.endswith("transpose"):
        return None
    given = {**dict(expr.attrs.items), "channels": known["O"], "kernel_size": spatial}
    return _checked(expr, name, expr.args, {k: v for k, v in given.items() if k in get(name).attrs}, im)


def _pad(expr: Call, im: _Importer) -> Any:
    attrs = dict(expr.attrs.items)
    if not _is_symbolic(expr.attrs):
        return None
    fill = const(np.array(attrs["pad_value"], ir.numpy_dtype(expr.args[0].ty.dtype)))
    widths = im.shape(attrs["pad_width"])
    return op_call("dyn.nn.pad", im.tensor(expr.args[0]), widths, fill, pad_mode=attrs["pad_mode"])


_RULES: dict[str, Callable[[Any, _Importer], Any]] = {
    "broadcast_to": _broadcast_to,
    "expand_dims": _expand_dims,
    "matmul": _matmul,
    "nn.conv1d": _conv,
    "nn.conv2d": _conv,
    "nn.conv3d": _conv,
    "nn.pad": _pad,
    "reshape": _reshape,
    "strided_slice": _strided_slice,
    "take": _take,
    "topk": _topk,
}
"""Operators whose Relay form is not one call with the same attributes; None where there is none."""
