"""What operators a program calls, and whether its bodies share nothing but names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relay.analysis.excerpt import excerpt
from weft.relay.analysis.scopes import Scopes
from weft.relay.expr import Call, Constant, Function, Tuple, TupleGetItem
from weft.relay.typing import Program
from weft.relay.walk import operator_name, parts, rewrite_with_original, subexpressions
from weft.spelling import also_called


def check_basic_block_normal_form(expr: Program) -> None:
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
            found=excerpt(crossing[0]),
            help="ToBasicBlockNormalForm names what bodies share",
        )


def list_op_freqs(mod: ir.IRModule) -> dict[str, int]:
    """Return how often a module calls each operator, by the operator's name."""
    calls = (e for _, f in mod.items() for e in subexpressions(f) if isinstance(e, Call))
    return dict(Counter(c.op.name for c in calls if isinstance(c.op, ir.Op)))


def list_fake_quantized_op_freqs(mod: ir.IRModule) -> dict[str, int]:
    """Return how often a module calls each operator between ``qnn.dequantize`` and ``qnn.quantize``, by its name."""
    inside: dict[Any, str] = {}
    for _, func in mod.items():
        for e in subexpressions(func):
            if operator_name(e) == "qnn.quantize":
                _region(e.args[0], inside)
    return dict(Counter(inside.values()))


def _region(root: ir.Expr, inside: dict[Any, str]) -> None:
    """Note the calls of which a real value is computed, unless something else than ``qnn.dequantize`` begins it."""
    found: dict[Any, str] = {}
    stack = [root]
    while stack:
        e = stack.pop()
        name = operator_name(e)
        if name in ("qnn.dequantize", "qnn.quantize") or e in found or isinstance(e, Constant):
            continue
        if isinstance(e, Call) and name:
            found[e] = name
        elif not isinstance(e, (Tuple, TupleGetItem)):
            return
        stack.extend(p for p in parts(e) if not isinstance(p, ir.Op))
    inside.update(found)


@also_called(expr="mod")
def count_layers(mod: Program, valid_ops: Sequence[str] = ("nn.conv2d",)) -> int:
    """Return the depth of a program, counted in calls of some operators: those on the longest way to the result."""
    depths: dict[Any, int] = {}

    def depth(_: object, e: ir.Expr) -> Any:
        below = max((depths.get(p, 0) for p in parts(e)), default=0)
        depths[e] = below + (operator_name(e) in valid_ops)
        return e

    func = mod["main"] if isinstance(mod, ir.IRModule) else mod
    rewrite_with_original(func, depth)
    return depths[func]


def extract_fused_functions(mod: ir.IRModule) -> dict[str, Any]:
    """Return the functions that ``FuseOps`` makes of a module, each once, by what tells them apart."""
    with ir.PassContext(opt_level=3):
        fused = ir.passes_named("relay.relay.FuseOps")(3)(ir.passes_named("relay.InferType")()(mod))
    groups = (e for _, f in fused.items() for e in subexpressions(f) if type(e) is Function)
    return {str(ir.structural_hash(g)): g for g in groups if "Primitive" in g.attrs}
