"""Rewriters that are written as modules: a function ``pattern`` and a function ``replacement`` of the same operands."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.error import InvalidArgument, TypeInferenceError
from weft.relax.analysis.types import BaseCheckResult, type_base_check
from weft.relax.dpl import pattern as forms
from weft.relax.dpl.rewrite import MissingPattern, PatternMatchingRewriter
from weft.relax.infer import bind_type, type_of
from weft.relax.rewriter import all_bindings
from weft.relax.transform.canonicalize import without_other_names
from weft.relax.transform.inline_private import expand


def rewriter_of(mod: ir.IRModule) -> PatternMatchingRewriter:
    """Make a rewriter of a module's ``pattern`` and ``replacement``; other functions, all private, are its subroutines.

    Raises
    ------
    MissingPattern
        When one of the two is not there.
    InvalidArgument
        When they are no Relax functions of one signature, or a subroutine is public.
    """
    found: dict[str, Any] = {}
    for name in ("pattern", "replacement"):
        if name not in mod:
            raise MissingPattern(f"a rewriter needs a function '{name}'", expected="pattern and replacement")
        found[name] = mod[name]
        if not isinstance(found[name], ir.Function):
            raise InvalidArgument(f"a rewriter's {name} is a Relax function", found=type(found[name]).__name__)
    pattern, replacement = found.values()
    if not ir.structural_equal(ir.Tuple(pattern.params), ir.Tuple(replacement.params), True):
        raise InvalidArgument("pattern and replacement must have the same signature")
    own: dict[ir.GlobalVar, Any] = {v: f for v, f in mod.items() if v.name_hint not in found}
    public = [v.name_hint for v, f in own.items() if f.attrs.get("global_symbol")]
    if public:
        raise InvalidArgument(f"subroutine '{public[0]}' of a rewriter is publicly exposed", help="make it private")
    made, params = _pattern_of(pattern)
    rule: Any = _Replace(pattern, params, replacement, own)
    return PatternMatchingRewriter(made, rule)


def _pattern_of(func: ir.Function) -> tuple[forms.DFPattern, list[forms.DFPattern]]:
    """Return the pattern that a function's result is, and those of its parameters."""
    params: list[forms.DFPattern] = [forms.WildcardPattern() for _ in func.params]
    known: dict[ir.Expr, forms.DFPattern] = dict(zip(func.params, params, strict=True))

    def pattern(e: Any) -> Any:
        if e in known:
            return known[e]
        if isinstance(e, ir.Call):
            made: forms.DFPattern = forms.CallPattern(pattern(e.op), tuple(pattern(a) for a in e.args))
            return made.has_attr(dict(e.attrs.items)) if e.attrs.keys() else made
        if isinstance(e, ir.Tuple):
            return forms.TuplePattern(tuple(pattern(f) for f in e.fields))
        if isinstance(e, ir.TupleGetItem):
            return forms.TupleItemPattern(pattern(e.tuple_value), e.index)
        kinds = {ir.Op: forms.OpPattern, ir.GlobalVar: forms.GlobalVarPattern, ir.ExternFunc: forms.ExternFuncPattern}
        if type(e) in kinds:
            return kinds[type(e)](getattr(e, "name", None) or getattr(e, "name_hint", None) or e.global_symbol)
        return forms.ExprPattern(e)

    for b in all_bindings(func):
        known[b.var] = pattern(b.value)
    return pattern(func.body.body), params  # type: ignore[attr-defined]


class _Replace:
    """What a match becomes: the replacement's bindings, of what its parameters stand for."""

    def __init__(
        self, pattern: ir.Function, params: list[forms.DFPattern], func: ir.Function, own: dict[ir.GlobalVar, Any]
    ) -> None:
        self.pattern, self.params, self.func, self.own = pattern, params, func, own

    def placed(self, mod: ir.IRModule) -> _Replace:
        """Add the subroutines to a module, under names that are free there, and return the rule that calls them."""
        new: dict[Any, ir.GlobalVar] = {}
        for gvar, func in self.own.items():
            name = mod.fresh_name(gvar.name_hint)
            mod[name] = func
            new[gvar.name_hint] = mod.get_global_var(name)

        def renamed(node: ir.Node) -> Any:
            return new.get(node.name_hint, node) if type(node) is ir.GlobalVar else ir.rebuild(node, renamed)

        for gvar in new.values():
            mod[gvar] = renamed(mod[gvar])
        return _Replace(self.pattern, self.params, renamed(self.func), {v: mod[v] for v in new.values()})

    def __call__(self, value: ir.Expr, matches: dict[Any, ir.Expr], bb: Any) -> ir.Expr | None:
        if any(p not in matches for p in self.params):
            return None
        call = ir.Call(ir.GlobalVar("replacement"), tuple(matches[p] for p in self.params))
        symbols: dict[Any, Any] = {}
        for p, a in zip(self.pattern.params, call.args, strict=True):
            ty: Any = p.ty
            try:
                bind_type(ty, type_of(a), symbols, call)
            except TypeInferenceError:
                return None
            if type_base_check(ir.substitute(ty, symbols), type_of(a)) != BaseCheckResult.PASS:
                return None
        return expand(self.func, call, bb)


def without_unused(mod: ir.IRModule, names: set[str]) -> ir.IRModule:
    """Drop functions of these names that nothing calls."""
    rest = {v.name_hint: f for v, f in mod.items()}

    def called(name: str) -> set[str]:
        return {n.name_hint for n in ir.walk(rest[name]) if type(n) is ir.GlobalVar} & names

    left = ir.reached((n for n in rest if n not in names), called)
    return mod.with_functions({v: f for v, f in mod.items() if v.name_hint in left})


forms.OPERATIONS.update(from_module=rewriter_of, without_unused=without_unused, shorten=without_other_names)
