"""Collective operators: what workers of one program exchange, as calls of ``runtime.disco.*``.

A process is one worker here: its collectives are copies, and those of more workers are refused when they run. Somebody
who has workers registers functions of these names.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from weft import ffi, ir, op, runtime
from weft.error import InvalidArgument, ShapeMismatch
from weft.relax.core_ops import call_dps_packed, core_op, tensor_operand

_REDUCTIONS = ("sum", "prod", "min", "max", "avg")


def _call(name: str, x: ir.Expr, **attrs: Any) -> ir.Call:
    return ir.Call(ir.Op.get(f"relax.ccl.{name}"), (x,), ir.Attrs.of(attrs))


def allreduce(x: ir.Expr, op_type: str = "sum", in_group: bool = True) -> ir.Call:
    """Reduce a tensor over workers, element by element; each gets the result.

    Parameters
    ----------
    op_type : str
        sum, prod, min, max or avg.
    in_group : bool
        Whether over the workers of a group rather than all.
    """
    if op_type not in _REDUCTIONS:
        raise InvalidArgument("allreduce: unknown op_type", expected=", ".join(_REDUCTIONS), found=repr(op_type))
    return _call("allreduce", x, op_type=op_type, in_group=bool(in_group))


def allgather(x: ir.Expr, num_workers: int, in_group: bool = True) -> ir.Call:
    """Join the tensors of all workers along the first axis; each gets the result."""
    return _call("allgather", x, num_workers=_workers(num_workers), in_group=bool(in_group))


def broadcast_from_worker0(x: ir.Expr) -> ir.Call:
    """Give the first worker's tensor to all."""
    return _call("broadcast_from_worker0", x)


def scatter_from_worker0(x: ir.Expr, num_workers: int, axis: int = 0) -> ir.Call:
    """Give each worker one of equal parts of the first worker's tensor along an axis."""
    return _call("scatter_from_worker0", x, num_workers=_workers(num_workers), axis=int(axis))


def _workers(count: Any) -> int:
    number = ir.as_int(count)
    if number is None or number < 1:
        raise InvalidArgument("num_workers is a positive number", found=repr(count))
    return number


COLLECTIVES: dict[str, Callable[..., ir.Call]] = {
    f"ccl.{f.__name__}": f for f in (allgather, allreduce, broadcast_from_worker0, scatter_from_worker0)
}


# --- types ------------------------------------------------------------------------------------------------------------


_same = partial(tensor_operand, what="a collective")
core_op("ccl.allreduce")(_same)
core_op("ccl.broadcast_from_worker0")(_same)


@core_op("ccl.allgather")
def _gathered(call: ir.Call) -> ir.TensorType:
    return _resized(call, 0, lambda dim, workers: dim * ir.int64(workers))


@core_op("ccl.scatter_from_worker0")
def _scattered(call: ir.Call) -> ir.TensorType:
    def part(dim: ir.PrimExpr, workers: int) -> Any:
        if (ir.as_int(dim) or 0) % workers:
            raise ShapeMismatch(
                "scatter_from_worker0: the parts are not equal",
                expected=f"a multiple of {workers}",
                found=str(dim),
                where=call.span,
            )
        return ir.floordiv(dim, ir.int64(workers))

    return _resized(call, call.attrs["axis"], part)


def _resized(call: ir.Call, axis: int, resize: Callable[[Any, int], Any]) -> ir.TensorType:
    ty = _same(call)
    if ty.ndim >= 0 and not -ty.ndim <= axis < ty.ndim:
        raise ShapeMismatch("a collective has no such axis", expected=f"rank {ty.ndim}", found=str(axis))
    if ty.shape is None:
        return ty
    at = axis % ty.ndim
    dims = tuple(resize(d, call.attrs["num_workers"]) if i == at else d for i, d in enumerate(ty.shape))
    return ir.TensorType(dims, ty.dtype, ty.ndim, ty.vdevice)


# --- what they become -------------------------------------------------------------------------------------------------


def _legalize(name: str, *more: Callable[[ir.Call], Any]) -> None:
    def legalize(bb: Any, call: ir.Call) -> ir.Expr:
        args = [call.args[0], *(part(call) for part in more)]
        return call_dps_packed(f"runtime.disco.{name}", args, call.ty)

    ir.register_op_attr(f"relax.ccl.{name}", "FLegalize", legalize)


def _scatter(bb: Any, call: ir.Call) -> ir.Expr:
    """Bring the parts to the front first."""
    x, ty, axis, workers = call.args[0], _same(call), call.attrs["axis"] % _same(call).ndim, call.attrs["num_workers"]
    if ty.shape is None:
        return call
    dims = (*ty.shape[:axis], ir.int64(workers), ir.floordiv(ty.shape[axis], ir.int64(workers)), *ty.shape[axis + 1 :])
    parts = bb.emit(op.make_call("reshape")(x, ir.shape_expr(dims)))
    if axis:
        order = [axis, *(i for i in range(len(dims)) if i != axis)]
        parts = bb.emit(op.make_call("permute_dims")(parts, order))
    return call_dps_packed("runtime.disco.scatter_from_worker0", [parts, ir.prim_value(False)], call.ty)


_legalize(
    "allreduce",
    lambda c: ir.shape_expr([_REDUCTIONS.index(c.attrs["op_type"])]),
    lambda c: ir.prim_value(c.attrs["in_group"]),
)
_legalize("allgather", lambda c: ir.prim_value(c.attrs["in_group"]))
_legalize("broadcast_from_worker0", lambda c: ir.prim_value(False))
ir.register_op_attr("relax.ccl.scatter_from_worker0", "FLegalize", _scatter)


def _register(name: str) -> None:
    @ffi.register_global_func(f"runtime.disco.{name}", override=True)
    def collective(x: runtime.Tensor, *more: Any) -> None:
        """Do what one worker does: copy."""
        out = more[-1]
        data = x.numpy()
        if data.size != out.numpy().size:
            raise InvalidArgument(
                f"{name}: there is one worker",
                expected=f"{data.size} elements",
                found=f"{out.numpy().size} elements of the result",
                help=f"register 'runtime.disco.{name}' to run several",
            )
        out.copyfrom(data.reshape(out.shape))


for _name in COLLECTIVES:
    _register(_name.removeprefix("ccl."))
