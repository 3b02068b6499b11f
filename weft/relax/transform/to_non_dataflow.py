"""ToNonDataflow and RemovePurityChecking: from here on, order matters and blocks are plain."""

from collections.abc import Callable
from typing import Any

from weft.ir import Call, Expr, ExternFunc, Function, If, IRModule, Op, Tuple, function_pass, with_fields
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding, BindingBlock, DataflowVar, SeqExpr, Var
from weft.relax.rename import rename_vars, replace_value, with_sequences

_PURE_PACKED = ("relax.call_pure_packed", "relax.call_inplace_packed")
_CHECKED = "relax.force_pure"


@function_pass(kind=Function, opt_level=0)
def to_non_dataflow(func: Function, mod: IRModule) -> Function:
    """Turn dataflow blocks and variables into plain ones, one block a sequence.

    Requires: ``relax.legalized``.
    Ensures: No DataflowBlock, no DataflowVar.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.call_dps_packed("my.exp", (x,), R.Tensor((2, 3), "float32"))
                b = R.call_dps_packed("my.exp", (a,), R.Tensor((2, 3), "float32"))
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            a: R.Tensor((2, 3), "float32") = R.call_dps_packed("my.exp", (x,), out_ty=R.Tensor((2, 3), "float32"))
            b: R.Tensor((2, 3), "float32") = R.call_dps_packed("my.exp", (a,), out_ty=R.Tensor((2, 3), "float32"))
            return b
    Cost: Linear.
    Source: TVM's ``ToNonDataflow``.
    """
    return func.replace(body=_plain(func.body, {}))


def _plain(seq: Any, renamed: dict[Expr, Any]) -> Any:
    if not isinstance(seq, SeqExpr):
        return rename_vars(seq, renamed)
    bindings = [_plain_binding(b, renamed) for block in seq.blocks for b in block.bindings]
    body = rename_vars(seq.body, renamed)
    same = len(seq.blocks) <= 1 and all(type(b) is BindingBlock for b in seq.blocks)
    old = [b for block in seq.blocks for b in block.bindings]
    if same and body is seq.body and all(x is y for x, y in zip(bindings, old, strict=True)):
        return seq
    return SeqExpr((BindingBlock(tuple(bindings)),) if bindings else (), body, span=seq.span, ty=seq.ty)


def _plain_binding(b: Binding, renamed: dict[Expr, Any]) -> Any:
    value = b.value
    if isinstance(value, If):
        value = with_fields(value, cond=rename_vars(value.cond, renamed))
    if isinstance(value, (If, Function)):
        value = with_sequences(value, lambda s: _plain(s, renamed))
    else:
        value = rename_vars(value, renamed)
    var = b.var
    if isinstance(var, DataflowVar):
        var = renamed[b.var] = Var(var.name_hint, var.ty, span=var.span)
    return replace_value(b, value, var)


@function_pass(kind=Function, opt_level=0)
def remove_purity_checking(func: Function, mod: IRModule, *, keep_indices: bool = False) -> Function:
    """Unwrap ``call_pure_packed`` and mark functions as checked, since later forms are impure by nature.

    Requires: Blocks without dataflow.
    Ensures: No ``call_pure_packed``, no ``call_inplace_packed``.
    Before::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.call_pure_packed("my.exp", x, ty_args=(R.Tensor((2, 3), "float32"),))
            return y

    After::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            y: R.Tensor((2, 3), "float32") = R.call_packed("my.exp", x, ty_args=(R.Tensor((2, 3), "float32"),))
            return y

    Options:
        ``keep_indices``: whether calls that worked in place still say which arguments they overwrite.
    Cost: Linear.
    Source: TVM's ``RemovePurityChecking``.
    """

    def unwrap(value: Any) -> Any:
        if isinstance(value, Function):
            marked = not value.is_pure or value.attrs.get(_CHECKED)
            return value if marked else value.with_attr(_CHECKED, True)
        if is_op(value, "call_py_func"):
            name, args = value.args
            fields = args.fields if isinstance(args, Tuple) else (args,)
            callee = ExternFunc("vm.builtin.call_py_func")
            return Call(callee, (name, *fields), ty_args=value.ty_args, span=value.span, ty=value.ty)
        if is_op(value, "invoke_pure_closure"):
            return with_fields(value, op=Op.get("relax.invoke_closure"))
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in _PURE_PACKED:
            attrs = value.attrs if keep_indices else value.attrs.without("inplace_indices")
            return Call(value.args[0], value.args[1:], attrs, value.ty_args, span=value.span, ty=value.ty)
        return value

    return unwrap(func.replace(body=map_values(func.body, unwrap)))


def map_values(seq: Expr, fn: Callable[[Expr], Expr]) -> Any:
    """Apply ``fn`` to the value of each binding of plain blocks, inner ones first; untouched parts keep identity."""
    if not isinstance(seq, SeqExpr):
        return seq

    def mapped(value: Expr) -> Any:
        if isinstance(value, (If, Function)):
            value = with_sequences(value, lambda s: map_values(s, fn))
        return fn(value)

    blocks = (with_fields(b, bindings=tuple(replace_value(x, mapped(x.value)) for x in b.bindings)) for b in seq.blocks)
    return with_fields(seq, blocks=tuple(blocks))
