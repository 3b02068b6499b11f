"""FuseOps: operators whose intermediate values need never reach memory become functions that stand for one kernel."""

from __future__ import annotations

from typing import Any, cast

from weft import ir
from weft.ir import Attrs, IRModule, PassContext, Type, module_pass
from weft.ir.deep import with_deep_stack
from weft.relax.transform import fusion_groups
from weft.relay.expr import Call, Function, Tuple, TupleGetItem, Var, let_chain
from weft.relay.from_relax import Bindings
from weft.relay.transform.nested import with_bodies
from weft.relay.transform.regions import Region, is_operator
from weft.relay.transform.runs import Runs
from weft.relay.transform.to_a_normal_form import to_a_normal_form
from weft.relay.transform.to_graph_normal_form import to_graph_normal_form
from weft.relay.types import FuncType

__all__ = ["fuse_ops"]

_MOST = 256


@module_pass(name="relay.FuseOps")
def fuse_ops(mod: IRModule, fuse_opt_level: int = -1) -> IRModule:
    """Make functions with attribute ``Primitive`` of operators, grouped as Relax's FuseOps groups them.

    Requires
        Types are inferred; graphs or A-normal form.
    Ensures
        Operators are called inside such functions, which are called where they stand. Graphs stay graphs.
        ``annotation.stop_fusion`` is gone: nothing was fused across it.
    Example
        Before::

            def @main(%x: Tensor[(2, 3), float32]) {
              tanh(exp(add(%x, 1f)))
            }

        After::

            def @main(%x: Tensor[(2, 3), float32]) {
              %0 = fn (%p0: Tensor[(2, 3), float32], Primitive=1) -> Tensor[(2, 3), float32] {
                tanh(exp(add(%p0, 1f)))
              };
              %0(%x)
            }

    Parameters
    ----------
    fuse_opt_level : int
        0 makes a function of each operator; -1 is the level of the pass context.
    Cost
        Linear in operators times the depth of the post-dominator tree on the way.
    Source
        TVM's ``FuseOps``.
    """
    level = PassContext.current().opt_level if fuse_opt_level < 0 else fuse_opt_level
    most = int(PassContext.current().config.get("relay.FuseOps.max_depth", _MOST)) if level > 0 else 1
    graphs = {v.name_hint for v, f in mod.items() if isinstance(f, Function) and not _has_lets(f)}
    named: Any = to_a_normal_form(bind_constants=False)(mod)
    runs = Runs(lambda region, outputs: _Fused(region, outputs, most).bindings, scalars=True)
    fused = {v: with_deep_stack(lambda f=f: with_bodies(f, runs.body)) if isinstance(f, Function) else f
             for v, f in named.items()}  # fmt: skip
    out = mod.with_functions(fused)
    unnamed: Any = to_graph_normal_form()(out)
    return out.with_functions({v: unnamed[v] if v.name_hint in graphs else f for v, f in out.items()})


def _has_lets(func: Function) -> bool:
    return bool(let_chain(func.body)[0])


class _Fused:
    """The bindings that a region becomes: a call of a function for each group, and what packs and unpacks tuples."""

    def __init__(self, region: Region, outputs: list[Var], most: int) -> None:
        self.region = region
        self.values = dict(region.members)
        self.group: dict[Var, int] = {}
        self.bindings: Bindings = []
        relax = region.bb.bindings()
        index = {b.var: i for i, b in enumerate(relax)}
        groups = fusion_groups(relax, set(region.leaves(outputs)), most)
        root = {i: members[-1] for members in groups for i in members}
        for v, value in region.members:
            place = index.get(_first(region.env[v]))
            self.group[v] = -1 - len(self.group) if place is None or not is_operator(value) else root[place]
        region.abandon(GeneratorExit())
        last = {self.group[v]: v for v, _ in region.members}
        for v, value in region.members:
            if not is_operator(value):
                self.bindings.append((v, value))
            elif last[self.group[v]] is v:
                self.bindings.append((v, self._call(v, value)))

    def _call(self, sink: Var, value: Any) -> Any:
        """Make the function of the group that ends in `sink`, and its call; a group that is one already stays."""
        if isinstance(value.op, Function):
            return value
        made = _Body(self, self.group[sink])
        body = made.expr(sink)
        ty = FuncType(tuple(cast(Type, p.ty) for p in made.params), body.ty)
        func = Function(tuple(made.params), body, body.ty, (), Attrs.of(Primitive=1), ty=ty)
        return Call(func, tuple(made.args), span=value.span, ty=value.ty)


class _Body:
    """The body of one group's function, as a graph over its parameters."""

    def __init__(self, fused: _Fused, group: int) -> None:
        self.fused, self.group = fused, group
        self.params: list[Var] = []
        self.args: list[Any] = []
        self._made: dict[ir.Expr, Any] = {}

    def expr(self, expr: Any) -> Any:
        """Return what stands for an expression inside the function."""
        found = self._made.get(expr)
        if found is None:
            found = self._made[expr] = self._expr(expr)
        return found

    def _expr(self, expr: Any) -> Any:
        if isinstance(expr, ir.Constant):
            return self._param(expr) if expr.data.shape else expr
        if isinstance(expr, Tuple):
            return Tuple(tuple(self.expr(f) for f in expr.fields), span=expr.span, ty=expr.ty)
        if not isinstance(expr, Var):
            return expr
        value = self.fused.values.get(expr)
        if isinstance(value, Tuple) and any(self._inside(f) for f in value.fields):
            return self.expr(value)
        if isinstance(value, TupleGetItem) and self._inside(value.tuple_value):
            return TupleGetItem(self.expr(value.tuple_value), value.index, span=value.span, ty=value.ty)
        if not self._inside(expr):
            return self._param(expr)
        assert isinstance(value, Call)
        return Call(value.op, tuple(self.expr(a) for a in value.args), value.attrs, span=value.span, ty=value.ty)

    def _inside(self, expr: Any) -> bool:
        """Whether the group computes a value, or a tuple or field of what it computes."""
        if self.fused.group.get(expr) == self.group:
            return True
        value = self.fused.values.get(expr)
        if isinstance(value, Tuple):
            return any(self._inside(f) for f in value.fields)
        return isinstance(value, TupleGetItem) and self._inside(value.tuple_value)

    def _param(self, expr: Any) -> Var:
        self.params.append(Var(f"p{len(self.params)}", expr.ty))
        self.args.append(expr)
        return self.params[-1]


def _first(value: Any) -> Any:
    """The tensor by which the group of an operator with several results is known."""
    while isinstance(value, ir.Tuple) and value.fields:
        value = value.fields[0]
    return value
