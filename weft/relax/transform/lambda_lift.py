"""LambdaLift: inner functions become functions of the module, which take what they capture as their last arguments."""

from __future__ import annotations

from typing import Any

from weft.ir import Call, Expr, ExprVar, Function, FuncType, GlobalVar, IRModule, SizeVar, module_pass, shape_expr, walk
from weft.ir import Var as ScalarVar
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import call_pure_packed, is_op
from weft.relax.expr import Binding, BindingBlock, MatchCast, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type
from weft.relax.rename import rename_vars, variables
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.vm_shape_lower import type_dims
from weft.relax.unused import remove_all_unused

_MAKE_CLOSURE = "vm.builtin.make_closure"


@module_pass(opt_level=0)
def lambda_lift(mod: IRModule) -> IRModule:
    """Turn inner functions into functions of the module: calls pass what they capture, other uses become closures.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized`` without inner functions.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            @R.function
            def inner(z: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                return R.add(z, x)

            a = inner(y)
            return a

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            a: R.Tensor((2,), "float32") = Module.main_inner(y, x)
            return a

        @R.function(private=True)
        def main_inner(z: R.Tensor((2,), "float32"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            gv: R.Tensor((2,), "float32") = R.add(z, x)
            return gv
    Cost: Linear in the size of the module for each level of nesting.
    Source: Johnsson, 1985 (lambda lifting); TVM's ``LambdaLift``.
    """
    out = mod
    for gvar, func in mod.items():
        if isinstance(func, Function) and any(isinstance(b.value, Function) for b in all_bindings(func)):
            if out is mod:
                out = mod.copy()
            out[gvar] = _lift(gvar.name_hint, func, out)
    for gvar, func in list(out.items()) if out is not mod else ():
        if isinstance(func, Function):
            out[gvar] = _call_directly(func, out)
    return out


def _call_directly(func: Function, mod: IRModule) -> Function:
    """Call functions of the module where the closures that are called are known: loops by recursion make none."""
    closures: dict[Expr, tuple[Expr, ...]] = {}

    def rule(binding: Binding, value: Expr, bb: BlockBuilder) -> Expr | None:
        if not isinstance(value, Call):
            return None
        if is_op(value, "call_pure_packed") and getattr(value.args[0], "global_symbol", "") == _MAKE_CLOSURE:
            if isinstance(value.args[1], GlobalVar):
                closures[binding.var] = value.args[1:]
            return None
        if value.op not in closures:
            return None
        target, *captured = closures[value.op]
        return Call(target, (*value.args, *captured), span=value.span, ty=value.ty)

    return remove_all_unused(rewrite_bindings(func, mod, rule), mod)


def _lift(name: str, func: Function, mod: IRModule) -> Function:
    """Move the inner functions of a function to the module, the innermost first."""

    def rule(binding: Binding, value: Expr, bb: BlockBuilder) -> Expr | None:
        if type(value) is not Function:
            return None
        symbols = _symbols_outside(func, binding.value)
        return _closure(f"{name}_{binding.var.name_hint}", binding.var, value, symbols, mod)

    return rewrite_bindings(func, mod, rule)


def _symbols_outside(func: Function, inner: Function) -> set[ScalarVar]:
    """Collect the symbolic variables that a function names outside of one of its inner functions."""
    own = set(all_bindings(inner))
    found = [p.ty for p in func.params]
    for b in all_bindings(func):
        if isinstance(b.value, Function) and b.value is not inner:
            found.extend(p.ty for p in b.value.params)
        elif b not in own and b.value is not inner:
            found.append(b.ty if isinstance(b, MatchCast) else b.var.ty)
    return {n for ty in found if ty is not None for n in walk(ty, leaf=FuncType) if isinstance(n, ScalarVar)}


def _closure(name: str, var: ExprVar, func: Function, symbols: set[ScalarVar], mod: IRModule) -> Expr:
    """Add a function to the module, and return what its variable stands for."""
    bound = set(func.params) | {b.var for b in all_bindings(func)} | {var}
    captured = list(dict.fromkeys(v for v in variables(func.body) if v not in bound))
    params = [Var(v.name_hint, v.ty, span=v.span) for v in captured]
    values: list[Expr] = [*captured]
    dims = [d for p in (*func.params, *params) for d in type_dims(p.ty)]
    known = set(dims)  # 2 * n does not say what n is; in a function's type n is that function's own
    named = (*walk(func, leaf=FuncType), *(n for d in dims for n in walk(d)))
    used = dict.fromkeys(n for n in named if isinstance(n, ScalarVar) and n not in known)
    casts = [b.ty for b in all_bindings(func) if isinstance(b, MatchCast)]
    made_inside = {n for ty in casts for n in walk(ty) if isinstance(n, ScalarVar)}
    sizes = [n for n in used if n in symbols or (isinstance(n, SizeVar) and n not in made_inside)]
    if sizes:
        values.append(shape_expr(tuple(sizes)))
        params.append(Var("sizes", values[-1].ty))  # type: ignore[attr-defined]
    names = (name, *(f"{name}_{i}" for i in range(len(mod) + 1)))
    symbol = next(n for n in names if n not in mod)
    renamed: dict[Expr, Expr] = dict(zip(captured, params, strict=False))
    again = Var(var.name_hint, var.ty, span=var.span)
    recursive = any(v is var for v in variables(func.body))
    body: Any = rename_vars(func.body, {**renamed, var: again})
    lifted = func.replace(params=(*func.params, *params), body=body)
    lifted = lifted.replace(ty=function_type(lifted))
    mod[symbol] = lifted
    target = mod.get_global_var(symbol)

    def made(items: list[Expr]) -> Expr:
        call = call_pure_packed(_MAKE_CLOSURE, target, *items, ty_args=func.ty)
        return Call(call.op, call.args, call.attrs, call.ty_args, span=func.span, ty=func.ty)

    if recursive:
        inner: list[Expr] = [renamed.get(v, v) for v in values]
        block = BindingBlock((VarBinding(again, made(inner)),))
        mod[symbol] = lifted.replace(body=SeqExpr((block, *body.blocks), body.body, span=body.span, ty=body.ty))
    return made(values)
