"""Tensors made from nothing but their shape, and triangles."""

from typing import Any

from weft import ir, te, tir
from weft.ir import PrimExpr
from weft.topi.shape import simplify
from weft.topi.typing import Extent, Operand, Scalar, Shape


def prim(value: Scalar | ir.PrimValue) -> Any:
    """The scalar expression or number inside a graph-level scalar."""
    return value.value if isinstance(value, ir.PrimValue) else value


def _fill(shape: Any, value: Any, dtype: str, name: str) -> Any:
    if isinstance(value, te.Tensor):
        tensor = value
        return te.compute(tuple(shape), lambda *_: ir.cast(dtype, tensor(*[ir.int64(0)] * tensor.ndim)), name=name)
    scalar = ir.exact_const(value, dtype) if isinstance(value, (bool, int, float)) else ir.as_expr(value)
    return te.compute(tuple(shape), lambda *_: ir.cast(dtype, scalar), name=name)


def full(shape: Shape, fill_value: Operand, dtype: str = "") -> Any:
    """Fill with the one element of a tensor, or with a scalar."""
    return _fill(ir.as_shape(shape), fill_value, dtype or ir.dtype_of(fill_value), "T_full")


def full_like(x: te.Tensor, fill_value: Scalar, dtype: str = "") -> Any:
    """Fill a tensor shaped as `x`."""
    return _fill(x.shape, fill_value, dtype or x.dtype, "T_full_like")


def _is_float(*values: Any) -> bool:
    return any(
        isinstance(v, (float, ir.FloatImm)) or (isinstance(v, ir.PrimExpr) and ir.DataType(v.dtype).is_float)
        for v in values
    )


def arange_size(start: Scalar, end: Scalar, step: Scalar) -> ir.PrimExpr:
    """The number of elements of a range."""
    start, end, step = (prim(v) for v in (start, end, step))
    if _is_float(start, end, step):
        b, e, s = (ir.cast("float64", ir.as_expr(v)) for v in (start, end, step))
        return simplify(ir.max_(ir.cast("int64", tir.ceil((e - b) / s)), ir.int64(0)))
    b, e, s = ir.as_shape((start, end, step))
    if ir.as_int(b) == 0 and ir.as_int(s) == 1:
        return e if ir.as_int(e) is None else ir.int64(max(ir.as_int(e), 0))  # type: ignore[type-var]
    n = ir.as_int(s)
    if n is None:
        up, down = ir.ceildiv(e - b, ir.max_(s, ir.int64(1))), ir.ceildiv(b - e, ir.max_(ir.int64(0) - s, ir.int64(1)))
        return simplify(ir.max_(ir.select(s > ir.int64(0), up, down), ir.int64(0)))
    return simplify(ir.max_(ir.ceildiv(e - b, s) if n > 0 else ir.ceildiv(b - e, ir.int64(-n)), ir.int64(0)))


def arange_ends(start: Scalar, end: Scalar, step: Scalar, dtype: str) -> list[PrimExpr]:
    """The first and the last element, int64, of a range of integers (zeros if it is empty); of floats nothing."""
    if not ir.DataType(dtype).is_integer or _is_float(*(prim(v) for v in (start, end, step))):
        return []
    first, by = (ir.cast("int64", ir.as_expr(prim(v))) for v in (start, step))
    n = arange_size(start, end, step)
    return [simplify(ir.select(n > 0, v, ir.int64(0))) for v in (first, first + (n - 1) * by)]


def arange(start: Scalar, end: Scalar, step: Scalar, dtype: str = "int64") -> Any:
    """``start, start + step, ...`` before `end`; an InvalidArgument for known integers that `dtype` does not hold."""
    for known in map(ir.as_int, arange_ends(start, end, step, dtype)):
        ir.exact_const(known or 0, dtype)
    extent = arange_size(start, end, step)
    b, s = prim(start), prim(step)
    wide = "float64" if _is_float(b, prim(end), s) else "int64"
    first, by = ir.cast(wide, ir.as_expr(b)), ir.cast(wide, ir.as_expr(s))
    return te.compute((extent,), lambda i: ir.cast(dtype, first + ir.cast(wide, i) * by), name="T_arange")


def trilu(x: te.Tensor, k: Extent = 0, upper: bool = False) -> Any:
    """The lower or upper triangle of each matrix; the rest becomes zero."""
    offset = ir.as_shape((prim(k),))[0]
    shift = offset if upper else 0 - offset
    known = ir.as_int(shift)

    def element(*i: Any) -> Any:
        a, b = (i[-2], i[-1]) if upper else (i[-1], i[-2])
        keep = (
            a < b if known == 1 else a <= b + ir.int64(-known) if known is not None and known <= 0 else a + shift <= b
        )
        return ir.select(keep, x(*i), ir.const(0, x.dtype))

    return te.compute(x.shape, element, name="T_triu" if upper else "T_tril")


def eye(rows: Extent, columns: Extent, k: Extent = 0, dtype: str = "float32") -> Any:
    """Ones on the k-th diagonal of a matrix."""
    offset, shape = ir.as_shape((prim(k),))[0], ir.as_shape((prim(rows), prim(columns)))
    sizes = [ir.as_int(n) for n in (offset, *shape)]
    near = all(n is not None and abs(n) < 1 << 30 for n in sizes)  # numbers of as many bits as elements are as fast

    def element(i: PrimExpr, j: PrimExpr) -> Any:
        place, j = (ir.cast("int32", x) if near else x for x in (i + offset, j))
        return ir.select(place.equal(j), ir.const(1, dtype), ir.const(0, dtype))

    return te.compute(shape, element, name="T_eye")
