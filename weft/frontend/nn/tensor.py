"""Tensors of a module that is being traced: each wraps a Relax expression, and each operation emits a binding.

Operations go to the innermost ``BlockBuilder``, and their bindings know the line of the model that asked for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from weft import error, ir, relax, runtime
from weft.op import make_call
from weft.operators import operator, operators
from weft.spelling import also_called

_HERE = (str(Path(__file__).parent), operators.__code__.co_filename)
_default_dtype = "float32"


def get_default_dtype() -> str:
    """Return the data type of parameters that name none."""
    return _default_dtype


def set_default_dtype(dtype: str) -> None:
    """Set the data type of parameters that name none."""
    global _default_dtype
    _default_dtype = str(ir.DataType(dtype))


def builder() -> relax.BlockBuilder:
    """Return the builder of the function under construction.

    Raises
    ------
    InvalidArgument
        When there is none: the tensors of a module have no values outside of an export.
    """
    current = relax.BlockBuilder.current()
    if current is None:
        raise error.InvalidArgument(
            "nn operations run only while a module is exported",
            help="call them in a module's methods, and the module's export_tvm(spec) or jit(spec)",
        )
    return current


def caller() -> ir.Span | None:
    """Find the innermost line outside of this package and of what its operators are made by: the model's."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_code.co_filename).startswith(_HERE):
        frame = frame.f_back
    return _span(frame.f_code, frame.f_lasti) if frame is not None else None


def _span(code: CodeType, offset: int) -> ir.Span | None:
    line, end_line, column, end_column = next(islice(code.co_positions(), offset // 2, None))
    if line is None:
        return None
    return ir.Span(code.co_filename, line, end_line or line, (column or 0) + 1, (end_column or 0) + 1)


def emit(expr: ir.Expr, name: str) -> ir.Expr:
    """Bind an expression to a new variable, which carries the place in the model."""
    bb = builder()
    before, bb.span = bb.span, caller() or bb.span
    try:
        return bb.emit(expr, name)
    finally:
        bb.span = before


def apply(op: str, *args: Any, name: str | None = None, **attrs: Any) -> Any:
    """Apply an operator of the registry to tensors, numbers and shapes, and wrap the result.

    Raises
    ------
    DTypeMismatch
        When a fraction meets a tensor of integers.
    """
    like = next((a for a in args if isinstance(a, Tensor)), None)
    call = make_call(op)(*[_operand(op, a, like) for a in args], **attrs)
    label = name or op.rsplit(".", 1)[-1]
    return wrap_nested(emit(call, label), label)


def _operand(op: str, value: Any, like: Tensor | None) -> Any:
    if (
        isinstance(value, float)
        and like is not None
        and not ir.DataType(like.dtype).is_float
        and not value.is_integer()
    ):
        raise error.DTypeMismatch(
            f"{op}: a fraction meets a tensor of integers",
            where=caller(),
            expected=f"a number of type {like.dtype}",
            found=repr(value),
            help="convert the tensor first, x.astype('float32')",
        )
    return unwrap_nested(value)


class _Operators:
    """What Python's operators and methods mean on tensors."""

    _expr: Any

    __add__ = __radd__ = operator(apply, "add")
    __sub__, __rsub__ = operators(apply, "subtract")
    __mul__ = __rmul__ = operator(apply, "multiply", name="mul")
    __truediv__, __rtruediv__ = operators(apply, "divide")
    __matmul__ = operator(apply, "matmul")
    __lt__ = operator(apply, "less")
    __le__ = operator(apply, "less_equal")
    __gt__ = operator(apply, "greater")
    __ge__ = operator(apply, "greater_equal")

    def __neg__(self) -> Any:
        return apply("negative", self, name="neg")

    def astype(self, dtype: str) -> Any:
        """Convert to another data type."""
        return self if dtype == getattr(self, "dtype", None) else apply("astype", self, dtype=dtype)

    def maximum(self, other: Any) -> Any:
        """Take the greater of each pair of elements."""
        return apply("maximum", self, other)

    def minimum(self, other: Any) -> Any:
        """Take the lesser of each pair of elements."""
        return apply("minimum", self, other)

    def reshape(self, *shape: Any, name: str = "reshape") -> Any:
        """Give the same elements another shape, in which -1 stands for what is left."""
        dims = list(unpacked(shape))
        rest = [i for i, d in enumerate(dims) if ir.as_int(d) == -1]
        if len(rest) == 1 and self._expr.ty.shape is not None:
            call = builder().normalize(make_call("reshape")(self._expr, dims))
            dims[rest[0]] = call.ty.shape[rest[0]]  # type: ignore[attr-defined]
        return apply("reshape", self, tuple(dims), name=name)

    def permute_dims(self, *axes: Any) -> Any:
        """Reorder the dimensions; reverse them where none are given."""
        return apply("permute_dims", self, axes=unpacked(axes) or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Any:
        """Repeat each element."""
        return apply("repeat", self, repeats=repeats, axis=axis)


def unpacked(args: Sequence[Any]) -> Any:
    """Take ``f(a, b)`` and ``f((a, b))`` for the same."""
    return args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args


class Tensor(_Operators):
    """A tensor of a model: its shape and data type are known while its values are not.

    Made by :meth:`placeholder`, :meth:`from_const`, :meth:`from_scalar` and by every operation.
    """

    _expr: Any

    def __init__(self, *, _expr: ir.Expr) -> None:
        ty = getattr(_expr, "ty", None)
        if not isinstance(ty, ir.TensorType):
            raise error.InvalidArgument("an nn.Tensor wraps an expression of a tensor", found=f"type {ty}")
        self._expr = _expr

    @staticmethod
    def from_const(data: Any) -> Tensor:
        """Make a constant of an array, a tensor or nested lists; NumPy's default, float64, becomes float32."""
        wide = not isinstance(data, runtime.Tensor) and np.asarray(data).dtype == np.float64
        return Tensor(_expr=ir.constant(np.asarray(data, np.float32) if wide else data))

    @staticmethod
    def from_scalar(data: int | float, dtype: str) -> Tensor:
        """Make a constant of no dimensions."""
        return Tensor(_expr=ir.constant(data, dtype))

    @staticmethod
    @also_called(struct_info="ty")
    def from_ty(ty: ir.TensorType, name: str = "tensor") -> Tensor:
        """Make a variable of a type."""
        return Tensor(_expr=relax.Var(name, ty))

    from_struct_info = from_ty

    @staticmethod
    def placeholder(shape: Sequence[Any], dtype: str, name: str = "tensor") -> Tensor:
        """Make a variable of a shape, whose dimensions may be ints, names or scalar expressions."""
        return Tensor.from_ty(ir.tensor_type(dimensions(shape), str(ir.DataType(dtype))), name)

    @property
    def shape(self) -> list[Any]:
        """The dimensions: ints where they are known, else scalar expressions.

        Raises
        ------
        InvalidArgument
            When only the number of dimensions is known.
        """
        ty = self._expr.ty
        if ty.shape is None:
            raise error.InvalidArgument("this tensor's shape is not known while the module is exported", found=str(ty))
        return [d if ir.as_int(d) is None else ir.as_int(d) for d in ty.shape]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._expr.ty.ndim

    @property
    def dtype(self) -> str:
        """The data type."""
        return str(self._expr.ty.dtype)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.shape}, "{self.dtype}")'

    def __bool__(self) -> bool:
        hint = "op.where chooses elements; compare with None to ask whether there is a tensor"
        raise error.InvalidArgument("a tensor has no value while a model is exported", found=repr(self), help=hint)


def dimensions(shape: Sequence[Any], named: dict[str, Any] | None = None) -> tuple[Any, ...]:
    """Convert dimensions: a name becomes a variable, one for all that share `named`."""
    names = {} if named is None else named
    if isinstance(shape, (str, bytes)) or not hasattr(shape, "__iter__"):
        raise error.InvalidArgument("a shape is a list of dimensions", expected='such as [1, "n"]', found=repr(shape))
    for d in shape:
        is_name = isinstance(d, str) and d.isidentifier()
        is_size = isinstance(d, (int, ir.PrimExpr)) and not isinstance(d, bool) and (ir.as_int(d) or 0) >= 0
        if not is_name and not is_size:
            raise error.InvalidArgument(
                "a dimension is a size, a name or a scalar expression", expected='such as 4 or "n"', found=repr(d)
            )
    return tuple(_named(d, names) if isinstance(d, str) else d for d in shape)


def _named(name: str, names: dict[str, Any]) -> Any:
    if name not in names:
        names[name] = ir.SizeVar(name, "int64")
    return names[name]


class Object:
    """A value that is no tensor, such as a cache of the runtime."""

    def __init__(self, *, _expr: ir.Expr, _name: str) -> None:
        self._expr = _expr if isinstance(_expr, relax.Var) else emit(_expr, _name)
        ty = getattr(self._expr, "ty", None)
        if isinstance(ty, (ir.TensorType, ir.TupleType)):
            raise error.InvalidArgument("an nn.Object is no tensor and no tuple", found=str(ty))

    _expr: Any


def wrap_nested(expr: ir.Expr, name: str = "") -> Any:
    """Wrap an expression: a tensor as :class:`Tensor`, a tuple as a tuple of what its fields are.

    Raises
    ------
    InvalidArgument
        When it is neither tensor nor tuple.
    """
    if not isinstance(expr, relax.Var):
        expr = emit(expr, name)
    ty: Any = expr.ty
    if isinstance(ty, ir.TensorType):
        return Tensor(_expr=expr)
    if isinstance(ty, ir.TupleType):
        return tuple(wrap_nested(ir.TupleGetItem(expr, i), f"{name}.{i}") for i in range(len(ty.fields)))
    if isinstance(ty, ir.AnyType):
        return Object(_expr=expr, _name=name)
    raise error.InvalidArgument("only tensors and tuples of them are wrapped", found=f"type {ty}")


def unwrap_nested(value: object) -> Any:
    """Take the expressions out of tensors, within lists and tuples too."""
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, (list, tuple)):
        return tuple(unwrap_nested(v) for v in value)
    return value
