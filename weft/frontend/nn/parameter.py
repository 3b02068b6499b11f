"""Parameters: tensors that belong to a module and get their values apart from the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir, relax, runtime
from weft.frontend.nn.tensor import Tensor, dimensions, get_default_dtype
from weft.runtime import from_dlpack, tensor


class Parameter(Tensor):
    """A tensor with a value of its own, which every exported function takes as an argument.

    Parameters
    ----------
    shape : sequence of int, str or PrimExpr
        The dimensions; a name stands for the same size wherever a function uses it.
    dtype : str, optional
        By default :func:`get_default_dtype`.
    """

    def __init__(self, shape: Sequence[Any], dtype: str | None = None) -> None:
        ty = ir.tensor_type(dimensions(shape), str(ir.DataType(dtype or get_default_dtype())))
        super().__init__(_expr=relax.Var("param", ty))
        self._data: runtime.Tensor | None = None

    @property
    def data(self) -> runtime.Tensor | None:
        """The value, or None while it has none."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        """Set the value to a copy of anything array-like, also of a tensor of PyTorch.

        Raises
        ------
        ShapeMismatch, DTypeMismatch
            When it has another shape or data type than the parameter.
        """
        if value is None:
            self._data = None
            return
        if isinstance(value, Parameter):
            value = value.data
        if hasattr(value, "detach") and hasattr(value, "contiguous"):  # PyTorch exports no tensor that has a gradient
            value = from_dlpack(value.detach().cpu().contiguous())
        data = tensor(value)
        fits = len(data.shape) == self.ndim and all(
            ir.as_int(want) in (None, have) for want, have in zip(self.shape, data.shape, strict=True)
        )
        if not fits:
            raise error.ShapeMismatch(
                "the value does not have the parameter's shape", expected=str(self.shape), found=str(list(data.shape))
            )
        if str(data.dtype) != self.dtype:
            raise error.DTypeMismatch(
                "the value does not have the parameter's data type",
                expected=self.dtype,
                found=str(data.dtype),
                help="convert the value, or the module before values are set: module.to(dtype)",
            )
        self._data = data

    def to(self, dtype: str | None = None) -> None:
        """Change the data type, while there is no value.

        Raises
        ------
        InvalidArgument
            When there is a value already.
        """
        if dtype is None or dtype == self.dtype:
            return
        if self._data is not None:
            raise error.InvalidArgument(
                "this parameter has a value, so its data type stays",
                expected=self.dtype,
                found=dtype,
                help="call module.to(dtype) before values are set",
            )
        self._expr = relax.Var("param", ir.tensor_type(self._expr.ty.shape, str(ir.DataType(dtype))))
