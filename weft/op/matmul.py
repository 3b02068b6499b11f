"""Matrix products."""

from typing import Any

import numpy as np

from weft import error, te
from weft.ir import Expr, TensorType, as_int, ceildiv, floordiv, int64, numpy_dtype
from weft.op.attributes import dtype, integer, text
from weft.op.infer import broadcast_dims, equal_dims, fields_of, same_dtype, tensor_arg
from weft.op.registry import Fusion, declare
from weft.op.relations import demand_at_least, demand_divisible, demand_equal, demand_indices, demand_same_shape
from weft.topi.compressed import GROUP, WORDS, matmul_compressed
from weft.topi.matmul import einsum, einsum_dims, linear, matmul, matmul_packed


def _matmul_infer(x1: Expr, x2: Expr, out_dtype: str) -> TensorType:
    a, b = tensor_arg("matmul", "x1", x1), tensor_arg("matmul", "x2", x2)
    dtype = out_dtype or same_dtype("matmul", x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        raise error.ShapeMismatch(
            "matmul: operands need at least one dimension", found=f"{a.ndim} and {b.ndim} dimensions", where=x1.span
        )
    if a.ndim < 0 or b.ndim < 0:
        return TensorType(None, dtype, -1)
    ndim = max(a.ndim, b.ndim, 2) - (a.ndim == 1) - (b.ndim == 1)
    if a.shape is None or b.shape is None:
        return TensorType(None, dtype, ndim)
    k1, k2 = a.shape[-1], b.shape[-2] if b.ndim > 1 else b.shape[-1]
    if not equal_dims(k1, k2) and hasattr(k1, "value") and hasattr(k2, "value"):
        shown = f"x1: ({', '.join(map(str, a.shape))})   x2: ({', '.join(map(str, b.shape))})"
        hint = "x2 looks transposed; use permute_dims(x2)" if b.ndim > 1 and equal_dims(k1, b.shape[-1]) else None
        raise error.ShapeMismatch(
            f"matmul: inner dimensions differ: {shown}",
            expected=f"x2.shape[-2] == {k1}",
            found=str(k2),
            help=hint,
            where=x1.span,
        )
    demand_equal("matmul: rows of 'x2'", k2, k1)
    batch = broadcast_dims("matmul", a.shape[:-2], b.shape[:-2])
    dims = (*batch, *(() if a.ndim == 1 else (a.shape[-2],)), *(() if b.ndim == 1 else (b.shape[-1],)))
    return TensorType(dims, dtype, len(dims))


def _matmul_ref(a: Any, b: Any, out_dtype: str) -> Any:
    wide = np.float64 if a.dtype.kind in "fV" else numpy_dtype(out_dtype or str(a.dtype))
    return np.asarray(np.matmul(a.astype(wide), b.astype(wide))).astype(
        numpy_dtype(out_dtype) if out_dtype else a.dtype
    )


declare(
    "matmul",
    "x1 x2",
    {"out_dtype": dtype()},
    infer=_matmul_infer,
    lower=matmul,
    reference=_matmul_ref,
    fusion=Fusion.ANCHOR,
    rtol=1e-4,
    doc="Matrix product with NumPy's rules for ranks and batches.",
)


def _linear_infer(x: Expr, weight: Expr, bias: Expr | None = None, *, out_dtype: str) -> TensorType:
    a, w = tensor_arg("linear", "x", x, min_ndim=1), tensor_arg("linear", "weight", weight, ndim=2)
    dtype = out_dtype or same_dtype("linear", x, weight)
    b = tensor_arg("linear", "bias", bias, ndim=1) if bias is not None else None
    if a.shape is None or w.shape is None:
        return TensorType(None, dtype, a.ndim)
    demand_equal("linear: columns of 'x'", a.shape[-1], w.shape[1], x.span)
    if b is not None and b.shape is not None:
        demand_equal("linear: length of 'bias'", b.shape[0], w.shape[0], x.span)
    return TensorType((*a.shape[:-1], w.shape[0]), dtype, a.ndim)


def _linear_ref(x: Any, weight: Any, bias: Any = None, *, out_dtype: str) -> Any:
    y = np.matmul(x.astype(np.float64), weight.astype(np.float64).T) + (0 if bias is None else bias)
    return y.astype(numpy_dtype(out_dtype) if out_dtype else x.dtype)


declare(
    "linear",
    "x weight bias?",
    {"out_dtype": dtype()},
    infer=_linear_infer,
    lower=linear,
    reference=_linear_ref,
    fusion=Fusion.ANCHOR,
    rtol=1e-4,
    doc="``x @ weight.T + bias``, with weight (outputs, inputs).",
)


def _outer_infer(x1: Expr, x2: Expr) -> TensorType:
    a, b = tensor_arg("outer", "x1", x1, ndim=1), tensor_arg("outer", "x2", x2, ndim=1)
    dtype = same_dtype("outer", x1, x2)
    return TensorType(None if a.shape is None or b.shape is None else (*a.shape, *b.shape), dtype, 2)


declare(
    "outer",
    "x1 x2",
    infer=_outer_infer,
    lower=lambda x1, x2: te.compute((*x1.shape, *x2.shape), lambda i, j: x1(i) * x2(j), name="T_outer"),
    reference=np.outer,
    fusion=Fusion.BROADCAST,
    doc="All products of the elements of two vectors.",
)


def _packed_infer(x: Expr, w: Expr, n: int, group: int, out_dtype: str) -> TensorType:
    a = tensor_arg("nn.matmul_packed", "x", x)
    panels = tensor_arg("nn.matmul_packed", "w", w, ndim=3)
    dtype = out_dtype or a.dtype
    if a.shape is None:
        return TensorType(None, dtype, a.ndim)
    if panels.shape is not None:
        count, steps, width = panels.shape
        least = ceildiv(a.shape[-1], int64(group))
        if int(group) == 1:
            demand_equal("nn.matmul_packed: columns of 'x'", least, steps, x.span)
        else:
            demand_at_least("nn.matmul_packed: groups of rows of 'w'", steps, least, x.span)
        demand_divisible("nn.matmul_packed: width of a panel of 'w'", width, int(group), x.span)
        demand_at_least("nn.matmul_packed: columns of 'w'", floordiv(count * width, int64(group)), int(n), x.span)
    return TensorType((*a.shape[:-1], int64(int(n))), dtype, a.ndim)


def _packed_ref(x: Any, w: Any, n: int, group: int, out_dtype: str) -> Any:
    panels, steps, panel = *w.shape[:2], w.shape[2] // group
    whole = w.reshape(panels, steps, panel, group).transpose(1, 3, 0, 2).reshape(steps * group, panels * panel)
    dtype = numpy_dtype(out_dtype) if out_dtype else x.dtype
    return np.matmul(x.astype(np.float64), whole[: x.shape[-1], :n].astype(np.float64)).astype(dtype)


declare(
    "nn.matmul_packed",
    "x w",
    {"n": integer(0, at_least=0), "group": integer(1, at_least=1), "out_dtype": dtype()},
    infer=_packed_infer,
    lower=matmul_packed,
    reference=_packed_ref,
    fusion=Fusion.ANCHOR,
    rtol=1e-4,
    doc="``x @ unpack(w)[:, :n]`` with ``w`` in panels: (at least ceil(n / panel), ceil(k / group), panel * group), "
    "padded with zeros, also by more groups; `group` neighbouring rows of a column lie together.",
)


def _compressed_infer(x: Expr, w: Expr, base: Expr, rows: Expr, lanes: Expr, values: Expr, n: int) -> TensorType:
    a = tensor_arg("nn.matmul_compressed", "x", x, min_ndim=1)
    words = tensor_arg("nn.matmul_compressed", "w", w, ndim=4).shape
    bases = tensor_arg("nn.matmul_compressed", "base", base, ndim=2).shape
    entries = [
        tensor_arg("nn.matmul_compressed", name, value, ndim=2).shape
        for name, value in (("rows", rows), ("lanes", lanes), ("values", values))
    ]
    if a.shape is not None and words is not None:
        panels, groups, parts, panel = words
        demand_equal("nn.matmul_compressed: columns of 'x'", a.shape[-1], groups * int64(GROUP), x.span)
        demand_equal("nn.matmul_compressed: words of a group", parts, WORDS, x.span)
        demand_at_least("nn.matmul_compressed: columns of 'w'", panels * panel, int(n), x.span)
        demand_same_shape("nn.matmul_compressed: 'base'", bases, (panels, panel), x.span)
        if entries[0] is not None:
            demand_equal("nn.matmul_compressed: rows of 'rows'", entries[0][0], panels, x.span)
        demand_indices("nn.matmul_compressed: 'rows'", rows, 0, a.shape[-1], x.span)
        demand_indices("nn.matmul_compressed: 'lanes'", lanes, -1, panel, x.span)
    for name, shape in zip(("lanes", "values"), entries[1:], strict=True):
        demand_same_shape(f"nn.matmul_compressed: '{name}'", shape, entries[0], x.span)
    return TensorType(None if a.shape is None else (*a.shape[:-1], int64(int(n))), a.dtype, a.ndim)


def _compressed_ref(x: Any, w: Any, base: Any, rows: Any, lanes: Any, values: Any, n: int) -> Any:
    panels, groups, _, panel = w.shape
    fields = w & 0x07FFFFFF | w & -(1 << 31)
    spare = (w >> 27 & 15).astype(np.int64)
    last = np.bitwise_or.reduce([spare[:, :, j] << 4 * j for j in range(WORDS)])
    last = (last & 0x07FFFFFF | (last >> 27) << 31).astype(np.uint32).view(np.int32)
    bits = np.concatenate([fields, last[:, :, None]], axis=2).reshape(panels, groups * GROUP, panel)
    bits = np.where(bits & 0x07FFFFFF, bits + base[:, None], bits).astype(np.int32)
    whole = bits.view(np.float32).transpose(1, 0, 2).reshape(groups * GROUP, -1).astype(np.float64)
    at, _ = listed = np.nonzero(lanes >= 0)
    whole[rows[listed], at * panel + lanes[listed]] += values[listed]
    return np.matmul(x.astype(np.float64), whole[:, :n]).astype(x.dtype)


declare(
    "nn.matmul_compressed",
    "x w base rows lanes values",
    {"n": integer(0, at_least=0)},
    infer=_compressed_infer,
    lower=matmul_compressed,
    reference=_compressed_ref,
    fusion=Fusion.ANCHOR,
    rtol=1e-4,
    doc="``x @ unpack(w)[:, :n]`` with float32 weights in 28 bits: words (panels, k / 8, 7, panel), the exponent of "
    "each column in place (panels, panel), and rows, lanes and values (panels, entries) of weights too small for that, "
    "which are zeros in `w`: infinity in their row of `x` gives NaN.",
)


def _einsum_infer(operands: Expr, subscripts: str) -> TensorType:
    fields = fields_of("einsum", "operands", operands)
    types = [tensor_arg("einsum", f"operand {i}", f) for i, f in enumerate(fields)]
    dtype = same_dtype("einsum", *fields)
    if any(t.shape is None for t in types):
        return TensorType(None, dtype, -1)
    terms, out, dims, _ = einsum_dims(subscripts, [t.shape for t in types])
    for term, t in zip(terms, types, strict=True):
        for c, d in zip(term, t.shape, strict=True):  # type: ignore[arg-type]
            if as_int(d) != 1:
                demand_equal(f"einsum: dimension '{c}'", d, dims[c], operands.span)
    return TensorType(tuple(dims[c] for c in out), dtype, len(out))


def _einsum_ref(operands: Any, subscripts: str) -> Any:
    wide = np.int64 if operands[0].dtype.kind in "iu" else np.float64
    return np.asarray(np.einsum(subscripts, *[o.astype(wide) for o in operands])).astype(operands[0].dtype)


declare(
    "einsum",
    "operands:tensors",
    {"subscripts": text("")},
    infer=_einsum_infer,
    lower=einsum,
    reference=_einsum_ref,
    fusion=Fusion.ANCHOR,
    rtol=1e-4,
    doc="Einstein summation.",
)
