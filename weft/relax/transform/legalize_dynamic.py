"""Operators whose result has a shape that the data decides: one kernel for the shape, one for the elements."""

from collections.abc import Callable
from typing import Any

from weft import error, tir
from weft.ir import Call, Expr, GlobalVar, ShapeType, SizeVar, TensorType, const, int64, select, shape_expr
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import call_tir, tensor_to_shape
from weft.relax.te_bridge import undefined_vars
from weft.te import Tensor, compute, kernel_of_stages, placeholder

Add = Callable[[Any, str], GlobalVar]


def lower_dynamic_strided_slice(call: Call, bb: BlockBuilder, add: Add) -> Expr:
    """Emit the kernel of the shape, name the dimensions, and return the call that takes the elements.

    Parameters
    ----------
    add : callable
        ``add(prim_func, name)`` puts a kernel into the module.
    """
    x, *bounds = call.args
    ty: Any = x.ty  # type: ignore[attr-defined]
    if ty.shape is None or not ty.dtype:
        raise error.LoweringError(
            "dynamic_strided_slice: the shape of x is not known", where=call.span, found=str(ty), help="use match_cast"
        )
    rank = len(ty.shape)
    begin, end, step = (placeholder((int64(rank),), "int64", name=n) for n in ("begin", "end", "strides"))
    first, length = _ranges(begin, end, step, ty.shape)

    def extent(i: Any) -> Any:
        value: Any = int64(0)
        for axis in reversed(range(rank)):
            value = select(i.equal(int64(axis)), length(axis), value)
        return value

    kernel = kernel_of_stages([begin, end, step, compute((int64(rank),), extent, name="shape")])
    extra = undefined_vars(kernel)
    kernel = kernel.replace(params=(*kernel.params, *extra))
    out_ty = TensorType((int64(rank),), "int64", 1)
    sizes = bb.emit(call_tir(add(kernel, "dynamic_strided_slice_shape"), bounds, out_ty, extra or None), "sizes")
    dims = tuple(SizeVar(f"d{i}", "int64") for i in range(rank))
    bb.match_cast(bb.emit(tensor_to_shape(sizes), "shape"), ShapeType(dims, rank), "dims")
    data = placeholder(ty.shape, ty.dtype, name="x")
    part = compute(
        dims, lambda *i: data(*(first(a) + v * step(int64(a)) for a, v in enumerate(i))), name="T_dynamic_strided_slice"
    )
    taken = kernel_of_stages([data, begin, end, step, part])
    extra = undefined_vars(taken)
    taken = taken.replace(params=(*taken.params, *extra))
    out_ty = TensorType(dims, ty.dtype, rank)
    return call_tir(add(taken, "dynamic_strided_slice"), [x, *bounds], out_ty, shape_expr(extra) if extra else None)


def _ranges(begin: Tensor, end: Tensor, step: Tensor, shape: Any) -> tuple[Any, Any]:
    """Where each axis begins and how many elements it gives, by NumPy's rules; a stride of 0 gives none."""

    def bound(value: Any, axis: int) -> Any:
        dim, backwards = shape[axis], step(int64(axis)) < int64(0)
        low = select(backwards, int64(-1), int64(0))
        high = select(backwards, dim - int64(1), dim)
        value = select(value < int64(0), value + dim, value)
        return tir.max(low, tir.min(value, high))

    def first(axis: int) -> Any:
        return bound(begin(int64(axis)), axis)

    def length(axis: int) -> Any:
        stride = step(int64(axis))
        span = bound(end(int64(axis)), axis) - first(axis)
        size = tir.max(select(stride < int64(0), int64(0) - stride, stride), int64(1))
        way = select(stride < int64(0), int64(0) - span, span)
        count = tir.max(tir.floordiv(way + size - int64(1), size), int64(0))
        return select(stride.equal(const(0, "int64")), int64(0), count)

    return first, length
