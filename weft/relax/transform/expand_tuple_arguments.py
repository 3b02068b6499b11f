"""ExpandTupleArguments: private functions take the elements of tuples as parameters."""

from typing import Any

from weft.ir import Call, Expr, Function, IRModule, Tuple, TupleGetItem, TupleType, Type, module_pass
from weft.relax.expr import BindingBlock, SeqExpr, Var, VarBinding
from weft.relax.transform.call_sites import called_only, change_calls, with_params
from weft.relax.transform.canonicalize import canonicalize_bindings
from weft.relax.transform.cse import dead_code_elimination


@module_pass
def expand_tuple_arguments(mod: IRModule) -> IRModule:
    """Replace parameters of private functions that are tuples by one parameter for each element, nested ones too.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; no private function that is only called takes a tuple.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            a = cls.helper((x, y))
            return a

        @R.function(private=True)
        def helper(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))):
            a = t[1]
            return a

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            a: R.Tensor((2,), "float32") = cls.helper(x, y)
            return a

        @R.function(private=True)
        def helper(t_0: R.Tensor((2,), "float32"), t_1: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return t_1
    Cost: Linear.
    Source: TVM's ``ExpandTupleArguments``.
    """
    functions = {name: f for name, f in called_only(mod).items() if any(isinstance(p.ty, TupleType) for p in f.params)}

    def call(name: str, old: Call) -> Expr:
        args = [leaf for p, a in zip(functions[name].params, old.args, strict=True) for leaf in _leaves(a, p.ty)]
        return Call(old.op, tuple(args), old.attrs, old.ty_args, span=old.span, ty=old.ty)

    made = change_calls(mod, {name: _expanded(f) for name, f in functions.items()}, call)
    return mod if made is mod else dead_code_elimination()(canonicalize_bindings()(made))


def _expanded(func: Function) -> Function:
    params: list[Any] = []
    made: list[Any] = []
    for p in func.params:
        if isinstance(p.ty, TupleType):
            made.append(VarBinding(p, _value(p.name_hint, p.ty, params), span=p.span))
        else:
            params.append(p)
    seq: Any = func.body
    blocks = list(seq.blocks)
    if blocks and type(blocks[0]) is BindingBlock:
        made += blocks.pop(0).bindings
    body = SeqExpr((BindingBlock(tuple(made)), *blocks), seq.body, span=seq.span, ty=seq.ty)
    return with_params(func, tuple(params), body)


def _value(name: str, ty: Type, params: list[Any]) -> Expr:
    """Make the tuple of new parameters that an old one was."""
    if not isinstance(ty, TupleType):
        params.append(Var(name, ty))
        return params[-1]
    return Tuple(tuple(_value(f"{name}_{i}", f, params) for i, f in enumerate(ty.fields)), ty=ty)


def _leaves(arg: Expr, ty: Type | None) -> list[Expr]:
    """List what is passed for the elements of an argument."""
    if not isinstance(ty, TupleType):
        return [arg]
    parts = arg.fields if isinstance(arg, Tuple) else [TupleGetItem(arg, i) for i in range(len(ty.fields))]
    return [leaf for part, f in zip(parts, ty.fields, strict=True) for leaf in _leaves(part, f)]
