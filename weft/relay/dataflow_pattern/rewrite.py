"""What is done with matches: rewriting by callbacks, and making functions of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from weft import ir
from weft.error import InvalidArgument
from weft.ir.deep import with_deep_stack
from weft.relay.adt import Match
from weft.relay.dataflow_pattern import pattern as patterns
from weft.relay.dataflow_pattern.graph import Graph
from weft.relay.dataflow_pattern.match import Matcher
from weft.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var
from weft.relay.infer import infer_module
from weft.relay.walk import map_parts, subexpressions

_MOST_ROUNDS = 100
_PARTITIONED = "PartitionedFromPattern"


class _Group(NamedTuple):
    """A match: the expression, what the parts of the pattern matched, and both as a function of what flows in."""

    root: Any
    found: dict[patterns.DFPattern, list[Any]]
    func: Function
    args: list[Any]
    name: str


class _Grouper:
    """Finds matches that share nothing, the last ones first."""

    def __init__(self, pattern: patterns.DFPattern, root: Any) -> None:
        self.pattern = pattern
        self.patterns = [node.expr for node in Graph(pattern, lambda p: p.parts()).order]
        self.matcher = Matcher(root)
        self.groups: dict[Any, _Group] = {}  # by root
        self._member: set[Any] = set()
        partitioned: set[Any] = set()
        for node in reversed(self.matcher.graph.order):
            e = node.expr
            if e in self._member:
                continue
            if type(e) is Function and _PARTITIONED in e.attrs:
                partitioned.update((e, *subexpressions(e.body)))
            if e not in partitioned and self.matcher.match(pattern, e):
                self._add(e)

    def _add(self, root: Any) -> None:
        found = {p: list(exprs) for p, exprs in self.matcher.found.items()}
        inputs = self._inputs(found)
        extracted = _Extracted(inputs)
        body = extracted.mutate(root)
        nodes = self.matcher.graph.nodes
        for e, made in extracted.memo.items():
            if isinstance(e, (ir.Op, Function, Constant)):
                continue
            if e in self._member:
                return
            outside = made is not body and any(
                user.expr not in extracted.memo and not nodes[root].dominates(user) for user in nodes[e].outputs
            )
            if outside:  # a value inside is used elsewhere, too
                return
        self._member.update(extracted.memo)
        func = Function(tuple(inputs.values()), body)
        self.groups[root] = _Group(root, found, func, list(inputs), extracted.name)

    def _inputs(self, found: dict[patterns.DFPattern, list[Any]]) -> dict[Any, Var]:
        """Give a variable to each expression that flows into a match: what leaves of the pattern matched."""
        inside = self._fuzzy(found)
        inputs: dict[Any, Var] = {}
        for p in self.patterns:
            exprs = found.get(p, [])
            if type(p) is patterns.TuplePattern and p.fields is None:
                exprs = [f for e in exprs for f in e.fields]
            elif type(p) is patterns.CallPattern and p.args is None:
                exprs = [a for e in exprs for a in e.args]
            elif p.parts():
                continue
            for e in exprs:
                if e not in inside and not isinstance(e, (ir.Op, Function)) and not self._embeds(p, e):
                    inputs.setdefault(e, Var(f"FunctionVar_{len(self.groups)}_{len(inputs)}"))
        return inputs

    def _fuzzy(self, found: dict[patterns.DFPattern, list[Any]]) -> set[Any]:
        """What is inside although no leaf of the pattern says so: ways to a dominator, bodies of functions."""
        inside: set[Any] = set()
        for p in self.patterns:
            if type(p) is patterns.DominatorPattern:
                inside.update(e for part in (p.parent, p.path) for e in found.get(part, ()))
            elif type(p) is patterns.FunctionPattern:
                inside.update(n.expr for f in found.get(p, ()) for n in Graph(f.body).order)
        return inside

    def _embeds(self, pattern: Any, expr: Any) -> bool:
        """Whether a constant belongs to the match, because the pattern asks for one."""
        if not isinstance(expr, Constant):
            return False
        if type(pattern) is patterns.AltPattern:
            return self._embeds(pattern.left, expr) or self._embeds(pattern.right, expr)
        return type(pattern) is patterns.ConstantPattern or (
            type(pattern) is patterns.ExprPattern and isinstance(pattern.expr, Constant)
        )


class _Extracted:
    """A copy of a match over variables for what flows in, and a name made of what it does."""

    def __init__(self, inputs: Mapping[Any, Var]) -> None:
        self.inputs = inputs
        self.memo: dict[Any, Any] = {}
        self.name = ""

    def mutate(self, expr: ir.Node) -> Any:
        """Return the copy of an expression."""
        if expr in self.inputs:
            return self.inputs[expr]
        if expr not in self.memo:
            made = map_parts(expr, self.mutate)
            self.name += _label(expr)
            self.memo[expr] = _untyped(made) if made is not expr else made
        return self.memo[expr]


def _untyped(made: ir.Expr) -> Any:
    """Drop what inference found for an expression whose parts are variables without types now."""
    return (
        structs.replace(made, ty=None) if getattr(made, "ty", None) is not None and not isinstance(made, Var) else made
    )


def _label(expr: Any) -> str:
    if type(expr) is Call:
        return f"{expr.op.name}_" if isinstance(expr.op, ir.Op) else "Call_"
    if type(expr) is TupleGetItem:
        return f"TupleGetItem{expr.index}_"
    return {Tuple: "Tuple_", Function: "Function", Let: "Let_", If: "If_", Match: "Match_"}.get(type(expr), "")


class DFPatternCallback:
    """What to do with matches; derive from it, set ``self.pattern`` and define :meth:`callback`.

    Parameters
    ----------
    require_type : bool
        Whether types are inferred before each round.
    rewrite_once : bool
        Whether one round is all.
    """

    pattern: patterns.DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type, self.rewrite_once = require_type, rewrite_once

    def rewrite(self, expr: Any) -> Any:
        """Rewrite an expression until nothing changes."""
        return rewrite(self, expr)

    def callback(self, pre: ir.Expr, post: ir.Expr, node_map: Mapping[patterns.DFPattern, list[Any]]) -> Any:
        """Return what stands for a match.

        Parameters
        ----------
        pre, post : Expr
            The match, before and after its parts were rewritten.
        node_map : mapping of DFPattern to list of Expr
            What the parts of the pattern matched, rewritten.
        """
        raise NotImplementedError("define callback(pre, post, node_map)")


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: ir.Expr, mod: ir.IRModule | None = None
) -> Any:
    """Rewrite an expression by callbacks, in turn, until nothing changes.

    Parameters
    ----------
    callbacks : DFPatternCallback or sequence of them
        What to do with matches of their patterns.
    mod : IRModule, optional
        Functions and data types that the expression refers to.

    Raises
    ------
    InvalidArgument
        When it still changes after 100 rounds.
    """
    given = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for _ in range(_MOST_ROUNDS):
        last = expr
        for callback in given:
            if callback.require_type:
                expr = _typed(expr, mod)
            expr = with_deep_stack(lambda e=expr, c=callback: _rewritten(c, e))
        if given[-1].rewrite_once or ir.structural_equal(last, expr):
            return expr
    raise InvalidArgument(
        f"an expression still changes after {_MOST_ROUNDS} rounds of rewriting",
        help="do callbacks undo what others do?",
    )


def _rewritten(callback: DFPatternCallback, expr: Any) -> Any:
    groups = _Grouper(callback.pattern, expr).groups
    memo: dict[Any, Any] = {}

    def apply(group: _Group, pre: ir.Expr, post: ir.Expr) -> Any:
        node_map = {p: [memo.get(e, e) for e in exprs] for p, exprs in group.found.items()}
        node_map = {p: [post if e is pre else e for e in exprs] for p, exprs in node_map.items()}
        return callback.callback(pre, post, node_map)

    return _mutate(expr, groups, apply, memo)


def _mutate(expr: Any, groups: dict[Any, _Group], apply: Callable[..., Any], memo: dict[Any, Any]) -> Any:
    """Rebuild an expression; `apply` says what stands for the roots of groups."""

    def go(e: ir.Node) -> Any:
        if e not in memo:
            post = map_parts(e, go)
            memo[e] = apply(groups[e], e, post) if e in groups else post
        return memo[e]

    return go(expr)


def _typed(expr: Any, mod: ir.IRModule | None) -> Any:
    program = ir.IRModule() if mod is None else mod.copy()
    name = program.fresh_name("_tmp")
    program[name] = expr if type(expr) is Function else expr.in_function()
    func: Any = infer_module(program)[name]
    return func if type(expr) is Function else func.body


def partition(
    pattern: patterns.DFPattern,
    expr: ir.Expr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Any], bool] = lambda expr: True,
) -> Any:
    """Make functions of matches, called where these stood.

    Parameters
    ----------
    attrs : mapping, optional
        Attributes of the functions, beside ``PartitionedFromPattern``.
    check : callable
        Asked of each match; one that it refuses stays.
    """
    if isinstance(pattern, patterns.FunctionPattern):  # a function that nobody calls
        return expr
    groups = _Grouper(pattern, expr).groups
    memo: dict[Any, Any] = {}

    def apply(group: _Group, pre: ir.Expr, post: ir.Expr) -> Any:
        if not check(pre):
            return post
        func = group.func.with_attr({_PARTITIONED: group.name, **dict(attrs or {})})
        return Call(func, tuple(memo.get(a, a) for a in group.args))

    return with_deep_stack(lambda: _mutate(expr, groups, apply, memo))


def _partition_method(
    self: patterns.DFPattern,
    expr: Any,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Any], bool] = lambda expr: True,
) -> Any:
    return partition(self, expr, attrs, check)


patterns.DFPattern.partition = _partition_method  # type: ignore[attr-defined]
