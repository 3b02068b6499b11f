"""Weights that a function takes one by one when it needs them, and results that it hands over when they are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import ir
from weft.relax.analysis.types import type_outside
from weft.relax.core_ops import call_packed
from weft.relax.expr import Binding, BindingBlock, MatchCast, SeqExpr, VarBinding
from weft.relax.expr import Var as RelaxVar
from weft.relax.infer import function_type
from weft.relax.memory_ops import kill_object
from weft.relax.rename import rename_vars, variables
from weft.relax.rewriter import replace_value
from weft.relax.transform.vm_shape_lower import typed

_ANY, _NOTHING = ir.AnyType(), ir.TupleType(())


@ir.function_pass(kind=ir.Function)
def lazy_transform_params(
    func: ir.Function,
    mod: ir.IRModule,
    fget_item: str = "get_item",
    fset_item: str | None = "set_item",
    extra_get_item_params: Sequence[ir.ExprVar] = (),
    extra_set_item_params: Sequence[ir.ExprVar] = (),
) -> ir.Function:
    """Let a function that prepares weights take each when it is needed and hand over each result when it is there.

    Requires: ``relax.normalized``; functions whose names end in ``transform_params`` take weights, or one tuple of
        them, and return a tuple.
    Ensures: ``relax.normalized``; these functions take no tensors and are impure. With `fset_item`, they return the
        empty tuple, and a weight is dropped behind its last use.
    Before::

        @R.function
        def transform_params(p: R.Tuple(R.Tensor((2,), "float32"))):
            with R.dataflow():
                w = p[0]
                v = R.exp(w)
                t = (v,)
                R.output(t)
            return t

    After::

        @R.function(pure=False)
        def transform_params() -> R.Tuple():
            w: R.Object = R.call_packed("get_item", R.prim_value(0), ty_args=(R.Object,))
            w1: R.Tensor((2,), "float32") = R.match_cast(w, R.Tensor((2,), "float32"))
            w2: R.Tensor((2,), "float32") = w1
            v: R.Tensor((2,), "float32") = R.exp(w2)
            _: R.Tuple() = R.vm.kill_object(w2)
            _1: R.Object = R.call_packed("set_item", R.prim_value(0), v, ty_args=(R.Object,))
            t: R.Tuple() = R.tuple()
            return t

    Options:
        ``fget_item``, ``fset_item``: the packed functions, which take the number of a weight or result; ``fset_item``
        may be None. ``extra_get_item_params``, ``extra_set_item_params``: parameters that the function gets and that
        are passed on to them first.
    Cost: Linear.
    Source: TVM's ``LazyTransformParams``.
    """
    name = str(func.attrs.get("global_symbol") or "")
    if not name.endswith("transform_params") or not isinstance(func.body, SeqExpr):
        return func
    lazy = _Lazy(func)

    def fetch(place: int, _: ir.ExprVar) -> ir.Call:
        return typed(call_packed(fget_item, *extra_get_item_params, ir.prim_value(place), ty_args=_ANY), _ANY)

    def hand_over(place: int, value: ir.Expr) -> ir.Call:
        given = (*extra_set_item_params, ir.prim_value(place), value)
        return typed(call_packed(str(fset_item), *given, ty_args=_ANY), _ANY)

    only = func.params[0] if len(func.params) == 1 else None
    if only is not None and isinstance(only.ty, ir.TupleType):
        kept = [
            RelaxVar(f"{only.name_hint}_{i}", t) for i, t in enumerate(only.ty.fields) if isinstance(t, ir.ShapeType)
        ]
        lazy.bundle = only
    else:
        kept = [p for p in func.params if isinstance(p.ty, ir.ShapeType)]
        lazy.weights = {p: i for i, p in enumerate(func.params) if p not in kept}
    lazy.fetch = fetch
    if fset_item is not None:
        lazy.hand_over, lazy.drops, lazy.late = hand_over, True, True
    return lazy.function((*extra_get_item_params, *extra_set_item_params, *kept), is_pure=False)


@ir.function_pass(kind=ir.Function, name="LazyGetInput")
def lazy_get_input(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Let functions with a symbol take weights from a function ``fget_param(number, name)`` when they are needed.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; parameters from ``num_input`` on, or all, are one function, which is counted there.
    Before::

        @R.function
        def main(A: R.Tensor((2,), "float32")):
            B = R.exp(A)
            return B

    After::

        @R.function
        def main(fget_param: R.Callable((R.Prim("int64"), R.Object), R.Object)) -> R.Tensor((2,), "float32"):
            R.func_attr({"num_input": 1})
            A: R.Object = fget_param(R.prim_value(0), R.str("A"))
            A1: R.Tensor((2,), "float32") = R.match_cast(A, R.Tensor((2,), "float32"))
            B: R.Tensor((2,), "float32") = R.exp(A1)
            return B
    Cost: Linear.
    Source: TVM's ``LazyGetInput``.
    """
    if func.attrs.get("global_symbol") is None or not isinstance(func.body, SeqExpr):
        return func
    count = int(func.attrs.get("num_input") or 0)
    getter = RelaxVar("fget_param", ir.FuncType((ir.PrimType("int64"), _ANY), _ANY, True))
    lazy = _Lazy(func)
    lazy.weights = {p: i for i, p in enumerate(func.params[count:])}

    def fetch(place: int, param: ir.ExprVar) -> ir.Call:
        return ir.Call(getter, (ir.prim_value(place), ir.ExprStringImm(param.name_hint, ty=_ANY)), ty=_ANY)

    lazy.fetch = fetch
    return lazy.function((*func.params[:count], getter), num_input=count + 1)


@ir.function_pass(kind=ir.Function, name="LazySetOutput")
def lazy_set_output(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Let functions with a symbol give each of their results to a function ``fset_output(number, value)``.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; the functions return the empty tuple and are impure. The new parameter is the last,
        or the last before weights where ``num_input`` counts it.
    Before::

        @R.function
        def main(A: R.Tensor((2,), "float32")):
            B = R.exp(A)
            return B

    After::

        @R.function(pure=False)
        def main(
            A: R.Tensor((2,), "float32"),
            fset_output: R.Callable((R.Prim("int64"), R.Object), R.Tuple(), purity=False),
        ) -> R.Tuple():
            B: R.Tensor((2,), "float32") = R.exp(A)
            _: R.Tuple() = fset_output(R.prim_value(0), B)
            return R.tuple()
    Cost: Linear.
    Source: TVM's ``LazySetOutput``.
    """
    if func.attrs.get("global_symbol") is None or not isinstance(func.body, SeqExpr):
        return func
    count = func.attrs.get("num_input")
    at = len(func.params) if count is None else int(count)  # type: ignore[arg-type]
    setter = RelaxVar("fset_output", ir.FuncType((ir.PrimType("int64"), _ANY), _NOTHING, False))
    lazy = _Lazy(func)
    lazy.hand_over = lambda place, value: ir.Call(setter, (ir.prim_value(place), value), ty=_NOTHING)
    params = (*func.params[:at], setter, *func.params[at:])
    return lazy.function(params, is_pure=False, num_input=None if count is None else at + 1)


class _Lazy:
    """A function's statements, written anew; ``fetch`` and ``hand_over`` make the calls, where they are to be made."""

    def __init__(self, func: ir.Function) -> None:
        self.func = func
        seq: Any = func.body
        self.bindings = [b for block in seq.blocks for b in block.bindings]
        values = {b.var: b.value for b in self.bindings}
        self.result = values.get(seq.body, seq.body)
        self.fields = self.result.fields if isinstance(self.result, ir.Tuple) else (seq.body,)
        self.bundle: Any = None
        self.weights: dict[ir.ExprVar, int] = {}
        self.fetch: Callable[[int, Any], ir.Call] | None = None
        self.hand_over: Callable[[int, ir.Expr], ir.Call] | None = None
        self.drops = self.late = False  # weights end behind their last use; results go when nothing uses them any more
        self.out: list[Any] = []
        self.renamed: dict[ir.Expr, ir.Expr] = {}
        self.loaded: set[ir.Expr] = set()  # the weights that were fetched

    def function(self, params: Sequence[ir.ExprVar], is_pure: bool | None = None, num_input: int | None = None) -> Any:
        """Return the function with other parameters; the very same where it fetches and hands over already."""
        func, seq = self.func, self.func.body
        if not (self.weights or self.bundle or (self.hand_over and self.fields)):
            return func
        places: dict[ir.Expr, list[int]] = {}
        for i, f in enumerate(self.fields if self.hand_over is not None else ()):
            places.setdefault(f, []).append(i)
        last = self.last_uses() if self.late else {}
        for p in func.params:
            self.hand_over_all(places, p)
        for b in self.bindings:
            if b.value is self.result and self.hand_over is not None and isinstance(self.result, ir.Tuple):
                continue
            taken = self.binding(b)
            for v in last.get(b, () if self.late else (b.var,)):
                self.hand_over_all(places, v)
                if self.drops and v in taken:
                    self.add(kill_object(self.renamed[v]), _NOTHING)
        tail, ty = rename_vars(self.needed(seq.body), self.renamed), seq.body.ty  # type: ignore[attr-defined]
        if self.hand_over is not None:
            tail, ty = self.empty(places), _NOTHING
        attrs = func.attrs.without("relax.force_pure") if self.drops or self.bundle else func.attrs
        if num_input is not None:
            attrs = attrs.with_(num_input=num_input)
        body = SeqExpr((BindingBlock(tuple(self.out)),) if self.out else (), tail, ty=ty)
        pure = func.is_pure if is_pure is None else is_pure
        new = func.replace(
            params=tuple(params),
            body=body,
            is_pure=pure,
            attrs=attrs,
            ret_ty=_NOTHING if self.hand_over is not None else type_outside(params, body),
        )
        return new.replace(ty=function_type(new))

    def empty(self, places: dict[ir.Expr, list[int]]) -> ir.Expr:
        """Hand over what no statement made, and return the empty tuple, under the name of the result if it has one."""
        nothing = ir.Tuple((), ty=_NOTHING)
        var = self.func.body.body  # type: ignore[attr-defined]
        named = self.late and isinstance(var, ir.ExprVar) and isinstance(self.result, ir.Tuple)
        if named:
            self.out.append(VarBinding(var := RelaxVar(var.name_hint, _NOTHING), nothing))
        for f in list(places):
            self.hand_over_all(places, f)
        return var if named else nothing

    def last_uses(self) -> dict[Any, list[ir.Expr]]:
        """List for each statement the variables that are used there, or made, and nowhere behind it."""
        last: dict[ir.Expr, Any] = {}
        order: dict[ir.Expr, int] = {}
        for b in self.bindings:
            if b.value is not self.result or not isinstance(self.result, ir.Tuple):
                for v in (*variables(b.value), b.var):
                    last[v] = b
                    order.pop(v, None)
                    order[v] = len(order)
        found: dict[Any, list[ir.Expr]] = {}
        for v in order:
            found.setdefault(last[v], []).append(v)
        return found

    def binding(self, b: Binding) -> set[ir.Expr]:
        """Write a statement, behind those that fetch what it needs; return what was fetched so far."""
        value: Any = b.value
        if self.bundle is not None and isinstance(value, ir.TupleGetItem) and value.tuple_value is self.bundle:
            self.renamed[value] = item = self.fetched(value.index, b.var)
            value = item
            self.loaded.add(b.var)
        else:
            value = rename_vars(self.needed(value), self.renamed)
        var: Any = RelaxVar(b.var.name_hint, b.var.ty, span=b.var.span)
        self.out.append(replace_value(b, value, var))
        self.renamed[b.var] = var
        return self.loaded

    def needed(self, value: ir.Expr) -> ir.Expr:
        """Fetch the weights that a value names and that are not there yet."""
        for v in variables(value) if self.fetch is not None else ():
            if v in self.weights and v not in self.renamed:
                self.renamed[v] = self.fetched(self.weights[v], v)
                self.loaded.add(v)
        return value

    def fetched(self, place: int, param: Any) -> Any:
        """Fetch a weight and check its type."""
        assert self.fetch is not None
        item = RelaxVar(param.name_hint, _ANY)
        self.out.append(VarBinding(item, self.fetch(place, param)))
        var = RelaxVar(param.name_hint, param.ty)
        self.out.append(MatchCast(var, item, param.ty))
        return var

    def hand_over_all(self, places: dict[ir.Expr, list[int]], value: ir.Expr) -> None:
        """Hand a result over, as often as it is one."""
        for i in places.pop(value, ()):
            assert self.hand_over is not None
            call = self.hand_over(i, self.renamed.get(value, value))
            self.add(call, call.ty)  # type: ignore[attr-defined]

    def add(self, call: ir.Call, ty: ir.Type) -> None:
        """Add a call for its effect."""
        self.out.append(VarBinding(RelaxVar("_", ty), call if call.ty is not None else typed(call, ty)))  # type: ignore[attr-defined]
