"""Matrix products."""

from __future__ import annotations

from itertools import combinations
from math import prod
from typing import Any

from weft import te
from weft.error import ShapeMismatch
from weft.ir import PrimExpr, as_int, cast, floordiv, floormod, int64
from weft.topi.broadcast import broadcast_index, broadcast_shape
from weft.topi.conv import whole_groups
from weft.topi.precision import accumulator, narrowed, shared
from weft.topi.shape import simplify
from weft.topi.typing import Tensors

_LANES = 16  # the floats of the widest vectors


def matmul(a: te.Tensor, b: te.Tensor, out_dtype: str = "", transposed: bool = False, name: str = "T_matmul") -> Any:
    """Multiply matrices with NumPy's rules for ranks and batches; 16-bit floats are summed in float32.

    The matrices of `b` may be given `transposed`.
    """
    dtype = out_dtype or a.dtype
    wide = accumulator(dtype)
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2]) if a.ndim > 2 or b.ndim > 2 else ()
    columns = b.shape[-2 if transposed else -1] if b.ndim > 1 else None
    if columns is not None:
        a = shared(a, columns)
    k = te.reduce_axis((int64(0), a.shape[-1]), "k")
    rows, cols = (() if a.ndim == 1 else (a.shape[-2],)), (() if columns is None else (columns,))

    def element(*i: Any) -> Any:
        outer = i[: len(batch)]
        row = (i[len(batch)],) if rows else ()
        col = (i[-1],) if cols else ()
        x = a(*broadcast_index(a.shape[:-2], batch, outer), *row, k.var)
        y = b(*broadcast_index(b.shape[:-2], batch, outer), *((*col, k.var) if transposed else (k.var, *col)))
        return te.sum(cast(wide, x) * cast(wide, y), axis=k)

    return narrowed(te.compute((*batch, *rows, *cols), element, name=name), dtype)


def linear(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str = "") -> Any:
    """``x @ weight.T + bias``."""
    dtype = out_dtype or x.dtype
    wide = accumulator(dtype)
    k = te.reduce_axis((int64(0), x.shape[-1]), "k")
    if all(as_int(d) == 1 for d in x.shape[:-1]) and (as_int(x.shape[-1]) or 0) >= _LANES:
        out = _row(x, weight, wide)
    else:
        out = te.compute(
            (*x.shape[:-1], weight.shape[0]),
            lambda *i: te.sum(cast(wide, x(*i[:-1], k.var)) * cast(wide, weight(i[-1], k.var)), axis=k),
            name="T_linear",
        )
    if bias is None:
        return narrowed(out, dtype)
    return te.compute(out.shape, lambda *i: cast(dtype, out(*i) + cast(wide, bias(i[-1]))), name="T_add")


def _row(x: Any, weight: Any, wide: str) -> Any:
    """Multiply one row: both operands are read along their rows, whose lanes are summed apart and then together."""
    whole, rest = divmod(as_int(x.shape[-1]) or 0, _LANES)
    lanes, shape = int64(_LANES), (*x.shape[:-1], weight.shape[0])
    k, lane, tail = (te.reduce_axis((int64(0), int64(n)), v) for n, v in ((whole, "k"), (_LANES, "l"), (rest, "t")))

    def product(i: Any, at: Any) -> Any:
        return cast(wide, x(*i[:-1], at)) * cast(wide, weight(i[-1], at))

    parts = te.compute(
        (*shape, lanes), lambda *i: te.sum(product(i[:-1], k.var * lanes + i[-1]), axis=k), name="T_lanes"
    )
    out = te.compute(shape, lambda *i: te.sum(parts(*i, lane.var), axis=lane), name="T_linear")
    if not rest:
        return out
    end = te.compute(shape, lambda *i: te.sum(product(i, tail.var + int64(whole * _LANES)), axis=tail), name="T_tail")
    return te.compute(shape, lambda *i: out(*i) + end(*i), name="T_add")


def matmul_packed(x: te.Tensor, w: te.Tensor, n: int, group: int = 1, out_dtype: str = "") -> Any:
    """Multiply by a matrix in panels (ceil(n / panel), ceil(k / group), panel * group)."""
    dtype = out_dtype or x.dtype
    size, wide = int64(int(group)), accumulator(dtype)
    if group > 1:
        x = whole_groups(x, simplify(floordiv(x.shape[-1] + (size - int64(1)), size) * size))
    else:
        x = shared(x, int64(int(n)))
    panel = floordiv(w.shape[2], size) if group > 1 else w.shape[2]
    k = te.reduce_axis((int64(0), x.shape[-1]), "k")

    def weight(column: PrimExpr) -> Any:
        place = floormod(column, panel)
        if group > 1:
            return w(floordiv(column, panel), floordiv(k.var, size), place * size + floormod(k.var, size))
        return w(floordiv(column, panel), k.var, place)

    out = te.compute(
        (*x.shape[:-1], int64(int(n))),
        lambda *i: te.sum(cast(wide, x(*i[:-1], k.var)) * cast(wide, weight(i[-1])), axis=k),
        name="T_matmul_packed",
    )
    return narrowed(out, dtype)


def einsum_dims(subscripts: str, shapes: list[Any]) -> tuple[list[str], str, dict[str, Any], list[str]]:
    """Parse an einsum: (terms, output, dimension of each letter, letters summed over).

    An ellipsis becomes upper-case letters.
    """
    text = subscripts.replace(" ", "")
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ShapeMismatch("einsum: number of operands", expected=str(len(terms)), found=str(len(shapes)))
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    width = max(
        (len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True) if "..." in t), default=0
    )
    terms = [
        t.replace("...", "".join(spare[width - (len(s) - len(t) + 3) : width])) if "..." in t else t
        for t, s in zip(terms, shapes, strict=True)
    ]
    ellipsis = "".join(spare[:width])
    if arrow:
        out = out.replace("...", ellipsis)
    else:
        letters = "".join(terms)
        out = ellipsis + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in ellipsis))
    dims: dict[str, Any] = {}
    for t, s in zip(terms, shapes, strict=True):
        if len(t) != len(s):
            raise ShapeMismatch(f"einsum: operand '{t}' has another rank", expected=str(len(t)), found=str(len(s)))
        for c, d in zip(t, s, strict=True):
            if c not in dims or as_int(dims[c]) == 1:
                dims[c] = d
            elif as_int(dims[c]) is None and as_int(d) not in (None, 1):
                dims[c] = d
            elif as_int(d) not in (None, 1) and as_int(d) != as_int(dims[c]):
                raise ShapeMismatch(f"einsum: dimension '{c}' differs", expected=str(dims[c]), found=str(d))
    strange = [c for c in out if c not in dims]
    if strange or len(set(out)) != len(out):
        raise ShapeMismatch(
            f"einsum: '{out}' is no output of '{','.join(terms)}'", expected="letters of the operands, each once"
        )
    return terms, out, dims, [c for c in dims if c not in out]


def einsum(operands: Tensors, subscripts: str) -> Any:
    """Multiply tensors along named axes and sum over the axes that the output does not name.

    More than two are multiplied two by two, those first that take the fewest products.
    """
    dtype, left = operands[0].dtype, list(operands)
    terms, out, dims, _ = einsum_dims(subscripts, [t.shape for t in operands])
    while len(left) > 2:
        pairs = combinations(range(len(left)), 2)
        a, b = min(pairs, key=lambda p: prod(as_int(dims[c]) or 256 for c in _letters(terms, p)))
        pair, given = [terms[a], terms[b]], [left[a], left[b]]
        del terms[b], terms[a], left[b], left[a]
        kept = "".join(c for c in _letters(pair, (0, 1)) if c in out or any(c in t for t in terms))
        terms.append(kept)
        left.append(_products(given, pair, kept, "T_product"))
    return narrowed(_products(left, terms, out, "T_einsum"), dtype)


def _letters(terms: list[str], pair: tuple[int, int]) -> str:
    """The letters of two terms: those of both, those of the first, those of the second."""
    a, b = (terms[i] for i in pair)
    return "".join(dict.fromkeys([*(c for c in a if c in b), *a, *b]))


def _products(operands: list[Any], terms: list[str], out: str, name: str) -> Any:
    """Multiply tensors and sum over the axes that are not in `out`; numbers are as wide as sums need."""
    wide, sizes = accumulator(operands[0].dtype), [t.shape for t in operands]
    _, _, dims, summed = einsum_dims(f"{','.join(terms)}->{out}", sizes)
    axes = {c: te.reduce_axis((int64(0), dims[c]), c) for c in summed}

    def element(*i: Any) -> Any:
        env = {**dict(zip(out, i, strict=True)), **{c: a.var for c, a in axes.items()}}
        product: Any = None
        for t, x in zip(terms, operands, strict=True):
            at = [env[c] if as_int(d) != 1 else int64(0) for c, d in zip(t, x.shape, strict=True)]
            factor = cast(wide, x(*at)) if axes else x(*at)
            product = factor if product is None else product * factor
        return te.sum(product, axis=list(axes.values())) if axes else product

    return te.compute(tuple(dims[c] for c in out), element, name=name)
