"""Forms of Relax along the pipeline.

Normalized, legalized, planned, and what the virtual machine's code generator takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import ir, op
from weft.ir.spec import Spec
from weft.relax.analysis.well_formed import WELL_FORMED
from weft.relax.core_ops import CORE_OPS
from weft.relax.expr import BindingBlock, DataflowBlock, MatchCast, SeqExpr, VarBinding
from weft.relax.normal_form import is_atom, operands

NORMALIZED = Spec(
    "relax.normalized", ir.Function, [WELL_FORMED], "each binding is one operation on atoms, and everything has a type"
)
LEGALIZED = Spec("relax.legalized", ir.Function, [NORMALIZED], "tensor operators are calls of TIR functions")
PLANNED = Spec("relax.planned", ir.Function, [NORMALIZED], "results are allocated before the calls that write them")
RUNTIME_CALLS = Spec(
    "relax.runtime_calls", ir.Function, [PLANNED], "operators are calls of functions of the VM's runtime"
)
VM_READY = Spec("relax.vm_ready", ir.Function, [RUNTIME_CALLS], "no symbolic value is left")

_KEPT = {"reshape"}
"""Operators that legalization leaves, because the runtime does them without a kernel."""
_VM_OPS = {"relax.call_builtin", "relax.call_builtin_with_ctx", "relax.vm.kill_object"}


@NORMALIZED.on_function
def _sequence(func: ir.Function, mod: ir.IRModule) -> Iterator[tuple[Any, str]]:
    if not isinstance(func.body, SeqExpr):
        yield func, "the body is no sequence of bindings"
    elif not is_atom(func.body.body):
        yield func, "the result is no atom"
    if func.ret_ty is None:
        yield func, "the type of the result is not known"


@NORMALIZED.on(VarBinding, MatchCast)
def _binding(node: Any, func: ir.Function, mod: ir.IRModule) -> str | None:
    bad = [a for a in operands(node.value) if not is_atom(a)]
    if bad:
        return f"the operand `{bad[0]}` is no variable or constant"
    if node.var.ty is None:
        return f"variable '{node.var.name_hint}' has no type"
    untyped = getattr(node.value, "ty", None) is None and isinstance(node.value, (ir.Call, ir.If))
    return "the value has no type" if untyped else None


@NORMALIZED.on(ir.If)
def _branches(node: ir.If, func: ir.Function, mod: ir.IRModule) -> str | None:
    wrong = [b for b in (node.true_branch, node.false_branch) if not isinstance(b, SeqExpr)]
    return "a branch of an if is no sequence of bindings" if wrong else None


@LEGALIZED.on(ir.Call)
def _no_operators(node: ir.Call, func: ir.Function, mod: ir.IRModule) -> str | None:
    if not isinstance(node.op, ir.Op) or _is_primitive(func):
        return None
    name = node.op.name.removeprefix("relax.")
    if name in CORE_OPS or name in _KEPT or name not in op.list_ops() or op.get_op_def(name).lower is None:
        return None
    return f"operator '{name}' is left, although it can be lowered"


def _is_primitive(func: ir.Function) -> bool:
    """Whether a function is a fused group, which is lowered as a whole."""
    return bool(func.attrs.get("Primitive") or func.attrs.get("primitive"))


@PLANNED.on(ir.Call)
def _no_destination_passing(node: ir.Call, func: ir.Function, mod: ir.IRModule) -> str | None:
    name = node.op.name.removeprefix("relax.") if isinstance(node.op, ir.Op) else ""
    left = name in ("call_tir", "call_tir_inplace", "call_dps_packed")
    return f"'{name}' is left, whose result has no memory yet" if left else None


@PLANNED.on(DataflowBlock)
def _no_dataflow(node: BindingBlock, func: ir.Function, mod: ir.IRModule) -> str:
    return "a dataflow block is left"


@RUNTIME_CALLS.on(ir.Call)
def _runtime(node: ir.Call, func: ir.Function, mod: ir.IRModule) -> str | None:
    if isinstance(node.op, ir.Op) and node.op.name not in _VM_OPS:
        return f"operator '{node.op.name}' is left, which the virtual machine does not know"
    return None


@VM_READY.on(ir.ShapeExpr)
def _shape(node: ir.ShapeExpr, func: ir.Function, mod: ir.IRModule) -> str | None:
    return None if all(isinstance(v, ir.IntImm) for v in node.values) else f"the symbolic shape `{node}` is left"


@VM_READY.on(ir.PrimValue)
def _prim(node: ir.PrimValue, func: ir.Function, mod: ir.IRModule) -> str | None:
    constant = not hasattr(node.value, "args") and isinstance(getattr(node.value, "value", None), (int, float))
    return None if constant else f"the symbolic scalar `{node}` is left"


@VM_READY.on(MatchCast)
def _match_cast(node: MatchCast, func: ir.Function, mod: ir.IRModule) -> str:
    return "a match_cast is left"
