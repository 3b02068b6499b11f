"""The element-wise operators as functions of tensors and scalars, under the names of ``tvm.topi``."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft import error, ir, tir
from weft.spelling import also_called
from weft.te import Tensor, TensorSlice, install_tensor_arithmetic
from weft.topi.broadcast import elementwise
from weft.topi.elementwise import BINARY, FLOAT_UNARY, UNARY, astype, cast_scalar
from weft.topi.typing import Operand

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - one name an operator
    "cast",
    "elemwise_sum",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "identity",
    "reinterpret",
    *BINARY,
    *UNARY,
]


def _unary(name: str) -> Callable[[Any], Any]:
    fn = UNARY[name]

    @also_called(data="x")
    def apply(x: Any) -> Any:
        x = x if isinstance(x, Tensor) else ir.as_expr(x)
        if name in FLOAT_UNARY and ir.DataType(x.dtype).code in ("int", "uint", "bool"):
            raise error.InvalidArgument(
                f"topi.{name} only supports floating-point inputs, but got {x.dtype}",
                help="convert them: topi.cast(x, 'float32')",
            )
        return elementwise(fn, x, name="T_" + name) if isinstance(x, Tensor) else fn(x)

    apply.__name__ = name
    apply.__doc__ = f"Element-wise ``{name}`` of a tensor or a scalar."
    return apply


def _beside(value: Any, other: Any) -> Any:
    """A number as an expression of the type of the tensor beside it, if that has it."""
    return ir.as_expr(value, ir.type_beside(value, other.dtype))


def broadcasting(fn: Callable[[Any, Any], Any], a: Operand, b: Operand, name: str = "T_elementwise") -> Any:
    """Apply a scalar function to tensors and scalars; of scalars alone the result is a scalar."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return elementwise(fn, a, b, name=name)
    if isinstance(a, Tensor):
        right = _beside(b, a)
        return elementwise(lambda x: fn(x, right), a, name=name)
    if isinstance(b, Tensor):
        left = _beside(a, b)
        return elementwise(lambda x: fn(left, x), b, name=name)
    return fn(_scalar(a), _scalar(b))


def _scalar(value: Any) -> Any:
    return value.asobject() if isinstance(value, TensorSlice) else ir.as_expr(value)


_TRUNCATED = {"mod": "fmod"}  # TVM's TOPI divides towards zero there, as C does; the operator of Relax does not


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def apply(lhs: Any, rhs: Any) -> Any:
        return broadcasting(BINARY[_TRUNCATED.get(name, name)], lhs, rhs, "T_" + name)

    apply.__name__ = name
    apply.__doc__ = f"Element-wise ``{name}`` of tensors that broadcast, or of scalars."
    return apply


globals().update({name: _unary(name) for name in UNARY})
globals().update({name: _binary(name) for name in BINARY})


def cast(x: Operand, dtype: str) -> Any:
    """Convert a tensor or a scalar to another data type."""
    return astype(x, dtype) if isinstance(x, Tensor) else cast_scalar(ir.as_expr(x), dtype)


def identity(x: Operand) -> Any:
    """A copy."""
    return elementwise(lambda v: v, x, name="T_identity") if isinstance(x, Tensor) else x


def reinterpret(x: Operand, dtype: str) -> Any:
    """The same bits as values of another data type of the same width."""
    read = lambda v: tir.reinterpret(dtype, v)  # noqa: E731
    return elementwise(read, x, name="T_reinterpret") if isinstance(x, Tensor) else read(ir.as_expr(x))


def elemwise_sum(xs: Sequence[Any]) -> Any:
    """The sum of tensors, element by element."""
    return elementwise(lambda *values: functools.reduce(operator.add, values), *xs, name="T_elemwise_sum")


def fast_exp(x: Tensor) -> Any:
    """``exp(x)``, whose float32 values are a polynomial in any case (``tir.transform.LowerMath``)."""
    return _unary("exp")(x)


def fast_tanh(x: Tensor) -> Any:
    """``tanh(x)``, by the same polynomials as :func:`fast_exp`."""
    return _unary("tanh")(x)


def fast_erf(x: Tensor) -> Any:
    """``erf(x)``, by the same polynomials as :func:`fast_exp`."""
    return _unary("erf")(x)


_NAMES: dict[Callable[..., Any], str] = {
    ir.add: "T_add",
    ir.sub: "T_subtract",
    ir.mul: "T_multiply",
    ir.div: "T_divide",
    ir.floordiv: "T_floor_divide",
    ir.floormod: "T_floor_mod",
}


install_tensor_arithmetic(lambda fn, a, b: broadcasting(fn, a, b, _NAMES.get(fn, "T_elementwise")), astype)
