"""Rewriting functions by patterns: single values, or whole constellations of a dataflow block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from weft.error import InvalidArgument
from weft.ir import Call, Constant, Expr, ExprVar, Function, IRModule, Tuple, TupleGetItem, structural_equal
from weft.relax.analysis import get_var2val
from weft.relax.block_builder import BlockBuilder
from weft.relax.dpl.context import PatternContext
from weft.relax.dpl.match import all_matches
from weft.relax.dpl.pattern import OPERATIONS, DFPattern
from weft.relax.effects import is_pure_call, mutable_variables
from weft.relax.expr import Binding, DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding
from weft.relax.infer import function_type
from weft.relax.ordering import sort_bindings
from weft.relax.rename import rename_block, rename_vars, variables
from weft.relax.rewriter import all_bindings, replace_value
from weft.relax.rewriter import rewrite_bindings as rewrite_each
from weft.relax.unused import remove_all_unused

Rewriter = Callable[[Expr, dict[Any, Expr]], "Expr | None"]
_ROUNDS = 1000


def rewrite_call(pattern: DFPattern, rewriter: Rewriter, func: Function, mod: IRModule | None = None) -> Function:
    """Rewrite the values that match a pattern, until none changes.

    Parameters
    ----------
    rewriter : callable
        ``rewriter(expr, matches) -> Expr``: the value, and what each part of the pattern stands for; the value itself
        or None means no change.
    func : Function
        In normal form.
    mod : IRModule, optional
        Where the functions that new expressions call are found.

    Returns
    -------
    Function
        `func` itself when nothing changed, else without the bindings that nothing uses.

    Raises
    ------
    InvalidArgument
        When it does not come to an end, because what the rewriter returns matches again.
    """
    return PatternMatchingRewriter(pattern, rewriter)(func, mod)


class _Steady(dict[Any, Expr]):
    """Values of variables: those made of memory that changes, which would differ elsewhere, are not seen through."""

    def __init__(self, mutable: set[ExprVar], values: Mapping[Any, Expr] | None = None) -> None:
        super().__init__(values or {})
        self.mutable = mutable

    def __contains__(self, var: object) -> bool:
        return super().__contains__(var) and self.mutable.isdisjoint((var, *variables(self[var])))


class MissingPattern(InvalidArgument, KeyError):
    """A rewriter lacks its pattern or its replacement."""


class PatternMatchingRewriter:
    """A pattern and what becomes of the values that match it; called on a function or module.

    Rewriters are joined by ``a | b``: a value is offered to the second where the first leaves it. One may stand among
    passes.
    """

    name, opt_level = "PatternMatchingRewriter", 0

    def __init__(self, pattern: DFPattern, func: Rewriter) -> None:
        self.rules: list[tuple[DFPattern, Rewriter]] = [(pattern, func)]

    @staticmethod
    def from_pattern(pattern: DFPattern, func: Rewriter) -> PatternMatchingRewriter:
        """Return a rewriter; `func` is as in :func:`rewrite_call`."""
        return PatternMatchingRewriter(pattern, func)

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """Return the rewriter that a module's functions ``pattern`` and ``replacement`` are.

        Its matches lie between two calls that have effects; dimensions of parameters may be variables.
        """
        return OPERATIONS["from_module"](mod)

    def __or__(self, other: PatternMatchingRewriter) -> PatternMatchingRewriter:
        joined = PatternMatchingRewriter(*self.rules[0])
        joined.rules = self.rules + other.rules
        return joined

    def __call__(self, obj: Any, mod: IRModule | None = None) -> Any:
        """Return a function or module rewritten, the same object when nothing changed."""
        if isinstance(obj, IRModule):
            out, joined = obj.copy(), PatternMatchingRewriter(*self.rules[0])
            joined.rules = [(p, getattr(r, "placed", lambda _, r=r: r)(out)) for p, r in self.rules]
            added = {v.name_hint for v, _ in out.items()} - {v.name_hint for v, _ in obj.items()}
            new = {
                v: joined(f, out) if isinstance(f, Function) and v.name_hint not in added else f for v, f in out.items()
            }
            return OPERATIONS["without_unused"](obj.with_functions(new), added)
        new = obj
        for _ in range(_ROUNDS + len(all_bindings(obj))):
            before, new = new, self._round(new, mod or IRModule())
            if new is before:
                return new
            new = remove_all_unused(OPERATIONS["shorten"](new), mod)
        raise InvalidArgument(
            "rewriting does not come to an end",
            help="what the rewriter returns matches its pattern again; return the value itself where nothing is to do",
        )

    def _round(self, func: Function, mod: IRModule) -> Function:
        mutable = mutable_variables(func, mod)
        values = _Steady(mutable, get_var2val(func))
        since = _Steady(mutable)  # what was bound since the last call that has effects

        def rule(binding: Binding, value: Expr, bb: BlockBuilder) -> Expr | None:
            for b in reversed(bb.bindings()):  # what was emitted since the last call
                if values.get(b.var) is b.value:
                    break
                values[b.var] = since[b.var] = b.value
            if isinstance(value, Call) and not is_pure_call(value, mod):
                since.clear()
            since[binding.var] = value
            for pattern, rewriter in self.rules:
                own = hasattr(rewriter, "placed")
                for matches in all_matches(pattern, value, since if own else values):
                    before = len(bb.bindings())
                    new = rewriter(value, matches, bb) if own else rewriter(value, matches)  # type: ignore[call-arg]
                    since.update((b.var, b.value) for b in bb.bindings()[before:])
                    if new is not None and new is not value and not structural_equal(new, value):
                        return new
            return None

        return rewrite_each(func, mod, rule)


def rewrite_bindings(
    ctx: PatternContext,
    rewriter: Callable[[dict[DFPattern, ExprVar], dict[ExprVar, Expr]], dict[ExprVar, Expr]],
    func: Function,
    mod: IRModule | None = None,
) -> Function:
    """Rewrite the constellations of dataflow blocks that a context demands, until there is none.

    Parameters
    ----------
    ctx : PatternContext
    rewriter : callable
        ``rewriter(matches, bindings) -> dict``: from the variables that patterns stand for, and the values of the
        block's variables, new values for some of these variables. An empty dict leaves the block as it is. New values
        may use any variable of the block that does not follow from them.
    func : Function
        In normal form.
    mod : IRModule, optional
        Where the functions that new expressions call are found.

    Returns
    -------
    Function
        `func` itself when nothing matched, else without the bindings that nothing uses.
    """
    if not isinstance(func.body, SeqExpr):
        return func
    bb = BlockBuilder(mod or IRModule())
    renamed: dict[Expr, Expr] = {}
    blocks: list[Any] = []
    for block in func.body.blocks:
        block = rename_block(block, renamed)
        blocks.append(_rewrite_block(ctx, rewriter, block, bb, renamed) if isinstance(block, DataflowBlock) else block)
    if all(a is b for a, b in zip(blocks, func.body.blocks, strict=True)):
        return func
    body = rename_vars(func.body.body, renamed)
    seq = SeqExpr(tuple(blocks), body, span=func.body.span, ty=body.ty)
    new = func.replace(body=seq)
    if not structural_equal(body.ty, func.body.body.ty):  # type: ignore[attr-defined]
        new = new.replace(ret_ty=body.ty)
        new = new.replace(ty=function_type(new))
    return remove_all_unused(new, mod)


def _rewrite_block(
    ctx: PatternContext, rewriter: Any, block: DataflowBlock, bb: BlockBuilder, renamed: dict[Expr, Expr]
) -> DataflowBlock:
    for _ in range(_ROUNDS + len(block.bindings)):
        matches = ctx.match_dfb(block)
        values = {b.var: b.value for b in block.bindings}
        new = rewriter(matches, values) if matches else {}
        unknown = [v for v in new if v not in values]
        if unknown:
            raise InvalidArgument(
                "a new value is for a variable of the block",
                found=repr(unknown[0]),
                expected="matches[p] where p stands for an operation",
            )
        new = {v: e for v, e in new.items() if e is not values[v] and e is not v}
        if not new:
            return block
        block = replace_bindings(block, new, bb, renamed)
    raise InvalidArgument("rewriting does not come to an end", help="what the rewriter returns matches again")


def replace_bindings(
    block: DataflowBlock, new: dict[ExprVar, Expr], bb: BlockBuilder, renamed: dict[Expr, Expr]
) -> DataflowBlock:
    """Give variables new values, with shared parts bound once, and put everything in an order that works."""
    bindings: list[Any] = []
    done: dict[Expr, Expr] = {}

    def flat(expr: Expr) -> Expr:
        """Bind the operations among the operands of an expression."""
        parts = expr.args if isinstance(expr, Call) else expr.fields if isinstance(expr, Tuple) else ()
        parts = (expr.tuple_value,) if isinstance(expr, TupleGetItem) else parts
        bound = tuple(operand(p) for p in parts)
        if all(a is b for a, b in zip(bound, parts, strict=True)):
            return expr
        if isinstance(expr, Call):
            return Call(expr.op, bound, expr.attrs, expr.ty_args, span=expr.span)
        return Tuple(bound, span=expr.span) if isinstance(expr, Tuple) else TupleGetItem(bound[0], expr.index)  # type: ignore[attr-defined]

    def operand(expr: Expr) -> Expr:
        """Return a variable or atom for an operand."""
        if expr in done or not isinstance(expr, (Call, Tuple, TupleGetItem)):
            return done.get(expr, expr)
        value = flat(expr)
        if isinstance(expr, Tuple):
            return done.setdefault(expr, value)
        done[expr] = DataflowVar(bb.fresh_name("lv"), None)
        bindings.append(VarBinding(done[expr], value))  # type: ignore[arg-type]
        return done[expr]

    for b in block.bindings:
        bindings.append(VarBinding(b.var, flat(new[b.var]), span=b.span) if b.var in new else b)
    return _typed(sort_bindings(bindings), bb, renamed)


def _typed(bindings: list[Any], bb: BlockBuilder, renamed: dict[Expr, Expr]) -> DataflowBlock:
    """Infer the types of what is new; `renamed` learns the variables that get another type, or are other names."""
    with bb.scope(dataflow=True):
        for b in bindings:
            value = rename_vars(b.value, renamed)
            if isinstance(b, VarBinding) and isinstance(value, (ExprVar, Constant)) and isinstance(b.var, DataflowVar):
                renamed[b.var] = value
                continue
            if value is b.value and b.var.ty is not None and getattr(value, "ty", None) is not None:
                bb.emit_normalized(b)
                continue
            if not isinstance(b, MatchCast):
                if any(renamed.get(v, v).ty is not v.ty for v in variables(b.value)):  # type: ignore[attr-defined]
                    value = _untyped(value)
                value = bb.normalize(value)
            var, ty = b.var, getattr(value, "ty", None)
            if not isinstance(b, MatchCast) and (var.ty is None or not structural_equal(ty, var.ty)):
                var = type(var)(var.name_hint, ty, span=var.span)
                renamed[b.var] = var
            bb.emit_normalized(replace_value(b, value, var))
        return DataflowBlock(tuple(bb.bindings()))


def _untyped(value: Expr) -> Any:
    """Return an operation whose type is to be inferred again."""
    return replace(value, ty=None) if isinstance(value, (Call, Tuple, TupleGetItem)) else value
