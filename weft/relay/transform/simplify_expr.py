"""SimplifyExpr: operators that do nothing, or undo or repeat each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ir
from weft.relay.expr import Call, Constant, Function, Var, const
from weft.relay.op.registry import op_call
from weft.relay.transform.infer_layout import primal
from weft.relay.transform.typed_pass import typed_function_pass
from weft.relay.walk import operator_name, rewrite

Rule = Callable[[Any, Callable[[Any], Any]], Any]
_RULES: dict[str, list[Rule]] = {}


@typed_function_pass
def simplify_expr(func: Function) -> Function:
    """Remove reshapes, transposes, casts and arithmetic without effect, join those that follow each other.

    Requires: Any form; types are inferred where there are none.
    Ensures: The same form and values. ``zeros_like`` and its kin of known shapes are ``zeros`` of that shape.
    Before::

        def @main(%x: Tensor[(2, 3), float32]) {
          add(transpose(transpose(%x, axes=[1, 0]), axes=[1, 0]), 0f)
        }

    After::

        def @main(%x: Tensor[(2, 3), float32]) { %x }
    Cost: Linear.
    Source: TVM's ``SimplifyExpr``.
    """
    values: dict[Var, Any] = {}

    def meaning(e: ir.Expr) -> Any:
        return values.get(e, e) if type(e) is Var else e

    def rule(e: Any) -> Any:
        for _ in range(8):
            name = operator_name(e)
            made = next((m for r in _RULES.get(name, ()) if (m := r(e, meaning)) is not None), None)
            if made is None:
                return e
            if type(made) is Call and made.ty is None:
                made = Call(made.op, made.args, made.attrs, ty=e.ty, span=e.span)
            e = made
        return e

    def learn(var: Var, value: ir.Expr) -> None:
        if type(value) in (Call, Constant):
            values[var] = value

    return rewrite(func, rule, on_let=learn)


def _on(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for n in names:
            _RULES.setdefault(n, []).append(rule)
        return rule

    return register


def _shape(ty: ir.Type | None) -> tuple[int, ...] | None:
    """Return the dimensions of a tensor type whose dimensions are numbers."""
    if not isinstance(ty, ir.TensorType) or ty.shape is None:
        return None
    dims = [ir.as_int(d) for d in ty.shape]
    return None if None in dims else tuple(dims)  # type: ignore[arg-type]


def _same_type(a: Any, b: Any) -> bool:
    return _shape(a) is not None and _shape(a) == _shape(b) and a.dtype == b.dtype


def _inner(e: ir.Expr, meaning: Callable[[Any], Any], *names: str) -> Call | None:
    """Return the call of one of some operators that an expression stands for."""
    found = meaning(e)
    return found if operator_name(found) in names else None


_RESHAPES = ("reshape", "contrib_reverse_reshape", "squeeze", "expand_dims")
_CASTS = ("cast", "cast_like")


@_on(*_RESHAPES, *_CASTS, "broadcast_to", "strided_slice")
def _without_effect(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """``reshape(x) => x`` where the type stays; a slice of the same type is the whole, unless it is reversed."""
    if e.op.name == "strided_slice" and any(int(s) < 0 for s in e.attrs.get("strides") or ()):
        return None
    return e.args[0] if _same_type(e.ty, e.args[0].ty) else None


@_on(*_RESHAPES)
def _reshape_of_reshape(e: Call, meaning: Callable[[Any], Any]) -> Any:
    """``reshape(reshape(x)) => reshape(x)``."""
    inner, shape = _inner(e.args[0], meaning, *_RESHAPES), _shape(e.ty)
    if inner is None or shape is None or _shape(inner.ty) is None or (0 in shape):
        return None
    return op_call("reshape", inner.args[0], newshape=shape)


@_on("transpose")
def _transpose_of_transpose(e: Call, meaning: Callable[[Any], Any]) -> Any:
    """``transpose(transpose(x)) => transpose(x)``; ``transpose(x) => x`` where the axes stay."""
    axes = _axes(e)
    if axes is None:
        return None
    if axes == tuple(range(len(axes))):
        return e.args[0]
    inner = _inner(e.args[0], meaning, "transpose")
    first = _axes(inner) if inner is not None else None
    if inner is None or first is None:
        return None
    return op_call("transpose", inner.args[0], axes=tuple(first[a] for a in axes))


def _axes(e: Any) -> tuple[int, ...] | None:
    if e.op.name != "transpose":
        return None
    ty = e.args[0].ty
    if not isinstance(ty, ir.TensorType) or ty.shape is None:
        return None
    given = e.attrs.get("axes")
    return tuple(range(ty.ndim))[::-1] if given is None else tuple(int(a) % ty.ndim for a in given)


@_on("layout_transform", "transpose")
def _layout_of_layout(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """Join layout transformations, and transposes before or after them, into one of either or into nothing."""
    inner: Any = _inner(e.args[0], meaning, "layout_transform", "transpose")
    if inner is None or (e.op.name == inner.op.name == "transpose"):
        return None
    if inner.op.name == "layout_transform":
        have, middle = (str(inner.attrs[k]) for k in ("src_layout", "dst_layout"))
        expected, want = middle, _permuted(middle, _axes(e))
        if e.op.name == "layout_transform":
            expected, want = (str(e.attrs[k]) for k in ("src_layout", "dst_layout"))
    else:
        middle, want = (str(e.attrs[k]) for k in ("src_layout", "dst_layout"))
        axes, expected = _axes(inner), middle
        have = _permuted(middle, None if axes is None else tuple(np.argsort(axes).tolist()))
    if expected != middle:
        return None
    if have is None or want is None or sorted(primal(have)) != sorted(primal(want)):
        return None
    x = inner.args[0]
    if have == want:
        return x
    if have.isupper() and want.isupper():
        return op_call("transpose", x, axes=tuple(have.index(c) for c in want))
    return op_call("layout_transform", x, src_layout=have, dst_layout=want)


def _permuted(layout: str, axes: tuple[int, ...] | None) -> str | None:
    """The layout of what is transposed, for layouts of single letters."""
    known = axes is not None and layout.isupper() and len(layout) == len(axes)
    return "".join(layout[a] for a in axes) if known else None  # type: ignore[union-attr]


@_on(*_CASTS)
def _cast_of_cast(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """``cast(cast(x)) => cast(x)`` where the first cast widens within a kind, or from bool, and so loses nothing."""
    inner: Any = _inner(e.args[0], meaning, *_CASTS)
    source: Any = inner.args[0].ty if inner is not None else None
    if inner is None or not isinstance(source, ir.TensorType):
        return None
    first, middle = ir.DataType(source.dtype), ir.DataType(inner.ty.dtype)
    widens = first.type_code == middle.type_code and middle.bits >= first.bits and str(source.dtype) != "bfloat16"
    return op_call("cast", inner.args[0], dtype=e.ty.dtype) if widens else None


@_on("add", "subtract")
def _plus_zero(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """``x + 0 => x``, which is -0.0 where ``x`` is, and not 0.0."""
    return _neutral(e, meaning, 0, both=e.op.name == "add")


@_on("multiply", "divide")
def _times_one(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """``x * 1 => x``, ``x / 1 => x``."""
    return _neutral(e, meaning, 1, both=e.op.name == "multiply")


def _neutral(e: Call, meaning: Callable[[Any], Any], number: int, both: bool) -> Any:
    for x, c in ((0, 1), (1, 0)) if both else ((0, 1),):
        other = meaning(e.args[c])
        if not _same_type(e.ty, e.args[x].ty):
            continue
        fill = _fill(other)
        if (type(other) is Constant and _all(other, number)) or (fill is not None and _all(fill, number)):
            return e.args[x]
    return None


def _fill(e: ir.Expr) -> Constant | None:
    """The scalar that an expression repeats: ``full``, ``zeros`` and ``ones`` do."""
    if type(e) is not Call or not isinstance(e.op, ir.Op) or not isinstance(e.ty, ir.TensorType):
        return None
    dtype = str(e.ty.dtype)
    if e.op.name == "full" and type(e.args[0]) is Constant and e.args[0].ty is not None:
        scalar = e.args[0].data.numpy()
        return const(scalar.reshape(()).astype(ir.numpy_dtype(dtype)), dtype) if scalar.size == 1 else None
    number = {"zeros": 0, "ones": 1}.get(e.op.name)
    return None if number is None else const(number, dtype)


@_on("add", "subtract", "multiply", "divide")
def _scalar_operand(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """``x + full(c) => x + c``, which is broadcast, where the other operand alone decides the shape."""
    for x, c in ((0, 1), (1, 0)):
        scalar = _fill(meaning(e.args[c]))
        if scalar is not None and _same_type(e.ty, e.args[x].ty) and type(e.args[c]) is not Constant:
            return op_call(e.op.name, *((e.args[0], scalar) if c else (scalar, e.args[1])))
    return None


@_on("add")
def _sum_of_constants(e: Call, meaning: Callable[[Any], Any]) -> Any:
    """``(x + a) + b => x + (a + b)`` for constants, up to the rounding of a sum."""
    for x, c in ((0, 1), (1, 0)):
        last, inner = meaning(e.args[c]), _inner(e.args[x], meaning, "add")
        if type(last) is not Constant or inner is None:
            continue
        for y, d in ((0, 1), (1, 0)):
            first = meaning(inner.args[d])
            if type(first) is Constant and type(meaning(inner.args[y])) is not Constant:
                return op_call("add", inner.args[y], op_call("add", first, last))
    return None


def _all(e: Constant, number: int) -> bool:
    array: np.ndarray[Any, Any] = e.data.numpy()
    return array.size > 0 and array.reshape(-1)[0] == number and bool((array == number).all())


@_on("divide")
def _reciprocal_of_root(e: Call, meaning: Callable[[Any], Any]) -> Any:
    """``1 / sqrt(x) => rsqrt(x)``."""
    one, root = meaning(e.args[0]), _inner(e.args[1], meaning, "sqrt")
    if type(one) is not Constant or root is None or not _all(one, 1) or not _same_type(e.ty, e.args[1].ty):
        return None
    return op_call("rsqrt", root.args[0])


@_on("zeros_like", "ones_like")
def _filled_like(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """``zeros_like(x) => zeros(shape)`` where the shape is known."""
    shape = _shape(e.ty)
    return None if shape is None else op_call(e.op.name[: -len("_like")], shape=shape, dtype=e.ty.dtype)


@_on("full_like")
def _full_like(e: Any, meaning: Callable[[Any], Any]) -> Any:
    shape = _shape(e.ty)
    return None if shape is None else op_call("full", e.args[1], shape=shape, dtype=e.ty.dtype)


@_on("reshape_like", "broadcast_to_like", "collapse_sum_like")
def _shaped_like(e: Any, meaning: Callable[[Any], Any]) -> Any:
    """``reshape_like(x, y) => reshape(x, shape)`` where the shape is known."""
    shape, name = _shape(e.ty), e.op.name
    if shape is None or (name == "reshape_like" and 0 in shape):
        return None
    if name == "reshape_like":
        return op_call("reshape", e.args[0], newshape=shape)
    return op_call("broadcast_to" if name == "broadcast_to_like" else "collapse_sum_to", e.args[0], shape=shape)
