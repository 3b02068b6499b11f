"""Contexts of patterns: constraints between patterns, and where in a dataflow block all of them hold."""

from __future__ import annotations

from typing import Any

from weft.ir import Call, ExprVar, Node, Op, TensorType, Tuple, find
from weft.relax.dpl.match import Matcher
from weft.relax.dpl.pattern import OPEN_CONTEXTS, DFPattern, OpPattern, VarPattern, WildcardPattern
from weft.relax.expr import DataflowBlock, DataflowVar
from weft.relax.infer import same_shape
from weft.relax.rename import variables

_BY_TUPLE = ("relax.call_tir", "relax.call_dps_packed")
_LEAVES = (OpPattern, VarPattern, WildcardPattern)


class PatternContext:
    """Patterns that must all occur in a block, and constraints between them.

    Patterns made inside of ``with PatternContext() as ctx:`` belong to it; those that are part of no other and the ends
    of constraints must occur, each at a binding of its own.

    Parameters
    ----------
    incremental : bool
        Whether to begin with what the enclosing context demands.

    Examples
    --------
    >>> from weft.relax.dpl import PatternContext, is_op, wildcard
    >>> with PatternContext() as ctx:
    ...     x = wildcard()
    ...     relu = is_op("relax.nn.relu")(x)
    ...     _ = relu >> is_op("relax.add")(relu, wildcard())
    """

    def __init__(self, incremental: bool = False) -> None:
        outer = OPEN_CONTEXTS.current if incremental else None
        self.patterns: list[DFPattern] = list(outer.patterns) if outer else []
        self.edges: list[tuple[DFPattern, DFPattern, bool, int]] = list(outer.edges) if outer else []
        self.same_shape: list[tuple[DFPattern, ...]] = list(outer.same_shape) if outer else []

    def __enter__(self) -> PatternContext:
        return OPEN_CONTEXTS.enter(self)

    def __exit__(self, *_error: object) -> None:
        OPEN_CONTEXTS.leave(self)

    @staticmethod
    def current() -> PatternContext | None:
        """Return the innermost context that is open, or None."""
        return OPEN_CONTEXTS.current

    def match_dfb(self, dfb: DataflowBlock) -> dict[DFPattern, ExprVar] | None:
        """Find a place in a block where everything demanded holds.

        Returns
        -------
        dict or None
            Pattern to the variable that stands for it, as far as it is one; None if there is no place.
        """
        return _Search(self, dfb).run()

    def nodes(self) -> list[DFPattern]:
        """List the patterns that must occur at a binding of their own, connected ones in a row."""
        parts = {c for p in self.patterns for c in find(p, DFPattern) if c is not p}
        ends = [p for edge in self.edges for p in edge[:2]]
        roots = [p for p in self.patterns if p not in parts and not isinstance(p, _LEAVES)]
        waiting = list(dict.fromkeys([*roots, *ends]))
        waiting.sort(key=lambda p: isinstance(p, _LEAVES))  # the specific first
        out: list[DFPattern] = []
        while waiting:
            near = {q for edge in self.edges for q in edge[:2] if any(e in out for e in edge[:2])}
            out.append(next((p for p in waiting if p in near), waiting[0]))
            waiting.remove(out[-1])
        return out


class _Search:
    """Search with backtracking: one pattern after the other gets a variable."""

    def __init__(self, ctx: PatternContext, block: DataflowBlock) -> None:
        self.ctx, self.nodes = ctx, ctx.nodes()
        self.values = {b.var: b.value for b in block.bindings}
        self.var_of = {b.value: b.var for b in block.bindings}
        self.users: dict[Any, list[Any]] = {v: [] for v in self.values}
        for b in block.bindings:
            for v in dict.fromkeys(variables(b.value)):
                self.users.setdefault(v, []).append(b.var)
        self.place: dict[DFPattern, Any] = {}
        self.matcher = Matcher(self.values)

    def run(self) -> dict[DFPattern, ExprVar] | None:
        """Return what the patterns stand for."""
        if not self.nodes or not self.extend(0):
            return None
        found = {p: self.variable(e) for p, e in self.matcher.found.items()} | self.place
        return {p: v for p, v in found.items() if v is not None}

    def variable(self, expr: Node) -> Any:
        """Return the variable of an expression that was matched."""
        return expr if isinstance(expr, ExprVar) else self.var_of.get(expr)

    def extend(self, i: int) -> bool:
        """Find variables for the patterns from the i-th on."""
        if i == len(self.nodes):
            return all(map(self.same_shapes, self.ctx.same_shape))
        pattern = self.nodes[i]
        for var in self.candidates(pattern):
            saved = dict(self.matcher.found)
            if var not in self.place.values() and self.matcher.match(pattern, var):
                self.place[pattern] = var
                if all(map(self.edge_holds, self.ctx.edges)) and self.extend(i + 1):
                    return True
                del self.place[pattern]
            self.matcher.found = saved
        return False

    def candidates(self, pattern: DFPattern) -> list[Any]:
        """List the variables that a pattern may stand for, given those that have one."""
        if pattern in self.matcher.found:
            var = self.variable(self.matcher.found[pattern])
            return [] if var is None else [var]
        for producer, consumer, _, _ in self.ctx.edges:
            if consumer is pattern and producer in self.place:
                return self.users.get(self.place[producer], [])
            if producer is pattern and consumer in self.place:
                return list(dict.fromkeys(variables(self.values.get(self.place[consumer]))))
        return list(self.users)

    def edge_holds(self, edge: tuple[DFPattern, DFPattern, bool, int]) -> bool:
        """Whether a constraint holds, as far as both of its ends have a variable."""
        producer, consumer, only, index = edge
        if producer not in self.place or consumer not in self.place:
            return True
        source, sink = self.place[producer], self.place[consumer]
        users, value = self.users.get(source, []), self.values.get(sink)
        if sink not in users:
            return False
        if only and (len(users) > 1 or (source in self.values and not isinstance(source, DataflowVar))):
            return False
        if index < 0 or not isinstance(value, Call):
            return index < 0
        args = value.args
        if isinstance(value.op, Op) and value.op.name in _BY_TUPLE and isinstance(given := args[1], Tuple):
            args = given.fields
        return index < len(args) and args[index] is source

    def same_shapes(self, group: tuple[DFPattern, ...]) -> bool:
        """Whether the tensors that patterns stand for have one shape."""
        types = [getattr(self.matcher.found.get(p), "ty", None) for p in group]
        shapes = [ty.shape if isinstance(ty, TensorType) else None for ty in types]
        return all(same_shape(shapes[0], s) for s in shapes)
