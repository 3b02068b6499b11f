"""Runs of operator calls in chains of lets: taken together as regions, and replaced by what a pass makes of them."""

from collections.abc import Callable
from typing import Any

from weft.ir import Expr
from weft.relay.adt import Constructor
from weft.relay.expr import Call, Constant, Function, GlobalVar, Var, let_chain, lets
from weft.relay.from_relax import Bindings
from weft.relay.scalars import scalar_operation
from weft.relay.transform.nested import VariablesIn, with_bodies
from weft.relay.transform.regions import Region, is_glue, is_operator
from weft.relay.walk import operator_name


class Runs:
    """Rewrites chains of lets, and those inside their values.

    Parameters
    ----------
    close : callable
        ``close(region, outputs)`` gives the bindings that replace a region, which bind the variables `outputs`.
    scalars : bool
        Whether arithmetic that the virtual machine does in its registers belongs to regions though nothing in them
        needs it.
    """

    def __init__(self, close: Callable[[Region, list[Var]], Bindings], *, scalars: bool) -> None:
        self.close, self.scalars = close, scalars
        self.outside: dict[Var, Any] = {}
        self.groups: dict[Expr, Function] = {}
        self.variables = VariablesIn()

    def body(self, expr: Expr) -> Any:
        """Rewrite a chain; the chain itself if it holds no operators."""
        bindings, tail = let_chain(expr)
        if not isinstance(tail, (Var, GlobalVar, Constant, Constructor)):
            last = Var("out", tail.ty)
            bindings, tail = [*bindings, (last, tail)], last
        nested = [self._nested(var, value) for var, value in bindings]
        run = _Run(self, bindings, tail)
        try:
            for i, (var, _) in enumerate(bindings):
                run.take(i, var, nested[i])
            run.flush(len(bindings))
        except BaseException as e:
            if run.region is not None:
                run.region.abandon(e)
            raise
        same = not run.changed and all(new is old for new, (_, old) in zip(nested, bindings, strict=True))
        return expr if same else lets(_without_unused_glue(run.done, tail, self.variables), tail)

    def _nested(self, var: Var, value: Expr) -> Any:
        """Rewrite what an operation holds; a call of a variable that is a group becomes a call of the group."""
        if isinstance(value, Function) and value.attrs.get("Primitive"):
            self.groups[var] = value
        if isinstance(value, Call) and value.op in self.groups:
            value = Call(self.groups[value.op], value.args, value.attrs, span=value.span, ty=value.ty)
        return value if is_operator(value) else with_bodies(value, self.body)


class _Run:
    """The bindings of one chain as they are rewritten, and the region that is open.

    What does not depend on the open region is put in front of it, so a region goes on behind calls and branches.
    """

    def __init__(self, runs: Runs, bindings: list[Any], tail: Expr) -> None:
        self.runs = runs
        self.done: list[Any] = []
        self.region: Region | None = None
        self.inside: set[Var] = set()
        self.changed = False
        self.uses = [set(runs.variables(value)) for _, value in bindings]
        self.last_use = {v: i for i, used in enumerate(self.uses) for v in used}
        self.last_use.update(dict.fromkeys(runs.variables(tail), len(bindings)))

    def take(self, i: int, var: Var, value: Any) -> None:
        """Put binding `i` into the region, in front of it, or behind it."""
        depends = not self.inside.isdisjoint(self.uses[i])
        stops = operator_name(value) == "annotation.stop_fusion"
        if not stops and self._belongs(value, depends):
            if self.region is not None and not self.region.takes(value):
                self.flush(i)
            if self.region is None:
                self.region = Region(self.runs.outside)
            self.region.add(var, value)
            self.inside.add(var)
            return
        if depends:
            self.flush(i)
        if stops:
            value, self.changed = value.args[0], True
        if is_glue(value):
            self.runs.outside[var] = value
        self.done.append((var, value))

    def _belongs(self, value: Any, depends: bool) -> bool:
        if is_operator(value):
            return depends or self.runs.scalars or scalar_operation(value) is None
        return depends and is_glue(value)

    def flush(self, i: int) -> None:
        """Close the region; what is used from binding `i` on comes out of it."""
        region, self.inside = self.region, set()
        if region is not None:
            outputs = [v for v, _ in region.members if self.last_use.get(v, -1) >= i]
            self.done += self.runs.close(region, outputs)
            self.region, self.changed = None, True


def _without_unused_glue(bindings: Bindings, tail: Expr, variables: VariablesIn) -> Bindings:
    """Drop names and tuples that only regions used, which looked through them."""
    used = set(variables(tail))
    kept = []
    for var, value in reversed(bindings):
        group = isinstance(value, Function) and value.attrs.get("Primitive")
        if var in used or not (is_glue(value) or group):
            used.update(variables(value))
            kept.append((var, value))
    return kept[::-1]
