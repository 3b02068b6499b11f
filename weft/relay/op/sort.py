"""Sorting, the k greatest, searching."""

from typing import Any

from weft import error, ir, op
from weft.relay.op.construct import call, constructs
from weft.relay.op.registry import declare, shared
from weft.relay.op.shapes import dims, is_computed, numbers, rank
from weft.relay.typing import Value

declare(
    "sort",
    "data",
    {"axis": -1, "is_ascend": True},
    expand=lambda data, axis, is_ascend: shared("sort", data, axis=axis, descending=not is_ascend),
    doc="Sort along an axis.",
)
declare(
    "argsort",
    "data",
    {"axis": -1, "is_ascend": True, "dtype": "int32"},
    expand=lambda data, axis, is_ascend, dtype: shared(
        "argsort", data, axis=axis, descending=not is_ascend, dtype=dtype
    ),
    doc="The indices that sort along an axis.",
)


def _topk(
    data: ir.Expr, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int32"
) -> ir.Expr:
    count = k[0] if isinstance(k, tuple) else k
    at = op.normalize_axis("topk", axis, rank(data))
    known, size = ir.as_int(count), ir.as_int(dims(data)[at]) if rank(data) else None
    if known is not None and known < 1:
        count = -1  # all of them
    elif None not in (known, size) and known > size:  # type: ignore[operator]
        raise error.ShapeMismatch(
            "topk: more elements than the axis has", expected=f"at most {size}", found=str(known), where=data.span
        )
    return shared("topk", data, k=count, axis=at, ret_type=ret_type, largest=not is_ascend, dtype=dtype)


_ATTRS = {"axis": -1, "ret_type": "both", "is_ascend": False, "dtype": "int32"}
_both = lambda made: 2 if made.attrs["ret_type"] == "both" else 0  # noqa: E731 - a name for two declarations

declare(
    "topk",
    "data",
    {"k": 1, **_ATTRS},
    expand=_topk,
    outputs=_both,
    doc="The k greatest (or least) along an axis, sorted, and their indices; all where k < 1.",
)
declare(
    "dyn.topk",
    "data k:values",
    _ATTRS,
    expand=_topk,
    outputs=_both,
    doc="The k greatest (or least) along an axis, with k computed.",
)


@constructs("topk")
def topk(
    data: Value,
    k: ir.Expr | int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int32",
) -> Any:
    """Find the k greatest (or least) along an axis; k may be an expression.

    Parameters
    ----------
    data : Expr
        The tensor.
    k : int or Expr
        How many; all where it is less than 1.
    axis : int
        The axis.
    ret_type : str
        ``both``, ``values`` or ``indices``.
    is_ascend : bool
        Whether the least are meant.
    dtype : str
        The data type of the indices.
    """
    attrs = {"axis": axis, "ret_type": ret_type, "is_ascend": bool(is_ascend), "dtype": dtype}
    if is_computed(k):
        return call("dyn.topk", data, k, **attrs)
    return call("topk", data, k=numbers(k), **attrs)


def _searchsorted(sorted_sequence: ir.Expr, values: ir.Expr, right: bool = False, dtype: str = "int32") -> ir.Expr:
    """Count the elements before each value, which is correct for any number of them."""
    rows, wanted = rank(sorted_sequence), rank(values)
    if rows not in (1, wanted) or not rows:
        raise error.ShapeMismatch(
            "searchsorted: the sequence is a vector or has the rank of the values",
            expected=f"1 or {wanted}",
            found=str(rows),
            where=sorted_sequence.span,
        )
    each = shared("expand_dims", values, axis=(wanted,))
    among = shared("expand_dims", sorted_sequence, axis=(rows - 1,)) if rows > 1 else sorted_sequence
    before = shared("less_equal" if right else "less", among, each)
    return shared("sum", shared("astype", before, dtype=dtype), axis=(wanted,), keepdims=False)


declare(
    "searchsorted",
    "sorted_sequence values",
    {"right": False, "dtype": "int32"},
    expand=_searchsorted,
    doc="Where values would be inserted into sorted rows.",
)
