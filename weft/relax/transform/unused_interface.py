"""RemoveUnusedParameters and RemoveUnusedOutputs: private functions take and return what is used."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.relax.expr import Binding, BindingBlock, SeqExpr, VarBinding
from weft.relax.expr import Var as RelaxVar
from weft.relax.infer import function_type, result_type
from weft.relax.rename import variables
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.call_sites import called_only, change_calls, with_params
from weft.relax.unused import remove_all_unused


@ir.module_pass
def remove_unused_parameters(mod: ir.IRModule) -> ir.IRModule:
    """Drop parameters of private functions that are not used, and that no symbolic size comes from.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            a = cls.helper(x, y)
            return a

        @R.function(private=True)
        def helper(p: R.Tensor((2,), "float32"), q: R.Tensor((2,), "float32")):
            a = R.exp(q)
            return a

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            a: R.Tensor((2,), "float32") = cls.helper(y)
            return a

        @R.function(private=True)
        def helper(q: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            a: R.Tensor((2,), "float32") = R.exp(q)
            return a
    Cost: Linear.
    Source: TVM's ``RemoveUnusedParameters``.
    """
    kept = {name: _needed(f) for name, f in called_only(mod).items()}
    kept = {name: k for name, k in kept.items() if len(k) < len(mod[name].params)}  # type: ignore[attr-defined]
    new: dict[str, Any] = {}
    for name, places in kept.items():
        func: Any = mod[name]
        new[name] = with_params(func, tuple(func.params[i] for i in places))
    return change_calls(
        mod,
        new,
        lambda name, c: ir.Call(c.op, tuple(c.args[i] for i in kept[name]), c.attrs, c.ty_args, span=c.span, ty=c.ty),
    )


def _needed(func: ir.Function) -> list[int]:
    """Number the parameters that a function cannot do without."""
    used = set(variables(func.body))
    kept = {i for i, p in enumerate(func.params) if p in used}
    inside = {n for root in (func.body, func.ret_ty) if root is not None for n in ir.find(root, ir.Var)}
    inside |= {n for i in kept for n in ir.find(func.params[i].ty, ir.Var)}
    known = {s for i in kept for s in _introduced(func.params[i].ty)}
    for i, p in enumerate(func.params):
        if i not in kept and (_introduced(p.ty) & inside) - known:
            kept.add(i)
            known |= _introduced(p.ty)
    return sorted(kept)


def _introduced(ty: ir.Type | None) -> set[ir.Var]:
    """Collect the symbolic variables that a parameter of a type gives a value."""
    if isinstance(ty, ir.TupleType):
        return {s for f in ty.fields for s in _introduced(f)}
    dims: Any = ty.shape if isinstance(ty, ir.TensorType) else ty.values if isinstance(ty, ir.ShapeType) else ()
    if isinstance(ty, ir.PrimType):
        dims = (ty.value,)
    return {d for d in dims or () if isinstance(d, ir.Var)}


@ir.module_pass
def remove_unused_outputs(mod: ir.IRModule) -> ir.IRModule:
    """Drop elements of the tuples that private functions return, where no caller takes them.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; a function of which one element is left returns it without a tuple.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            t = cls.helper(x)
            a = t[1]
            return a

        @R.function(private=True)
        def helper(p: R.Tensor((2,), "float32")):
            a = R.exp(p)
            b = R.sin(p)
            return (a, b)

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            t: R.Tensor((2,), "float32") = cls.helper(x)
            return t

        @R.function(private=True)
        def helper(p: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            b: R.Tensor((2,), "float32") = R.sin(p)
            return b
    Cost: Linear.
    Source: TVM's ``RemoveUnusedOutputs``.
    """
    functions = {n: f for n, f in called_only(mod).items() if isinstance(f.ret_ty, ir.TupleType)}
    taken: dict[str, set[int]] = {n: set() for n in functions}
    for _, f in mod.items():
        if isinstance(f, ir.Function):
            _collect(f, taken)
    kept = {n: sorted(t) for n, t in taken.items() if t and len(t) < len(functions[n].ret_ty.fields)}  # type: ignore[union-attr]
    if not kept:
        return mod
    new: dict[str, Any] = {n: remove_all_unused(_returning(functions[n], k), mod) for n, k in kept.items()}
    out = mod.with_functions({v: new.get(v.name_hint, f) for v, f in mod.items()})
    return out.with_functions(
        {v: _take_again(f, out, kept) if isinstance(f, ir.Function) else f for v, f in out.items()}
    )


def _callee(value: ir.Expr) -> str | None:
    return value.op.name_hint if isinstance(value, ir.Call) and isinstance(value.op, ir.GlobalVar) else None


def _collect(func: ir.Function, taken: dict[str, set[int]]) -> None:
    """Note which elements of results a caller takes; all where a result is used as a whole."""
    source = {b.var: name for b in all_bindings(func) if (name := _callee(b.value)) in taken}
    whole: list[Any] = [func.body.body] if isinstance(func.body, SeqExpr) else [func.body]
    for b in all_bindings(func):
        for seq in (getattr(b.value, f, None) for f in ("true_branch", "false_branch", "body")):
            whole += [seq.body] if isinstance(seq, SeqExpr) else []
        if isinstance(b.value, ir.TupleGetItem) and b.value.tuple_value in source:
            taken[source[b.value.tuple_value]].add(b.value.index)
        elif not hasattr(b.value, "body") and not hasattr(b.value, "true_branch"):
            whole.append(b.value)
        else:
            whole.append(getattr(b.value, "cond", None))
    for v in (v for e in whole if e is not None for v in variables(e)):
        if v in source:
            taken[source[v]] |= set(range(len(v.ty.fields)))  # type: ignore[union-attr]


def _returning(func: ir.Function, kept: list[int]) -> ir.Function:
    """Return a function with some elements of its result."""
    seq: Any = func.body
    result, blocks = seq.body, seq.blocks
    if isinstance(result, ir.Tuple):
        items: list[Any] = [result.fields[i] for i in kept]
    else:
        items = [RelaxVar(f"{result.name_hint}_{i}", result.ty.fields[i]) for i in kept]
        taken = [VarBinding(v, ir.TupleGetItem(result, i, ty=v.ty)) for v, i in zip(items, kept, strict=True)]
        blocks = (*blocks, BindingBlock(tuple(taken)))
    types: Any = tuple(result_type(func.ret_ty.fields[i], e.ty) for i, e in zip(kept, items, strict=True))  # type: ignore[union-attr]
    ty = types[0] if len(kept) == 1 else ir.TupleType(types)
    body = SeqExpr(blocks, items[0] if len(kept) == 1 else ir.Tuple(tuple(items), ty=ty), span=seq.span, ty=ty)
    new = func.replace(body=body, ret_ty=ty)
    return new.replace(ty=function_type(new))


def _take_again(func: ir.Function, mod: ir.IRModule, kept: dict[str, list[int]]) -> ir.Function:
    source: dict[ir.Expr, str] = {}

    def rule(binding: Binding, value: Any, bb: Any) -> Any:
        name = _callee(value)
        if name in kept:
            source[binding.var] = name
            return ir.Call(value.op, value.args, value.attrs, value.ty_args, span=value.span)
        before = binding.value
        if isinstance(before, ir.TupleGetItem) and isinstance(before.tuple_value, ir.ExprVar):
            places = kept.get(source.get(before.tuple_value, ""))
            if places is not None and len(places) == 1:
                return value.tuple_value
            if places is not None:
                return ir.TupleGetItem(value.tuple_value, places.index(value.index))
        return None

    new = rewrite_bindings(func, mod, rule)
    if new is func or not isinstance(new.body, SeqExpr):
        return new
    new = new.replace(ret_ty=result_type(func.ret_ty, new.body.ty))
    return new.replace(ty=function_type(new))
