"""Weights apart from inputs: bundled in a tuple, prepared by a function of their own, or taken one by one."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding
from weft.relax.expr import Var as RelaxVar
from weft.relax.infer import function_type
from weft.relax.rename import rename_vars, variables
from weft.relax.rewriter import replace_value


def _typed(func: ir.Function) -> ir.Function:
    return func.replace(ty=function_type(func))


def _weights(func: ir.Function) -> int | None:
    """Return how many parameters come before the weights."""
    count: Any = func.attrs.get("num_input")
    return None if count is None else int(count)


def _items(bundle: Any, weights: tuple[Any, ...], used: set[ir.ExprVar]) -> tuple[list[Any], dict[ir.Expr, ir.Expr]]:
    """Bind the weights that are used to elements of a tuple."""
    bindings: list[Any] = []
    renamed: dict[ir.Expr, ir.Expr] = {}
    for i, p in enumerate(weights):
        if p in used:
            renamed[p] = var = DataflowVar(p.name_hint, p.ty, span=p.span)
            bindings.append(VarBinding(var, ir.TupleGetItem(bundle, i, ty=p.ty)))
    return bindings, renamed


@ir.function_pass(kind=ir.Function)
def bundle_model_params(func: ir.Function, mod: ir.IRModule, param_tuple_name: str | None = None) -> ir.Function:
    """Replace the weights, which are the parameters from ``num_input`` on, by one tuple.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; functions without ``num_input`` stay.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.add(x, w)
                R.output(y)
            return y

    After::

        @R.function
        def main(
            x: R.Tensor((2,), "float32"), model_params: R.Tuple(R.Tensor((2,), "float32"))
        ) -> R.Tensor((2,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                w: R.Tensor((2,), "float32") = model_params[0]
                y: R.Tensor((2,), "float32") = R.add(x, w)
                R.output(y)
            return y

    Options:
        ``param_tuple_name``: the name of the tuple.
    Cost: Linear.
    Source: TVM's ``BundleModelParams``.
    """
    count = _weights(func)
    weights = () if count is None else func.params[count:]
    bundled = len(weights) == 1 and isinstance(weights[0].ty, ir.TupleType)
    if count is None or bundled or not isinstance(func.body, SeqExpr):
        return func
    types: Any = tuple(p.ty for p in weights)
    bundle = RelaxVar(param_tuple_name or "model_params", ir.TupleType(types))
    body = func.body
    for i, p in enumerate(weights):
        body = _taken(body, p, ir.TupleGetItem(bundle, i, ty=p.ty))
    return _typed(func.replace(params=(*func.params[:count], bundle), body=body))


def _taken(seq: SeqExpr, weight: Any, element: ir.Expr) -> SeqExpr:
    """Bind a weight to an element right before its first use, if it has one."""
    users = [(n, i) for n, b in enumerate(seq.blocks) for i, x in enumerate(b.bindings) if weight in variables(x.value)]
    alone = weight not in variables(seq.body)
    if not users and alone:
        return seq
    n, i = users[0] if users else (len(seq.blocks), 0)
    blocks = [*seq.blocks, BindingBlock(())] if n == len(seq.blocks) else list(seq.blocks)
    local = alone and isinstance(blocks[n], DataflowBlock) and all(m == n for m, _ in users)
    var = (DataflowVar if local else RelaxVar)(weight.name_hint, weight.ty, span=weight.span)
    seq = rename_vars(SeqExpr(tuple(blocks), seq.body, span=seq.span, ty=seq.ty), {weight: var})
    block = seq.blocks[n]
    bindings = (*block.bindings[:i], VarBinding(var, element), *block.bindings[i:])
    new = (*seq.blocks[:n], type(block)(bindings, span=block.span), *seq.blocks[n + 1 :])
    return SeqExpr(new, seq.body, span=seq.span, ty=seq.ty)


@ir.module_pass
def lift_transform_params(mod: ir.IRModule, shared_transform: bool = False) -> ir.IRModule:
    """Move what can be computed from the weights alone into a function of its own, to be run once.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. For each function ``f`` with ``num_input`` there is ``f_transform_params``, which
        takes the tuple of weights and returns the tuple of what ``f`` takes after its inputs.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                v = R.exp(w)
                y = R.add(x, v)
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32"), v: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y: R.Tensor((2,), "float32") = R.add(x, v)
                R.output(y)
            return y

        @R.function
        def main_transform_params(
            model_params: R.Tuple(R.Tensor((2,), "float32"))
        ) -> R.Tuple(R.Tensor((2,), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w: R.Tensor((2,), "float32") = model_params[0]
                v: R.Tensor((2,), "float32") = R.exp(w)
                output_tuple: R.Tuple(R.Tensor((2,), "float32")) = (v,)
                R.output(output_tuple)
            return output_tuple

    Options:
        ``shared_transform``: the function is named ``transform_params``; the module then has one to lift from.
    Cost: Linear.
    Source: TVM's ``LiftTransformParams``.
    """
    found = {
        v: f for v, f in mod.items()
        if isinstance(f, ir.Function) and _weights(f) and isinstance(f.body, SeqExpr) and f.attrs.get("global_symbol")
    }  # fmt: skip
    if shared_transform and len(found) > 1:
        raise InvalidArgument("several functions have weights, so none can share its transform",
                              found=", ".join(v.name_hint for v in found))  # fmt: skip
    out: dict[Any, Any] = {}
    for v, f in mod.items():
        name = "transform_params" if shared_transform else f"{v.name_hint}_transform_params"
        lifted = _lifted(f, mod) if v in found and name not in mod else None
        out[v if lifted is None else v.name_hint] = f
        if lifted is not None:
            out[v.name_hint], out[name] = _lift(f, lifted, name)
    return mod.with_functions(out)


def _lifted(func: Any, mod: ir.IRModule) -> list[Any] | None:
    """List the bindings that follow from weights alone; None where there are none."""
    weights = func.params[_weights(func) :]
    known = set(weights)
    sizes = {n for p in weights for n in ir.walk(p.ty) if isinstance(n, ir.Var)}
    out: list[Any] = []
    mutable = mutable_variables(func, mod)
    for b in (b for block in func.body.blocks for b in block.bindings):
        value = b.value
        pure = isinstance(value, (ir.Call, ir.Tuple, ir.TupleGetItem, ir.Constant)) and is_mergeable(
            value, b.var, mutable, mod
        )
        inside = all(v in known for v in variables(value))
        if isinstance(b, MatchCast) or not pure or not inside:
            continue
        if all(n in sizes for root in (value, b.var.ty) for n in ir.walk(root) if isinstance(n, ir.Var)):
            known.add(b.var)
            out.append(b)
    return out or None


def _lift(func: Any, lifted: list[Any], name: str) -> tuple[ir.Function, ir.Function]:
    """Return what is left of a function, and the function that prepares its weights."""
    count = _weights(func) or 0
    weights = func.params[count:]
    gone = set(lifted)
    blocks = [
        type(block)(tuple(b for b in block.bindings if b not in gone), span=block.span) for block in func.body.blocks
    ]
    rest = SeqExpr(tuple(b for b in blocks if b.bindings), func.body.body, span=func.body.span, ty=func.body.ty)
    used = set(variables(rest))
    outputs = [v for v in (*weights, *(b.var for b in lifted)) if v in used]
    params = [RelaxVar(v.name_hint, v.ty, span=v.span) for v in outputs]
    renamed: dict[ir.Expr, ir.Expr] = dict(zip(outputs, params, strict=True))
    left = func.replace(params=(*func.params[:count], *params), body=rename_vars(rest, renamed))

    bundle = RelaxVar("model_params", ir.TupleType(tuple(p.ty for p in weights)))
    inside = {v for b in lifted for v in variables(b.value)} | set(outputs)
    bindings, names = _items(bundle, weights, inside)
    for b in lifted:
        var = DataflowVar(b.var.name_hint, b.var.ty, span=b.var.span)
        bindings.append(replace_value(b, rename_vars(b.value, names), var))
        names[b.var] = var
    fields = tuple(names[v] for v in outputs)
    result = RelaxVar("output_tuple", ir.TupleType(tuple(f.ty for f in fields)))  # type: ignore[attr-defined]
    bindings.append(VarBinding(result, ir.Tuple(fields, ty=result.ty)))
    body = SeqExpr((DataflowBlock(tuple(bindings)),), result, ty=result.ty)
    transform = ir.Function((bundle,), body, result.ty, True, ir.Attrs.of({"num_input": 0, "global_symbol": name}))
    return _typed(left), _typed(transform)
