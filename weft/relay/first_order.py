"""Which programs need the virtual machine, and which of their constructs say so."""

from __future__ import annotations

from itertools import islice
from typing import Any

from weft import error, ir
from weft.relay.adt import Constructor, Match
from weft.relay.expr import Call, Function, GlobalVar, If, RefCreate, RefRead, RefWrite, is_external
from weft.relay.types import Any as AnyDim
from weft.relay.types import FuncType, GlobalTypeVar, RefType, TypeCall
from weft.relay.walk import subexpressions


def check_first_order(mod: ir.IRModule, name: str = "main") -> None:
    """Check that a function computes tensors of constant shapes from tensors, by operators alone.

    Raises
    ------
    LoweringError
        When there is something else: a branch, a match, a function value, a reference, a call of a function, an
        unknown dimension. The error says where; with more than one, an ``ErrorGroup`` of them.
    """
    found = needs_machine(mod, name)
    if len(found) == 1:
        raise found[0]
    if found:
        raise error.ErrorGroup(f"'{name}' needs the virtual machine", found)


def needs_machine(mod: ir.IRModule, name: str = "main") -> list[error.LoweringError]:
    """List what of a function only the virtual machine runs."""
    func: Any = mod[name]
    errors: dict[Any, error.LoweringError] = {}
    outside = {v.name_hint for v, f in mod.items() if is_external(f)}
    calls = [e for e in subexpressions(func.body) if isinstance(e, Call)]
    called = {e.op for e in calls if isinstance(e.op, Function) or getattr(e.op, "name_hint", None) in outside}
    for e in (*func.params, *subexpressions(func.body)):
        if e in called:
            continue
        what = (None if type(e) is Call and e.op in called else _construct(e)) or (
            None if isinstance(e, ir.Op) else _of_type(getattr(e, "ty", None))
        )
        where = getattr(e, "span", None) or func.span
        if what and (what, where) not in errors and len(errors) < 20:
            errors[what, where] = error.LoweringError(
                f"'{name}' has {what}, which needs the virtual machine",
                where=where,
                found=_head(e),
                expected="operators on tensors of constant shapes, after inlining and constant folding",
                help="compile it by relay.vm.compile, or evaluate it by create_executor('vm')",
            )
    return list(errors.values())


def _head(expr: ir.Node) -> str | None:
    """The first line of an expression's text; None where the text is large and would take long to write."""
    if sum(1 for _ in islice(subexpressions(expr), 200)) == 200:
        return None
    return str(expr).strip().splitlines()[0][:80]


def _of_type(ty: ir.Type | None) -> str | None:
    """What a value of a type has that a graph does not."""
    if isinstance(ty, ir.TupleType):
        return next(filter(None, map(_of_type, ty.fields)), None)
    if isinstance(ty, ir.TensorType):
        return "an unknown dimension" if any(isinstance(d, AnyDim) for d in ty.shape or ()) else None
    return next((name for kind, name in _TYPES.items() if isinstance(ty, kind)), None)


def _construct(expr: ir.Node) -> str | None:
    if type(expr) is Call and not isinstance(
        expr.op, (ir.Op, Function, Constructor)
    ):  # what else is called says it itself
        return "recursion" if isinstance(expr.op, GlobalVar) else "a call of a function value"
    return _CONSTRUCTS.get(type(expr))


_TYPES = {FuncType: "a function value", RefType: "a reference", TypeCall: "a data type", GlobalTypeVar: "a data type"}
_CONSTRUCTS: dict[Any, str] = {
    If: "a branch (`if`)",
    Match: "a match",
    Function: "a function value",
    Constructor: "a data type",
    RefCreate: "a reference",
    RefRead: "a reference",
    RefWrite: "a reference",
}
