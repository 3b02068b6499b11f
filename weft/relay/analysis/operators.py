"""What operators a program calls, and whether its bodies share nothing but names."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relay.analysis.excerpt import excerpt
from weft.relay.analysis.scopes import Scopes
from weft.relay.expr import Call, Constant
from weft.relay.walk import subexpressions


def check_basic_block_normal_form(expr: Any) -> None:
    """Check that each body is a graph of its own, which refers to what other bodies compute by name.

    Raises
    ------
    InvalidArgument
        When a body has a part that another one computes; the message shows it.
    """
    crossing = [e for e in Scopes(expr).crossing if type(e) is not Constant]
    if crossing:
        raise InvalidArgument(
            "the program is not in basic block normal form: several bodies share an expression",
            found=excerpt(crossing[0]), help="ToBasicBlockNormalForm names what bodies share",
        )  # fmt: skip


def list_op_freqs(mod: ir.IRModule) -> dict[str, int]:
    """Return how often a module calls each operator, by the operator's name."""
    calls = (e for _, f in mod.items() for e in subexpressions(f) if isinstance(e, Call))
    return dict(Counter(c.op.name for c in calls if isinstance(c.op, ir.Op)))
