"""recast: operators compute in another data type, between casts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from weft import ir
from weft.relay.expr import Call, Tuple
from weft.relay.infer import infer_type
from weft.relay.op.registry import op_call
from weft.relay.walk import operator_name, rewrite_with_original


def recast(
    expr: ir.Expr,
    dtype: str,
    out_dtype: str,
    ops: Collection[str] | None = None,
    skip_layers: Sequence[int] | None = None,
) -> Any:
    """Let operators compute in another data type.

    Parameters
    ----------
    expr : Expr
        The program.
    dtype : str
        Data type that the arguments are cast to.
    out_dtype : str
        Attribute ``out_dtype`` of the calls that have it.
    ops : collection of str, optional
        Which operators; by default ``nn.conv2d``.
    skip_layers : sequence of int, optional
        Which of their calls stay as they are, in order; negative ones count from the end.

    Returns
    -------
    Expr
        The program; each call is cast back to the data type that it had.
    """
    names = {"nn.conv2d"} if ops is None else set(ops)
    number, typed = _numbered(expr, names), list(_numbered(infer_type(expr), names))
    skipped = {i % max(len(number), 1) for i in skip_layers or ()}

    def cast(e: ir.Expr) -> Any:
        return Tuple(tuple(map(cast, e.fields))) if isinstance(e, Tuple) else op_call("cast", e, dtype=dtype)

    def rule(old: ir.Expr, e: Call) -> Any:
        if old not in number or number[old] in skipped:
            return e
        attrs = dict(e.attrs.items)
        if "out_dtype" in attrs:
            attrs["out_dtype"] = out_dtype
        made = Call(e.op, tuple(map(cast, e.args)), ir.Attrs.of(attrs), span=e.span)
        return op_call("cast", made, dtype=typed[number[old]].ty.dtype)

    return rewrite_with_original(expr, rule)


def _numbered(expr: ir.Expr, names: Collection[str]) -> dict[Any, int]:
    """The calls of some operators, in the order in which they are computed."""
    found: dict[Any, int] = {}

    def note(old: ir.Expr, _: object) -> Any:
        if operator_name(old) in names:
            found[old] = len(found)
        return old

    rewrite_with_original(expr, note)
    return found
