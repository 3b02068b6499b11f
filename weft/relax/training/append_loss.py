"""AppendLoss: a model's function and a loss become one function."""

from typing import Any

from weft import error, ir
from weft.relax.expr import DataflowBlock, DataflowVar, SeqExpr, VarBinding
from weft.relax.infer import function_type, type_of
from weft.relax.rename import copy_with_new_vars, rename_vars, variables


def AppendLoss(
    func_name: str, loss_function: ir.Function, num_backbone_outputs: int = 1, new_func_name: str | None = None
) -> ir.Pass:
    """Make the pass that adds a function of the model's inputs and the targets, which returns the loss.

    Behind the loss it returns the results of the model that the loss does not take, such as its new states. Both
    functions have one dataflow block; the loss returns a scalar.

    Parameters
    ----------
    num_backbone_outputs : int
        How many results of the model, from the first, are the first arguments of the loss.
    new_func_name : str, optional
        By default ``<func_name>_loss``.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Add the function."""
        model = mod[func_name] if func_name in mod else None
        if not isinstance(model, ir.Function):
            raise error.InvalidArgument(f"the module has no Relax function '{func_name}'")
        out = mod.copy()
        name = new_func_name or f"{func_name}_loss"
        out[name] = _joined(model, loss_function, num_backbone_outputs).with_attr("global_symbol", name)
        return out

    return ir.Pass("AppendLoss", run, 0, AppendLoss.__doc__)


def _one_block(func: ir.Function, what: str) -> tuple[Any, Any]:
    seq: Any = func.body
    if not isinstance(seq, SeqExpr) or len(seq.blocks) != 1 or not isinstance(seq.blocks[0], DataflowBlock):
        raise error.InvalidArgument(f"{what} must have one dataflow block")
    return seq.blocks[0], seq.body


def _joined(model: ir.Function, loss: ir.Function, count: int) -> ir.Function:
    model, loss = copy_with_new_vars(model), copy_with_new_vars(loss)
    block, result = _one_block(model, "the model")
    results = list(result.fields) if isinstance(result, ir.Tuple) else [result]
    if not all(isinstance(r, ir.ExprVar) for r in results):
        raise error.InvalidArgument("the model must return a variable, or a tuple of variables")
    if count > len(results) or count > len(loss.params):
        raise error.InvalidArgument(
            "the loss takes more results than there are", expected=f"at most {len(results)}", found=str(count)
        )
    given, taken = (ir.TupleType(tuple(map(type_of, some[:count]))) for some in (results, loss.params))
    if not ir.structural_equal(given, taken, True):
        raise error.InvalidArgument(
            "the loss takes another type than the model returns", expected=str(given), found=str(taken)
        )
    sizes = [ir.find(ty, ir.Var) for ty in (taken, given)]
    loss = ir.substitute(loss, dict(zip(*sizes, strict=True)))
    loss_block, loss_result = _one_block(loss, "the loss")
    if not isinstance(loss_result, ir.ExprVar) or getattr(type_of(loss_result), "ndim", -1) != 0:
        raise error.ShapeMismatch("the loss must return a scalar", expected="R.Tensor(())", found=str(loss_result.ty))
    rest, targets = results[count:], loss.params[count:]
    renamed: dict[Any, Any] = dict(zip(loss.params[:count], results[:count], strict=True))
    bindings = [*block.bindings]
    for b in loss_block.bindings:
        value = rename_vars(b.value, renamed)
        bindings.append(b if value is b.value else VarBinding(b.var, value, span=b.span))
    kept: Any = ir.Tuple((loss_result, *rest)) if rest else loss_result
    body = SeqExpr((DataflowBlock(tuple(bindings)),), kept, ty=type_of(kept))
    params = (*model.params, *targets)
    func = ir.Function(params, body, body.ty, model.is_pure, model.attrs.without("global_symbol"))
    func = _with_outputs(func)
    return func.replace(ty=function_type(func))


def _with_outputs(func: ir.Function) -> ir.Function:
    """Let variables that are not returned any more be local to the block."""
    seq: Any = func.body
    used = set(variables(seq.body))
    renamed: dict[Any, Any] = {}
    bindings: list[Any] = []
    for b in seq.blocks[0].bindings:
        value = rename_vars(b.value, renamed)
        var = b.var
        if not isinstance(var, DataflowVar) and var not in used:
            var = renamed[b.var] = DataflowVar(var.name_hint, var.ty, span=var.span)
        bindings.append(b if value is b.value and var is b.var else VarBinding(var, value, span=b.span))
    body = SeqExpr((DataflowBlock(tuple(bindings)),), seq.body, span=seq.span, ty=type_of(seq.body))
    return func.replace(body=body)
