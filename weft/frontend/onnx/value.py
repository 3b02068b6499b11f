"""What the importer knows of one ONNX value: constant data, elements as scalar expressions, its Relax expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir import Constant, Expr, IntImm, PrimExpr, TensorType, numpy_dtype
from weft.runtime.host import STORED, Kind

Dim = Any
"""A dimension: an ``int`` where it is known, otherwise a scalar expression (``PrimExpr``)."""
Dims = Sequence[Dim]

MAX_ELEMENTS = 128
"""Tensors of up to this many elements are followed element by element."""


class Value:
    """One ONNX value in up to three forms; at least one is set.

    Parameters
    ----------
    dtype : str
        The element type.
    shape : tuple of int or PrimExpr
        The dimensions.
    array : numpy.ndarray, optional
        The data, where it is constant.
    elements : numpy.ndarray of object, optional
        Small tensors element by element: Python numbers, or scalar expressions of symbolic dimensions.
    expr : Expr, optional
        The Relax expression. Where it is None the importer makes it from the other forms when it is asked for.
    kind : Kind, optional
        What it is, where that is not a tensor of `dtype`: that is how the machine stores it.
    """

    __slots__ = ("array", "dtype", "elements", "expr", "kind", "shape")

    def __init__(
        self,
        dtype: str,
        shape: tuple[Dim, ...],
        *,
        array: Any = None,
        elements: Any = None,
        expr: Expr | None = None,
        kind: Kind | None = None,
    ) -> None:
        self.dtype, self.shape, self.array, self.elements, self.expr = dtype, shape, array, elements, expr
        self.kind = kind

    @property
    def logical(self) -> str:
        """The element type as ONNX has it; empty for what is no tensor."""
        return self.dtype if self.kind is None else self.kind.dtype if self.is_tensor else ""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor: no sequence, optional or map."""
        return self.kind is None or self.kind.form == "tensor"

    @property
    def full_kind(self) -> Kind:
        """What it is."""
        return Kind("tensor", self.dtype, len(self.shape)) if self.kind is None else self.kind

    def as_kind(self, dtype: str) -> Value:
        """The same, as a tensor of an element type that the machine stores as another one."""
        if dtype not in STORED:
            return self
        kind = Kind("tensor", dtype, len(self.shape))
        return Value(self.dtype, self.shape, array=self.array, elements=self.elements, expr=self.expr, kind=kind)

    @staticmethod
    def of_array(array: np.ndarray[Any, Any]) -> Value:
        """Make a constant value."""
        return Value(array.dtype.name, tuple(array.shape), array=array)

    @staticmethod
    def of_elements(elements: Any, dtype: str) -> Value:
        """Make a value of known elements: Python numbers or scalar expressions."""
        items = elements if isinstance(elements, np.ndarray) and elements.dtype == object else _object_array(elements)
        return Value(dtype, tuple(items.shape), elements=items)

    @staticmethod
    def of_expr(expr: Any, kind: Kind | None = None) -> Value:
        """Make a value of a Relax expression of tensor type with known rank, or of what `kind` says."""
        ty = expr.ty
        if kind is not None and kind.form != "tensor":
            return Value("object", (), expr=expr, kind=kind)
        assert isinstance(ty, TensorType)
        array = expr.data.numpy() if isinstance(expr, Constant) else None
        return Value(ty.dtype, tuple(as_dim(d) for d in ty.shape or ()), array=array, expr=expr, kind=kind)

    @property
    def known(self) -> Any:
        """The elements as an object array where they are few and known, else None."""
        if self.elements is None and self.array is not None and self.array.size <= MAX_ELEMENTS:
            self.elements = elements_of(self.array)
        return self.elements

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The data where it is constant, else None."""
        if (
            self.array is None
            and self.elements is not None
            and not any(isinstance(e, PrimExpr) for e in self.elements.flat)
        ):
            from_elements = np.empty(self.elements.shape, numpy_dtype(self.dtype))
            from_elements[...] = self.elements
            self.array = from_elements
        return self.array


def _object_array(elements: Any) -> Any:
    """Make an object array of nested lists or one scalar without asking expressions for their length."""
    if not isinstance(elements, (list, tuple)):
        out = np.empty((), object)
        out[()] = elements
        return out
    out = np.empty(len(elements), object)
    for i, e in enumerate(elements):
        out[i] = e
    return out


def elements_of(array: np.ndarray[Any, Any]) -> Any:
    """Return an array's values as an object array of Python numbers."""
    out = np.empty(array.shape, object)
    flat = out.reshape(-1)
    for i, v in enumerate(array.reshape(-1).tolist()):
        flat[i] = v
    return out


def as_dim(d: PrimExpr | int) -> Dim:
    """Return a dimension as an int where it is constant."""
    return d.value if isinstance(d, IntImm) else int(d) if isinstance(d, (int, np.integer)) else d
