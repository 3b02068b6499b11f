"""Inference over expressions and modules."""

from __future__ import annotations

from typing import Any

from msgspec.structs import force_setattr

from weft import error, ir
from weft.relay.analysis.coverage import keep_warned, warn_unmatched
from weft.relay.analysis.variables import free_type_vars
from weft.relay.expr import Function
from weft.relay.infer.constraints import global_type, type_of
from weft.relay.infer.data_types import check_definitions
from weft.relay.infer.pending import Instantiation
from weft.relay.infer.rebuild import Rebuild
from weft.relay.infer.state import Inference


def infer_type(program: ir.IRModule | ir.Expr, mod: ir.IRModule | None = None) -> Any:
    """Infer the types of an expression or of all functions of a module.

    Parameters
    ----------
    program : Expr or IRModule
        It is left as it is.
    mod : IRModule, optional
        What the global variables and data types of an expression refer to.

    Returns
    -------
    program : Expr or IRModule
        The same with ``ty`` on every expression; what had its type before is the same object.

    Raises
    ------
    TypeInferenceError
        When it is ill-typed, or a type cannot be inferred; several errors come in one :class:`ErrorGroup`.
    """
    return infer_module(program) if isinstance(program, ir.IRModule) else infer(program, mod)


def infer(expr: ir.Expr, mod: ir.IRModule | None = None) -> Any:
    """Infer the types in an expression, whose free variables must be annotated; see :func:`infer_type`."""

    def run() -> tuple[Any, Rebuild]:
        s = Inference(mod)
        s.allow_free = True
        type_of(expr, s)
        settle(s)
        again = Rebuild(s)
        return again(expr), again

    return _finish(*ir.with_deep_stack(run))


def _finish(out: Any, again: Rebuild) -> Any:
    """Raise errors; warn of matches that do not cover all values, once each."""
    s = again.s
    s.raise_errors()
    for old in s.matches:
        new = again(old)
        if old.complete and old.clauses and s.mod is not None:
            keep_warned(old.clauses[0].lhs, new.clauses[0].lhs)
            warn_unmatched([new], s.mod, repeat=False)
    return out


def infer_module(mod: ir.IRModule) -> ir.IRModule:
    """Infer the types in all functions of a module; see :func:`infer_type`."""

    def run() -> tuple[ir.IRModule, Rebuild]:
        s = Inference(mod)
        check_definitions(s)
        functions = {v: f for v, f in mod.items() if isinstance(f, Function)}
        for v, f in functions.items():
            global_type(v.name_hint, s)
            s.function = v.name_hint
            type_of(f, s)
            s.solve()
        settle(s)
        again = Rebuild(s)
        return _rebuilt(mod, s, again), again

    return _finish(*ir.with_deep_stack(run))


def _rebuilt(mod: ir.IRModule, s: Inference, again: Rebuild) -> ir.IRModule:
    functions: dict[Any, Any] = {}
    for v, f in mod.items():
        s.function = v.name_hint
        done: Any = again(f) if isinstance(f, Function) else f
        functions[again.global_var(v)] = done
        if done is not f:
            _check_type_variables(f, done, s)
    if all(a is b and f is mod.functions[b] for (a, f), b in zip(functions.items(), mod.functions, strict=True)):
        return mod
    return ir.IRModule(functions, mod.attrs, mod.global_infos, type_definitions=mod.type_definitions)


def _check_type_variables(old: ir.Expr, new: Function, s: Inference) -> None:
    """Note an error for each type variable that stands outside the function whose parameter it is."""
    for v in free_type_vars(new) if not s.errors else ():
        s.fail(
            f"type variable '{v.name_hint}' is not bound",
            old,
            found=f"it, in a function of type `{new.ty}`",
            help="a function's type parameters may stand in that function only",
        )


def settle(s: Inference) -> None:
    """Use all that is known until nothing changes; note what cannot be inferred."""
    s.solve()
    while any(isinstance(f, Instantiation) for f in s.queue):
        waiting = next(f for f in s.queue if isinstance(f, Instantiation))
        s.queue.remove(waiting)
        waiting.force(s)
        s.solve()
    while s.unifier.widened:
        s.unifier.widened = False
        for relation in s.relations:
            relation.again(s)
    if s.queue and not s.errors:
        for fact in s.queue[:3]:
            s.fail(
                "the type cannot be inferred",
                fact.node,
                found=f"that {fact.unknown(s)} is not known",
                help="annotate it: its use comes before what would tell it",
            )


def inferred_type(expr: ir.Expr, mod: ir.IRModule | None = None) -> ir.Type:
    """Return the type of an expression, which also notes it where it has none.

    Raises
    ------
    TypeInferenceError
        When it has none.
    """
    ty = infer(expr, mod).ty
    if ty is None:
        raise error.TypeInferenceError("the expression has no type", where=expr)
    if getattr(expr, "ty", ty) is None:
        force_setattr(expr, "ty", ty)
    return ty
