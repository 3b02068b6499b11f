"""The pass LegalizeOps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from weft import ir, op, topi
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import CORE_OPS
from weft.relax.infer import function_type
from weft.relax.rewriter import replace_value, rewrite_bindings
from weft.relax.transform.legalize_ops.common import LegalizeFunc


def LegalizeOps(
    customize_legalize_map: Mapping[str, LegalizeFunc] | None = None,
    skip_ops: Sequence[str] | None = None,
    enable_warning: bool = False,
) -> ir.Pass:
    """Make the pass that replaces each operator by a call of a kernel of its own.

    Operands and results need known shapes; a call without them, or of an operator that has no ``FLegalize``, stays.

    Parameters
    ----------
    customize_legalize_map : mapping, optional
        From an operator, ``relax.add``, to ``fn(bb, call) -> Expr``, which is asked first.
    skip_ops : sequence of str, optional
        Operators that stay.
    enable_warning : bool
        Whether to warn of calls that stay for lack of shapes or of a legalization.
    """
    custom = {_full(n): f for n, f in (customize_legalize_map or {}).items()}
    state = _Legalizer(custom, frozenset(_full(n) for n in skip_ops or ()), enable_warning)
    return ir.Pass("LegalizeOps", state.run, 0, LegalizeOps.__doc__)


def FastMathTransform() -> ir.Pass:
    """Make the pass that replaces softmax, exp, erf and tanh by kernels of TOPI's functions ``fast_*``."""

    def kernel(fast: Any) -> LegalizeFunc:
        return lambda bb, call: bb.call_te(fast, *call.args, **dict(call.attrs.items))

    fast = {"nn.softmax": topi.nn.fast_softmax, "exp": topi.fast_exp, "erf": topi.fast_erf, "tanh": topi.fast_tanh}
    stay = frozenset(_full(n) for n in (*op.list_ops(), *CORE_OPS) if n not in fast)
    state = _Legalizer({_full(n): kernel(f) for n, f in fast.items()}, stay, False)
    return ir.Pass("FastMathTransform", state.run, 0, FastMathTransform.__doc__)


def _full(name: str) -> str:
    return name if name.startswith("relax.") else f"relax.{name}"


class _Legalizer:
    def __init__(self, custom: Mapping[str, LegalizeFunc], stay: frozenset[str], warn: bool) -> None:
        self.custom, self.stay, self.warn = custom, stay, warn

    def run(self, mod: ir.IRModule) -> ir.IRModule:
        bb = BlockBuilder(mod)
        for gvar, func in mod.items():
            if isinstance(func, ir.Function):
                new = rewrite_bindings(func, mod, lambda _binding, value, _bb: self.legal(value, bb), bb)
                if new is not func:
                    bb.update_func(gvar, _returning(new, func))
        return mod.with_functions(bb.get().functions)

    def legal(self, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        """Return what a value becomes, legalized in turn; None where it stays."""
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op) or value.op.name in self.stay:
            return None
        legalize = self.custom.get(value.op.name) or value.op.get_attr("FLegalize")
        known = all(known_shapes(a.ty) for a in (*value.args, value))  # type: ignore[attr-defined]
        if legalize is None or not known:
            if self.warn and not value.op.name.startswith("relax.call_"):
                why = "has no legalization" if legalize is None else "has operands or results of unknown shape"
                warnings.warn(f"{value.op.name} {why} and stays", RuntimeWarning, stacklevel=2)
            return None
        before = len(bb.bindings())
        new = legalize(bb, value)
        if new is value:
            return None
        new = bb.normalize(new, atom=False)
        emitted = bb.bindings()[before:]
        bb.drop(before)
        for b in emitted:
            legal = self.legal(b.value, bb)
            bb.emit_normalized(b if legal is None else replace_value(b, bb.normalize(legal, atom=False)))
        again = self.legal(new, bb)
        return new if again is None else again


def _returning(new: ir.Function, old: ir.Function) -> ir.Function:
    """Give a function whose result got another type that type, where it was the result's."""
    was, now = (f.body.ty for f in (old, new))  # type: ignore[attr-defined]
    if ir.structural_equal(was, now) or not ir.structural_equal(was, old.ret_ty):
        return new
    new = new.replace(ret_ty=now)
    return new.replace(ty=function_type(new))


def known_shapes(ty: ir.Type | None) -> bool:
    """Whether a type has all dimensions that a kernel needs, as expressions."""
    if isinstance(ty, ir.TensorType):
        return ty.shape is not None and bool(ty.dtype)
    if isinstance(ty, ir.ShapeType):
        return ty.values is not None
    if isinstance(ty, ir.TupleType):
        return all(known_shapes(f) for f in ty.fields)
    return isinstance(ty, ir.PrimType)
