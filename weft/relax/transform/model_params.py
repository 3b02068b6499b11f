"""Weights apart from inputs: bundled in a tuple, prepared by a function of their own, or taken one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relax.analysis.types import definable_tir_vars_in_type
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, Function, MatchCast, SeqExpr, VarBinding
from weft.relax.expr import Var as RelaxVar
from weft.relax.infer import function_type, unify_dims
from weft.relax.rename import rename_vars, variables
from weft.relax.rewriter import replace_value


def _typed(func: ir.Function) -> ir.Function:
    return func.replace(ty=function_type(func))


def _weights(func: ir.Function) -> int | None:
    """Return how many parameters come before the weights."""
    count: Any = func.attrs.get("num_input")
    return None if count is None else int(count)


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
def lift_transform_params(mod: ir.IRModule, shared_transform: bool | Sequence[str] = False) -> ir.IRModule:
    """Move what can be computed from the weights alone into a function of its own, to be run once.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. For each function ``f`` with ``num_input`` there is ``f_transform_params``, which
        takes the tuple of weights and returns the tuple of what ``f`` takes after its inputs: a shape of the sizes
        that nothing else gives any more, if there are any, then tensors. What follows from
        ``builtin.stop_lift_params`` stays in ``f``.
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
        ``shared_transform``: all functions with weights, or those of a list of names, share one ``transform_params``,
        which computes what all of them compute. They take the same weights.
    Cost: Linear.
    Source: TVM's ``LiftTransformParams``.
    """
    found = {
        v: f
        for v, f in mod.items()
        if isinstance(f, ir.Function) and _weights(f) and isinstance(f.body, SeqExpr) and f.attrs.get("global_symbol")
    }
    groups = [[v] for v in found]
    if shared_transform:
        names = {v.name_hint for v in found} if shared_transform is True else set(shared_transform)
        if missing := names - {v.name_hint for v in found}:
            raise InvalidArgument("the module has no such function with weights", found=", ".join(sorted(missing)))
        groups = [sorted((v for v in found if v.name_hint in names), key=lambda v: v.name_hint)]
    left: dict[Any, ir.Function] = {}
    transforms: dict[Any, tuple[str, ir.Function]] = {}
    for group in (g for g in groups if g):
        name = "transform_params" if shared_transform else f"{group[0].name_hint}_transform_params"
        if name not in mod:
            functions = [found[v] for v in group]
            new, transform = _lift(functions, _common(functions, mod), name)
            left.update(zip(group, new, strict=True))
            transforms[group[0]] = (name, transform)
    out: dict[Any, Any] = {}
    for v, f in mod.items():
        out[v.name_hint if v in left else v] = left.get(v, f)
        out.update([transforms[v]] if v in transforms else [])
    return mod.with_functions(out)


def _common(functions: list[Any], mod: ir.IRModule) -> list[list[Any]]:
    """List the bindings that follow from weights alone in all functions, each as every function has it."""
    first, *others = functions
    rows = [[b] for b in _lifted(first, mod)]
    for func in others:
        same, sizes = _same_weights(first, func)
        known = {_key(row[0].value): row for row in rows}
        for b in _lifted(func, mod):
            row = known.pop(_key(ir.substitute(rename_vars(b.value, same), sizes)), None)
            if row is not None:
                same[b.var] = row[0].var
                row.append(b)
    kept, out = set(first.params), []
    for row in rows:
        if len(row) == len(functions) and kept.issuperset(variables(row[0].value)):
            kept.add(row[0].var)
            out.append(row)
    return out


def _key(value: ir.Expr) -> Any:
    """What two values share exactly when they are equal and of the same variables."""
    return ir.fingerprint(value), *ir.find(value, ir.ExprVar, ir.Var)


def _same_weights(first: Any, func: Function) -> tuple[dict[ir.Expr, ir.Expr], dict[Any, Any]]:
    """Map the weights of a function, and the sizes in their types, to those of another."""
    wanted, found = (f.params[_weights(f) :] for f in (first, func))
    sizes: dict[Any, Any] = {}
    for p, q in zip(wanted, found, strict=False):
        if isinstance(p.ty, ir.TensorType) and isinstance(q.ty, ir.TensorType) and p.ty.dtype == q.ty.dtype:
            unify_dims(q.ty.shape or (), p.ty.shape or (), sizes)
    types = ([str(ir.substitute(p.ty, sizes)) for p in params] for params in (wanted, found))
    expected, got = (", ".join(texts) for texts in types)
    if expected != got:
        raise InvalidArgument("functions that share a transform take the same weights", expected=expected, found=got)
    return dict(zip(found, wanted, strict=True)), sizes


def _lifted(func: Any, mod: ir.IRModule) -> list[Any]:
    """List the bindings that follow from weights alone."""
    weights = func.params[_weights(func) :]
    known = set(weights)
    sizes = {n for p in weights for n in ir.find(p.ty, ir.Var)}
    out: list[Any] = []
    mutable = mutable_variables(func, mod)
    for b in (b for block in func.body.blocks for b in block.bindings):
        value = b.value
        pure = isinstance(value, (ir.Call, ir.Tuple, ir.TupleGetItem, ir.Constant)) and is_mergeable(
            value, b.var, mutable, mod
        )
        inside = all(v in known for v in variables(value))
        if isinstance(b, MatchCast) or not pure or not inside or _stops(value):
            continue
        if all(n in sizes for root in (value, b.var.ty) for n in ir.walk(root) if isinstance(n, ir.Var)):
            known.add(b.var)
            out.append(b)
    return out


def _stops(value: ir.Expr) -> bool:
    return isinstance(value, ir.Call) and getattr(value.op, "name", "") == "relax.builtin.stop_lift_params"


def _lift(functions: list[Any], rows: list[list[Any]], name: str) -> tuple[list[ir.Function], ir.Function]:
    """Return what is left of the functions, and the function that prepares their weights."""
    weights = [f.params[_weights(f) :] for f in functions]
    known = [[*w, *(row[i].var for row in rows)] for i, w in enumerate(weights)]
    rests = [
        _rest(f.body, w, [row[i] for row in rows]) for i, (f, w) in enumerate(zip(functions, weights, strict=True))
    ]
    uses = [set(variables(rest)) for rest in rests]
    kept = [{b.var for block in rest.blocks for b in block.bindings} for rest in rests]
    needed = [used - own for used, own in zip(uses, kept, strict=True)]
    places = [n for n in range(len(known[0])) if any(own[n] in used for own, used in zip(known, needed, strict=True))]
    kept_params = [[own[n] for n in places] for own in known]
    sizes = [definable_tir_vars_in_type(ir.TupleType(tuple(p.ty for p in w))) for w in weights]
    missing = list(map(_missing, functions, rests, kept_params, sizes))
    extra = [i for i in range(len(sizes[0])) if any(i in own for own in missing)]
    left: list[ir.Function] = []
    for f, own, rest, own_sizes in zip(functions, known, rests, sizes, strict=True):
        shape = RelaxVar("extra_symbolic_vars", ir.ShapeType(tuple(own_sizes[i] for i in extra)))
        renamed: dict[ir.Expr, ir.Expr] = {
            own[n]: RelaxVar(own[n].name_hint, own[n].ty, span=own[n].span) for n in places
        }
        params = (*f.params[: _weights(f)], *([shape] if extra else []), *renamed.values())
        left.append(_typed(f.replace(params=params, body=rename_vars(rest, renamed))))

    bundle = RelaxVar("model_params", ir.TupleType(tuple(p.ty for p in weights[0])))
    bindings: list[Any] = []
    names: dict[ir.Expr, Any] = {}

    def take(used: Iterable[Any]) -> None:
        for v in used:
            if v in weights[0] and v not in names:
                names[v] = DataflowVar(v.name_hint, v.ty, span=v.span)
                bindings.append(VarBinding(names[v], ir.TupleGetItem(bundle, weights[0].index(v), ty=v.ty)))

    for b in (row[0] for row in rows):
        take(reversed(variables(b.value)))
        var = DataflowVar(b.var.name_hint, b.var.ty, span=b.var.span)
        bindings.append(replace_value(b, rename_vars(b.value, names), var))
        names[b.var] = var
    outputs = [known[0][n] for n in places]
    take(outputs)
    attrs = ir.Attrs.of({"num_input": 0, "global_symbol": name})
    if outputs == list(weights[0]):  # there is nothing to prepare
        whole: Any = bundle if outputs else ir.Tuple((), ty=bundle.ty)
        return functions, _apart(ir.Function((bundle,), SeqExpr((), whole, ty=bundle.ty), bundle.ty, True, attrs))
    given: list[Any] = [ir.ShapeExpr(tuple(sizes[0][i] for i in extra))] if extra else []
    fields = (*given, *(names[v] for v in outputs))
    result = RelaxVar("output_tuple", ir.TupleType(tuple(f.ty for f in fields)))
    bindings.append(VarBinding(result, ir.Tuple(fields, ty=result.ty)))
    body = SeqExpr((DataflowBlock(tuple(bindings)),), result, ty=result.ty)
    return left, _apart(ir.Function((bundle,), body, result.ty, True, attrs))


def _missing(func: Any, rest: SeqExpr, kept: Sequence[Any], sizes: Sequence[Any]) -> set[int]:
    """Return the numbers of the sizes of weights that the rest of a function uses and that no parameter gives."""
    params = (*func.params[: _weights(func)], *kept)
    given = {n for p in params for n in definable_tir_vars_in_type(p.ty)}
    used = set(ir.find((rest, *(p.ty for p in kept)), ir.Var)) - given
    return {i for i, n in enumerate(sizes) if n in used}


def _apart(func: ir.Function) -> ir.Function:
    """Give a function that was made of another's parts symbolic sizes of its own."""
    return _typed(ir.substitute(func, {n: type(n)(n.name, n.dtype) for n in ir.find(func, ir.Var)}))


def _rest(body: Any, weights: Any, lifted: list[Any]) -> SeqExpr:
    """What stays of a body, where nothing is left to stop: also what depends on no weight and is used there."""
    made: set[Any] = set(weights)
    for b in lifted:
        made.update([b.var] if made.intersection(variables(b.value)) else [])
    gone = set(lifted)
    needed = {v for block in body.blocks for b in block.bindings if b not in gone for v in variables(b.value)}
    needed.update(variables(body.body))
    for b in reversed(lifted):
        if b.var in needed - made:
            gone.remove(b)
            needed.update(variables(b.value))
    stopped = {b.var: b.value.args[0] for block in body.blocks for b in block.bindings if _stops(b.value)}
    blocks = [
        type(block)(tuple(b for b in block.bindings if b not in gone and b.var not in stopped), span=block.span)
        for block in body.blocks
    ]
    return rename_vars(SeqExpr(tuple(b for b in blocks if b.bindings), body.body, span=body.span, ty=body.ty), stopped)
