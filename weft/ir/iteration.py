"""Iteration: ranges of integers, and variables that run over them."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec.structs import force_setattr

from weft.error import InvalidArgument
from weft.ir.node import Node, NodeMeta
from weft.ir.scalar import Add, IntImm, PrimExpr, Var, as_expr, const, is_const_int

ITER_TYPES = "data_par thread reduce ordered opaque unrolled vectorized parallelized tensorized".split()
_TVM: dict[Any, str] = {
    **dict(enumerate(ITER_TYPES)),
    **{k.title(): k for k in ITER_TYPES},
    "DataPar": "data_par",
    "ThreadIndex": "thread",
    "CommReduce": "reduce",
}


def iter_type(kind: int | str) -> str:
    """Return the name of a kind that is given as TVM does.

    Raises InvalidArgument when there is no such kind.
    """
    if kind not in _TVM:
        raise InvalidArgument("an axis has no such kind", expected=", ".join(ITER_TYPES), found=str(kind))
    return _TVM[kind]


def _difference(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return ``a - b``, for ``b + c`` and numbers without writing it out."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return const(a.value - b.value, a.dtype)
    return a.b if isinstance(a, Add) and a.a is b else a - b


class _RangeMeta(NodeMeta):
    """Lets ``Range(begin, end)`` take both ends, as TVM's does, and fields by name."""

    def __call__(
        cls, begin: Any = None, end: Any = None, *, min: Any = None, extent: Any = None, span: Any = None
    ) -> Any:
        """Make a range of two ends, of an end alone, or of a start and a length given by name."""
        if min is None or extent is None:
            if begin is None:
                raise InvalidArgument("a range needs its ends", expected="Range(begin, end) or Range(end)")
            begin, end = (0, begin) if end is None else (begin, end)
            min = as_expr(begin, getattr(end, "dtype", None))
            last = as_expr(end, min.dtype)
            extent = last if is_const_int(min, 0) else _difference(last, min)
        return super().__call__(min, extent, span=span)


class Range(Node, metaclass=_RangeMeta):  # type: ignore[misc]
    """The integers from `min` up to, not including, ``min + extent``.

    ``Range(begin, end)`` takes both ends and ``Range(end)`` starts at zero; :meth:`from_min_extent` takes the length.
    """

    min: PrimExpr
    extent: PrimExpr

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: Any = None) -> Range:
        """Make a range from its start and length."""
        if not (isinstance(min_value, PrimExpr) and isinstance(extent, PrimExpr)):
            min_value = as_expr(min_value, getattr(extent, "dtype", None))
            extent = as_expr(extent, min_value.dtype)
        return NodeMeta.__call__(Range, min_value, extent, span=span)


class IterVar(Node):
    """An iteration variable with its domain.

    ``iter_type`` is one of ``data_par`` (spatial), ``reduce``, ``ordered``, ``opaque``, ``thread``, and, in te
    schedules, ``vectorized``, ``unrolled``, ``parallelized``, ``tensorized``.
    """

    dom: Range | None
    var: Var
    iter_type: str = "data_par"
    thread_tag: str = ""

    DataPar: ClassVar[int] = 0
    ThreadIndex: ClassVar[int] = 1
    CommReduce: ClassVar[int] = 2
    Ordered: ClassVar[int] = 3
    Opaque: ClassVar[int] = 4
    Unrolled: ClassVar[int] = 5
    Vectorized: ClassVar[int] = 6
    Parallelized: ClassVar[int] = 7
    Tensorized: ClassVar[int] = 8

    def __post_init__(self) -> None:
        """Take kinds by TVM's numbers and names, two ends as domain, and a name for the variable."""
        given: Any = self
        if given.iter_type not in ITER_TYPES:
            force_setattr(self, "iter_type", iter_type(given.iter_type))
        if isinstance(given.dom, (tuple, list)):
            force_setattr(self, "dom", Range(*given.dom))
        if isinstance(given.var, str):
            force_setattr(self, "var", Var(given.var, getattr(getattr(self.dom, "extent", None), "dtype", "int32")))

    @property
    def dtype(self) -> str:
        """The data type of the variable."""
        return self.var.dtype

    def asobject(self) -> Var:
        """Return the variable, which is what the iteration is where an expression is wanted."""
        return self.var

    def astype(self, dtype: str, span: Any = None) -> PrimExpr:
        """Convert the variable's value."""
        return self.var.astype(dtype)
