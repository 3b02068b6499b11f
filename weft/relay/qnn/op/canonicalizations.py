"""Functions of one quantized tensor as tables, under TVM's names: ``relay.qnn.op.canonicalizations``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import error, ir
from weft.relay.expr import const
from weft.relay.interpreter import Interpreter
from weft.relay.op.registry import op_call
from weft.relay.transform import infer_type


def run_const_expr(expr: ir.Expr) -> np.ndarray:
    """Evaluate an expression without free variables to an array."""
    return Interpreter(infer_type()(ir.IRModule.from_expr(expr))).function("main")().numpy()


def _scalar(name: str, expr: ir.Expr) -> np.ndarray:
    value = run_const_expr(expr)
    if value.size != 1:
        raise error.InvalidArgument(
            f"a table has one {name}", expected="a scalar", found=f"{value.size} numbers", where=expr.span
        )
    return value.reshape(())


def create_integer_lookup_table(
    floating_point_func: Callable[[np.ndarray], np.ndarray],
    input_scale: ir.Expr,
    input_zero_point: ir.Expr,
    output_scale: ir.Expr,
    output_zero_point: ir.Expr,
    in_axis: int = -1,
    out_axis: int = -1,
    in_dtype: str = "uint8",
    out_dtype: str = "uint8",
) -> np.ndarray:
    """Tabulate a function of quantized numbers.

    Parameters
    ----------
    floating_point_func : callable
        From an array float32 to one of the same shape.
    input_scale, input_zero_point, output_scale, output_zero_point : Expr
        Expressions without free variables, of one number each.
    in_axis, out_axis : int
        Accepted as TVM's.
    in_dtype : str
        A type of 8 bits.
    out_dtype : str
        An integer type.

    Returns
    -------
    numpy.ndarray
        ``(256,)`` of `out_dtype`, by the bits of the input. What is no number becomes zero.

    Raises
    ------
    InvalidArgument
        When `in_dtype` has other than 8 bits, or a scale several numbers.
    """
    if in_dtype not in ("int8", "uint8"):
        raise error.InvalidArgument("a table has an entry for each input", expected="int8 or uint8", found=in_dtype)
    names = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")
    given = (input_scale, input_zero_point, output_scale, output_zero_point)
    scale, zero, out_scale, out_zero = map(_scalar, names, given)
    codes = np.arange(256, dtype="uint8").view(in_dtype).astype("int32")
    with np.errstate(all="ignore"):
        real = floating_point_func(((codes - zero) * scale).astype("float32"))
        steps = np.around(np.asarray(real, "float64") / out_scale + out_zero)
    info = np.iinfo(out_dtype)
    return np.clip(np.nan_to_num(steps, nan=0.0, posinf=info.max, neginf=info.min), info.min, info.max).astype(
        out_dtype
    )


def create_integer_lookup_op(
    input_arg: ir.Expr,
    floating_point_func: Callable[[np.ndarray], np.ndarray],
    in_scale: ir.Expr,
    in_zero_point: ir.Expr,
    out_scale: ir.Expr,
    out_zero_point: ir.Expr,
    in_axis: int = -1,
    out_axis: int = -1,
    in_dtype: str = "uint8",
    out_dtype: str = "uint8",
) -> Any:
    """Return an expression that looks a function of a quantized tensor up; see :func:`create_integer_lookup_table`."""
    table = create_integer_lookup_table(
        floating_point_func, in_scale, in_zero_point, out_scale, out_zero_point, in_axis, out_axis, in_dtype, out_dtype
    )
    bits = op_call("bitwise_and", op_call("cast", input_arg, dtype="int32"), const(np.int32(255)))
    return op_call("take", const(table), bits, axis=0)
