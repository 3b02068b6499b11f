"""Operators that move, join, cut or repeat tensors without computing on their elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument, ShapeMismatch
from weft.ir import PrimExpr, as_int, floordiv, int64, select
from weft.op import normalize_axis, product, simplify
from weft.relay.op.construct import call, constructs
from weft.relay.op.registry import REQUIRED, declare, shared
from weft.relay.op.shapes import axis_of, dims, is_computed, numbers, rank, shape_argument, shape_of_dims
from weft.relay.typing import Dims, Value

# --- reshape ----------------------------------------------------------------------------------------------------------


def reshaped(shape: Sequence[PrimExpr], codes: Sequence[Any], allowzero: bool = False) -> tuple[PrimExpr, ...]:
    """Resolve the codes of a target shape: 0 copies, -1 is the rest, -2 all that follow, -3 merges two, -4 splits one.

    Parameters
    ----------
    shape : sequence of PrimExpr
        The dimensions of the tensor.
    codes : sequence of int or PrimExpr
        The target.
    allowzero : bool
        Whether 0 is a dimension without elements.

    Raises
    ------
    ShapeMismatch
        When a code has no dimension to act on, or more than one is -1.
    """
    source, out, rest, at = list(shape), [], [], 0
    todo = [as_int(c) if as_int(c) is not None else c for c in codes]

    def take(code: int) -> PrimExpr:
        nonlocal at
        if at >= len(source):
            raise ShapeMismatch(
                f"reshape: code {code} has no dimension left to act on", found=f"{len(source)} dimensions"
            )
        at += 1
        return source[at - 1]

    while todo:
        code: Any = todo.pop(0)
        if code == 0 and not allowzero:
            out.append(take(0))
        elif code == -1:
            rest.append(len(out))
            out.append(int64(-1))
            at += 1
        elif code == -2:
            out += source[at:]
            at = len(source)
        elif code == -3:
            out.append(simplify(take(-3) * take(-3)))
        elif code == -4:
            out += _split_dim(take(-4), todo)
        elif isinstance(code, int) and code < 0:
            raise InvalidArgument(f"reshape: unknown code {code}", expected="-1, -2, -3, -4 or a dimension")
        else:
            out.append(ir.as_shape((code,))[0])
            at += 1
    if len(rest) > 1:
        raise ShapeMismatch("reshape: more than one dimension is -1", found=", ".join(map(str, codes)))
    if rest:
        others = product([d for i, d in enumerate(out) if i != rest[0]])
        out[rest[0]] = int64(0) if as_int(others) == 0 else simplify(floordiv(product(source), others))
    return tuple(out)


def _split_dim(dim: PrimExpr, todo: list[Any]) -> list[PrimExpr]:
    """Take the two parts into which -4 splits a dimension; one of them may be -1."""
    if len(todo) < 2:
        raise ShapeMismatch("reshape: -4 must be followed by two dimensions", found=str(len(todo)))
    parts = [todo.pop(0), todo.pop(0)]
    if parts == [-1, -1]:
        raise ShapeMismatch("reshape: both parts of a split are -1")
    known = [ir.as_shape((p,))[0] for p in parts]
    for i, p in enumerate(parts):
        if p == -1:
            known[i] = simplify(floordiv(dim, known[1 - i]))
    a, b, whole = (as_int(v) for v in (*known, dim))
    if None not in (a, b, whole) and a * b != whole:  # type: ignore[operator]
        raise ShapeMismatch(
            "reshape: the parts do not multiply to the dimension", expected=str(whole), found=f"{a} * {b}"
        )
    return known


def _reshape(data: ir.Expr, newshape: Any, allowzero: bool = False) -> ir.Expr:
    codes = newshape if isinstance(newshape, tuple) else (newshape,)
    return shared("reshape", data, shape_of_dims(reshaped(dims(data), codes, allowzero)))


def _reverse_reshape(data: ir.Expr, newshape: Any, allowzero: bool = False) -> ir.Expr:
    codes = [as_int(c) if as_int(c) is not None else c for c in newshape]
    turned = reshaped(dims(data)[::-1], _reversed_codes(codes), allowzero)
    return shared("reshape", data, shape_of_dims(turned[::-1]))


def _reversed_codes(codes: list[Any]) -> list[Any]:
    """Read codes from the right; a split keeps its code before its two parts."""
    out, i = [], 0
    while i < len(codes):
        n = 3 if codes[i] == -4 else 1
        out.append([codes[i], *reversed(codes[i + 1 : i + n])])
        i += n
    return [c for group in reversed(out) for c in group]


def _dyn_reshape(data: ir.Expr, newshape: tuple[PrimExpr, ...], allowzero: bool = False) -> ir.Expr:
    if all(as_int(v) is not None for v in newshape):
        return _reshape(data, newshape, allowzero)
    shape = dims(data)
    kept = [
        select(v.equal(int64(0)), shape[i], v) if i < len(shape) and not allowzero and as_int(v) is None else v
        for i, v in enumerate(newshape)
    ]
    rest = simplify(floordiv(product(shape), int64(0) - product(kept)))  # one factor is -1, if this is used
    return shared("reshape", data, shape_of_dims(select(v.equal(int64(-1)), rest, v) for v in kept))


_CODES = "0 copies a dimension, -1 is the rest, -2 copies all that follow, -3 merges two, -4 splits one into the two"
declare(
    "reshape",
    "data",
    {"newshape": REQUIRED, "allowzero": False},
    expand=_reshape,
    doc=f"The same elements under another shape: {_CODES} that follow it.",
)
declare(
    "contrib_reverse_reshape",
    "data",
    {"newshape": REQUIRED, "allowzero": False},
    expand=_reverse_reshape,
    doc="Reshape with codes read from the right.",
)
declare(
    "dyn.reshape",
    "data newshape:values",
    {"allowzero": False},
    expand=_dyn_reshape,
    doc="The same elements under a shape that is computed.",
)
declare(
    "reshape_like",
    "data shape_like",
    {"lhs_begin": 0, "lhs_end": None, "rhs_begin": 0, "rhs_end": None},
    expand=lambda lhs, rhs, lhs_begin, lhs_end, rhs_begin, rhs_end: shared(
        "reshape",
        lhs,
        shape_of_dims(_spliced(dims(lhs), lhs_begin, lhs_end, dims(rhs)[_part(rhs, rhs_begin, rhs_end)])),
    ),
    doc="The same elements under the shape of another tensor, or with a range of its dimensions.",
)


def _part(x: ir.Expr, begin: int, end: int | None) -> slice:
    return slice(*slice(begin, end).indices(rank(x))[:2])


def _spliced(shape: tuple[PrimExpr, ...], begin: int, end: int | None, part: tuple[PrimExpr, ...]) -> tuple[Any, ...]:
    b, e, _ = slice(begin, end).indices(len(shape))
    return (*shape[:b], *part, *shape[e:])


@constructs("reshape")
def reshape(data: Value, newshape: Dims | int, allowzero: bool = False) -> ir.Expr:
    """Reshape to numbers and codes, or to a shape that is computed.

    Parameters
    ----------
    data : Expr
        The tensor.
    newshape : int, sequence of int or Expr
        The target: 0 copies a dimension, -1 is the rest, -2 copies all that follow, -3 merges two, -4 splits one into
        the two numbers that follow.
    allowzero : bool
        Whether 0 is a dimension without elements instead.
    """
    if is_computed(newshape):
        return call("dyn.reshape", data, shape_argument(newshape), allowzero=allowzero)
    return call("reshape", data, newshape=_tuple(numbers(newshape)), allowzero=allowzero)


@constructs("reverse_reshape")
def reverse_reshape(data: Value, newshape: Dims | int) -> ir.Expr:
    """Reshape with codes read from the right: ``(0, -1)`` keeps the last dimension's place."""
    return call("contrib_reverse_reshape", data, newshape=_tuple(numbers(newshape)))


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


# --- axes -------------------------------------------------------------------------------------------------------------

declare(
    "transpose",
    "data",
    {"axes": None},
    expand=lambda data, axes: shared("permute_dims", data, axes=axes or None),
    doc="Reorder dimensions; reversed when `axes` is None.",
)


def _squeeze(data: ir.Expr, axis: Any) -> ir.Expr:
    if axis is None and any(as_int(d) is None for d in dims(data)):
        raise ShapeMismatch(
            "squeeze: 'axis' must be given where a dimension is unknown", found=str(data.ty), where=data.span
        )
    return shared("squeeze", data, axis=axis)


def _dyn_squeeze(data: ir.Expr, axis: tuple[PrimExpr, ...]) -> ir.Expr:
    """Reshape to the dimensions that stay; a dimension that goes and is not 1 leaves another number of elements."""
    shape, n = dims(data), rank(data)
    stays = [ir.all_of(*(ir.not_equal(a, int64(k)) for a in axis for k in (i, i - n))) for i in range(n)]
    kept: list[PrimExpr] = []
    for j in range(n - len(axis)):
        place, size = int64(-1), int64(1)
        for d, stay in zip(shape, stays, strict=True):
            place = place + select(stay, int64(1), int64(0))
            size = select(ir.all_of(stay, place.equal(int64(j))), d, size)
        kept.append(simplify(size))
    return shared("reshape", data, shape_of_dims(kept))


@constructs("squeeze")
def squeeze(data: Value, axis: Dims | int | None = None) -> ir.Expr:
    """Drop dimensions of extent 1: all, or those of `axis`, which may be computed."""
    if is_computed(axis):
        return call("dyn.squeeze", data, shape_argument(axis))
    return call("squeeze", data, axis=numbers(axis))


declare("squeeze", "data", {"axis": None}, expand=_squeeze, doc="Drop dimensions of extent 1.")
declare("dyn.squeeze", "data axis:values", expand=_dyn_squeeze, doc="Drop dimensions that are computed.")
declare(
    "nn.batch_flatten",
    "data",
    expand=lambda data: _reshape(data, (*dims(data)[:1], -1)),
    doc="Merge all dimensions but the first.",
)


def _expand_dims(data: ir.Expr, axis: int, num_newaxis: int = 1) -> ir.Expr:
    at = normalize_axis("expand_dims", axis, rank(data) + 1)
    return shared("expand_dims", data, axis=tuple(range(at, at + num_newaxis))) if num_newaxis else data


def _dyn_expand_dims(data: ir.Expr, axis: tuple[PrimExpr, ...], num_newaxis: int = 1) -> ir.Expr:
    shape, n = dims(data), rank(data)
    at = select(axis[0] < int64(0), axis[0] + int64(n + 1), axis[0])
    one, sizes = int64(1), []
    for j in range(n + num_newaxis):
        inside = select(int64(j) < at + int64(num_newaxis), one, shape[j - num_newaxis] if j >= num_newaxis else one)
        sizes.append(simplify(select(int64(j) < at, shape[j], inside) if j < n else inside))
    return shared("reshape", data, shape_of_dims(sizes))


@constructs("expand_dims")
def expand_dims(data: Value, axis: Value | int, num_newaxis: int = 1) -> ir.Expr:
    """Insert `num_newaxis` dimensions of extent 1 before `axis`, which may be computed."""
    if is_computed(axis):
        return call("dyn.expand_dims", data, shape_argument(axis), num_newaxis=num_newaxis)
    return call("expand_dims", data, axis=numbers(axis), num_newaxis=num_newaxis)


declare(
    "expand_dims",
    "data",
    {"axis": REQUIRED, "num_newaxis": 1},
    expand=_expand_dims,
    doc="Insert dimensions of extent 1.",
)
declare(
    "dyn.expand_dims",
    "data axis:values",
    {"num_newaxis": 1},
    expand=_dyn_expand_dims,
    doc="Insert dimensions of extent 1 where it is computed.",
)
declare("reverse", "data", expand="flip", doc="Reverse along an axis.")

# --- joining and splitting --------------------------------------------------------------------------------------------

declare("concatenate", "data:tensors", expand="concat", doc="Join along an axis.")
declare("stack", "data:tensors", expand="stack", doc="Join along a new axis.")


def _split(data: ir.Expr, indices_or_sections: Any, axis: int = 0) -> ir.Expr:
    dim = as_int(dims(data)[axis_of("split", data, axis)])
    if isinstance(indices_or_sections, tuple):
        points = [0, *(int(p) for p in indices_or_sections), *([] if dim is None else [dim])]
        if any(a > b for a, b in itertools.pairwise(points)):
            raise ShapeMismatch(
                "split: the indices do not ascend inside of the axis",
                where=data.span,
                expected=f"indices of 0..{'?' if dim is None else dim}",
                found=str(indices_or_sections),
            )
    elif int(indices_or_sections) < 1 or (dim is not None and dim % int(indices_or_sections)):
        raise ShapeMismatch(
            "split: the axis cannot be cut into so many equal parts",
            where=data.span,
            expected=f"a divisor of {dim}",
            found=str(indices_or_sections),
        )
    return shared("split", data, indices_or_sections=indices_or_sections, axis=axis)


declare(
    "split",
    "data",
    {"indices_or_sections": REQUIRED, "axis": 0},
    expand=_split,
    outputs=lambda made: _sections(made.attrs["indices_or_sections"]),
    doc="Cut along an axis into equal parts, or at indices; returns a tuple.",
)


def _sections(parts: Any) -> int:
    return len(parts) + 1 if isinstance(parts, tuple) else int(parts)


# --- repeating --------------------------------------------------------------------------------------------------------

declare(
    "broadcast_to",
    "data",
    {"shape": REQUIRED},
    expand=lambda data, shape: shared("broadcast_to", data, shape_of_dims(shape)),
    doc="Repeat along dimensions of extent 1.",
)
declare(
    "dyn.broadcast_to",
    "data shape:values",
    expand=lambda data, shape: shared("broadcast_to", data, shape_of_dims(shape)),
    doc="Repeat along dimensions of extent 1 to a shape that is computed.",
)
declare(
    "broadcast_to_like",
    "data broadcast_type",
    expand=lambda data, like: shared("broadcast_to", data, shape_of_dims(dims(like))),
    doc="Repeat along dimensions of extent 1 to the shape of another tensor.",
)
declare(
    "tile",
    "data",
    {"reps": REQUIRED},
    expand=lambda data, reps: shared("tile", data, repeats=reps),
    doc="Repeat the whole tensor along each axis.",
)
declare("repeat", "data", {"repeats": REQUIRED, "axis": 0}, expand="repeat", doc="Repeat each element along an axis.")


@constructs("broadcast_to")
def broadcast_to(data: Value, shape: Dims) -> ir.Expr:
    """Repeat along dimensions of extent 1; the shape may be an expression."""
    if is_computed(shape):
        return call("dyn.broadcast_to", data, shape_argument(shape))
    return call("broadcast_to", data, shape=_tuple(numbers(shape)))


@constructs("tile")
def tile(data: Value, reps: Dims | int) -> ir.Expr:
    """Repeat the whole tensor along each axis; the counts may be an expression."""
    if is_computed(reps):
        return call("dyn.tile", data, shape_argument(reps))
    return call("tile", data, reps=_tuple(numbers(reps)))


def _dyn_tile(data: ir.Expr, reps: tuple[PrimExpr, ...]) -> ir.Expr:
    """Repeat by a view with an axis of its own for each count, repeated and merged."""
    shape, counts = dims(data), tuple(reps)
    full = max(len(shape), len(counts))
    shape = (int64(1),) * (full - len(shape)) + tuple(shape)
    counts = (int64(1),) * (full - len(counts)) + counts
    apart = shared("reshape", data, shape_of_dims([v for d in shape for v in (int64(1), d)]))
    wide = shared("broadcast_to", apart, shape_of_dims([v for n, d in zip(counts, shape, strict=True) for v in (n, d)]))
    return shared("reshape", wide, shape_of_dims([simplify(n * d) for n, d in zip(counts, shape, strict=True)]))


declare("dyn.tile", "data reps:values", expand=_dyn_tile, doc="Repeat the whole tensor by counts that are computed.")

# --- the reverse of repeating -----------------------------------------------------------------------------------------


def _collapsed(data: ir.Expr, shape: tuple[Any, ...]) -> ir.Expr:
    """Sum over the dimensions in which a shape would be repeated to that of the data."""
    have, want = dims(data), ir.as_shape(shape)
    ahead = len(have) - len(want)
    if ahead < 0:
        raise ShapeMismatch(
            "collapse_sum: the target has more dimensions",
            expected=f"at most {len(have)}",
            found=str(len(want)),
            where=data.span,
        )
    for d, w in zip(have[ahead:], want, strict=True):
        if as_int(w) != 1 and None not in (as_int(d), as_int(w)) and as_int(d) != as_int(w):
            raise ShapeMismatch(
                "collapse_sum: a dimension is neither kept nor 1", expected=f"1 or {d}", found=str(w), where=data.span
            )
    kept = tuple(ahead + i for i, w in enumerate(want) if as_int(w) == 1 and as_int(have[ahead + i]) != 1)
    out = shared("sum", data, axis=kept, keepdims=True) if kept else data
    return shared("sum", out, axis=tuple(range(ahead)), keepdims=False) if ahead else out


declare(
    "collapse_sum_like",
    "data collapse_type",
    expand=lambda data, like: _collapsed(data, dims(like)),
    doc="Sum to the shape of another tensor: the reverse of broadcasting.",
)
declare(
    "collapse_sum_to",
    "data",
    {"shape": REQUIRED},
    expand=lambda data, shape: _collapsed(data, shape),
    doc="Sum to a shape: the reverse of broadcasting.",
)
