"""PackNBits: products with weights of few bits read these bits, in panels; nothing is written out as floats."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft import ir, runtime
from weft.relax.core_ops import is_op
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.fold_constant import constant_value
from weft.relax.unused import remove_all_unused
from weft.topi.nbits_products import rows_per_word

_GROUPS = (128, 64, 32, 16)
"""Weights that share parameters in a kernel: what divides the given groups, from the largest."""


class Groups(NamedTuple):
    """A matrix (k, n) of integers with a scale and a zero point for each `group` rows of a column, or without."""

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    group: int


class Panels(NamedTuple):
    """Weights as ``nn.matmul_nbits_packed`` has them, and their bits and group."""

    w: np.ndarray
    scale: np.ndarray
    offset: np.ndarray | None
    bits: int
    group: int


@ir.function_pass(kind=ir.Function, opt_level=1)
def pack_nbits(
    func: ir.Function,
    mod: ir.IRModule,
    *,
    panel: int = 16,
    dot: int = 0,
    rows_in_bytes: bool = False,
    tiles: bool = False,
) -> ir.Function:
    """Multiply by dequantised constants without writing them out.

    Requires: ``relax.normalized``; before constants are folded.
    Ensures: ``relax.normalized``. Rows are rounded to bytes, in the weights' groups, only where `rows_in_bytes` or the
        weights' ``rows`` allow it. Weights that nothing else reads are gone, and are never written out.
    Before::

        @R.function
        def main(x: R.Tensor((1, 2), "float32")):
            with R.dataflow():
                w = R.dequantize_groups(
                    R.const([[1], [-2]], "int8"), R.const([[0.5]], "float32"), R.const([[0]], "int8"), group=2
                )
                y = R.matmul(x, w)
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((1, 2), "float32")):
            with R.dataflow():
                y = R.nn.matmul_nbits_packed(
                    x,
                    R.const([[[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]], "int32"),
                    R.const(
                        [[[0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]],
                        "float16",
                    ),
                    n=1, bits=2, group=16,
                )
                R.output(y)
            return y

    Options:
        ``panel``: columns of a panel. ``dot``: lanes of the machine's dot products of bytes, 0 without them.
        ``rows_in_bytes``: whether all rows may be rounded. ``tiles``: whether many rounded rows go to matrix tiles.
    Cost: Some passes over the weights.
    Source: Quantised blocks as GGML and ONNX Runtime's MatMulNBits have them.
    """
    values: dict[Any, Any] = {b.var: b.value for b in all_bindings(func)}
    packed: dict[tuple[ir.Call, bool], Panels | None] = {}
    exact: dict[str, Any] = {"rows": "float32", "dot": 0, "tiles": False}
    rounded: dict[str, Any] = {"rows": "int8", "dot": dot, "tiles": tiles}

    def rule(_binding: object, value: ir.Expr, _bb: object) -> ir.Expr | None:
        if not is_op(value, "matmul"):
            return None
        found = _weights(value, values)
        if found is None:
            return None
        source, turned = found
        if found not in packed:
            packed[found] = _packed(source, turned, panel)
        made = packed[found]
        if made is None:
            return None
        in_bytes = rows_in_bytes or source.attrs.get("rows", "float32") == "int8"
        return _product(value, made, rounded if in_bytes else exact, _columns(source, turned))

    made = rewrite_bindings(func, mod, rule)
    return func if made is func else remove_all_unused(made, mod)


def _weights(product: Any, values: dict[Any, Any]) -> tuple[ir.Call, bool] | None:
    """Return the dequantisation of a product's constant second operand, and whether it is transposed."""
    x, w = product.args[:2]
    ty = x.ty
    if not isinstance(ty, ir.TensorType) or ty.shape is None or not ty.shape or ir.as_int(ty.shape[-1]) is None:
        return None
    if str(ty.dtype) not in ("float32", "float16", "bfloat16") or str(product.ty.dtype) != str(ty.dtype):
        return None
    w, turned = values.get(w, w), False
    if is_op(w, "permute_dims") and tuple(w.attrs.get("axes") or (1, 0)) == (1, 0):
        w, turned = values.get(w.args[0], w.args[0]), True
    if not (is_op(w, "dequantize_groups") or is_op(w, "dequantize")) or not isinstance(w.args[0], ir.Constant):
        return None
    return (w, turned) if w.args[0].ty.ndim == 2 else None  # type: ignore[attr-defined]


def _columns(source: ir.Call, turned: bool) -> int:
    shape = source.args[0].data.shape  # type: ignore[attr-defined]
    return int(shape[0] if turned else shape[1])


def _packed(source: ir.Call, turned: bool, panel: int) -> Panels | None:
    parts = [constant_value(a) for a in source.args]
    if any(p is None for p in parts):
        return None
    q, scale, zero = parts
    axis = int(source.attrs.get("axis", -1)) % 2
    if is_op(source, "dequantize"):  # along the columns, or for all
        if scale.ndim and axis != (0 if turned else 1):
            return None
        row = (1, q.shape[0] if turned else q.shape[1])
        scale, zero, group = np.broadcast_to(scale, row), np.broadcast_to(zero, row), 0
        found = Groups(q.T if turned else q, scale, zero, group)
    elif axis != (1 if turned else 0):
        return None
    else:
        group = int(source.attrs.get("group", 32))
        found = Groups(q.T, scale.T, zero.T, group) if turned else Groups(q, scale, zero, group)
    return pack_groups(found, panel)


def pack_groups(given: Groups, panel: int) -> Panels | None:
    """Pack a matrix in panels; None where no kernel has such groups or such integers."""
    q, (k, n) = given.q, given.q.shape
    least, most = int(q.min(initial=0)), int(q.max(initial=0))
    bits = next((b for b in (2, 4, 8) for low in (0, -(1 << b - 1)) if least >= low and most < low + (1 << b)), None)
    if bits is None or not k or not n:
        return None
    half = 1 << (bits - 1)
    shift = half if int(q.min()) < 0 else 0
    whole = given.group == 0 or given.group >= k
    size = next((g for g in _GROUPS if (g <= max(16, k) if whole else given.group % g == 0)), None)
    if size is None:
        return None
    groups = -(-k // size)
    times = groups if whole else given.group // size
    scale = np.repeat(given.scale.astype(np.float32), times, 0)[:groups]
    zero = np.repeat(given.zero.astype(np.float32), times, 0)[:groups]
    offset = (np.float32(half - shift) - zero) * scale
    w = _words(q, shift, bits, groups * size, panel)
    return Panels(
        w, _narrowest(_in_panels(scale, panel)), _in_panels(offset, panel) if offset.any() else None, bits, size
    )


def _narrowest(scale: np.ndarray) -> np.ndarray:
    """Store scales as float16 where that is exact."""
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16)
    return runtime.aligned(half) if (half.astype(np.float32) == scale).all() else scale


def _in_panels(a: np.ndarray, panel: int) -> np.ndarray:
    """Turn rows of columns (rows, n) into panels (panels, rows, panel), filled up with zeros."""
    panels = -(-a.shape[1] // panel)
    filled = np.pad(a, ((0, 0), (0, panels * panel - a.shape[1])))
    return runtime.aligned(np.ascontiguousarray(filled.reshape(a.shape[0], panels, panel).transpose(1, 0, 2)))


def _words(q: np.ndarray, shift: int, bits: int, rows: int, panel: int) -> np.ndarray:
    """Put weights into words of 32 bits, as ``weft.topi.nbits`` draws them."""
    per, n = rows_per_word(bits), q.shape[1]
    filled = np.zeros((rows, n), np.uint8)
    np.add(q, np.int16(shift), out=filled[: len(q)], casting="unsafe")
    quads = np.ascontiguousarray(filled.reshape(-1, per // 4, 4, n).transpose(0, 1, 3, 2)).view(np.uint32)[..., 0]
    words = quads[:, 0].copy()
    for j in range(1, per // 4):
        words |= quads[:, j] << np.uint32(j * bits)
    return _in_panels(words.view(np.int32), panel)


def _product(value: Any, made: Panels, how: dict[str, Any], n: int) -> ir.Expr:
    weights = [ir.constant(a) for a in (made.w, made.scale, made.offset) if a is not None]
    attrs = ir.Attrs.of(n=n, bits=made.bits, group=made.group, **how)
    return ir.Call(ir.Op.get("relax.nn.matmul_nbits_packed"), (value.args[0], *weights), attrs, span=value.span)
