"""Normalize for programs that somebody wrote or built: normal form in which blocks are as large as they can be."""

from typing import Any

from weft import error, ir
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import BindingBlock, DataflowBlock, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type, result_type
from weft.relax.rename import replace_value, with_sequences
from weft.relax.transform.block_pass import over_functions


def Normalize() -> ir.Pass:
    """Make the pass that brings functions into normal form: what is nested is bound, everything has its type.

    Sequences within bindings become blocks beside them, neighbouring blocks of one kind become one. A type that a
    function says it returns stays unless that of its body says more.
    """
    return over_functions(Normalize, _normal)


def _normal(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    flat = func.replace(body=_flat(func.body))
    new: Any = BlockBuilder(mod).normalize(flat, atom=False)
    body = _merged(new.body)
    if body is func.body and func.ret_ty is not None:
        return func
    made = new.replace(body=body, ret_ty=result_type(func.ret_ty, body.ty))
    return made.replace(ty=function_type(made))


def _flat(expr: ir.Expr) -> Any:
    """Put the blocks of sequences that bindings hold beside these bindings."""
    if isinstance(expr, ir.If):
        new = ir.with_fields(expr, true_branch=_flat(expr.true_branch), false_branch=_flat(expr.false_branch))
        return ir.with_fields(new, ty=expr.ty if new is expr else None)
    if isinstance(expr, ir.Function):
        body = _flat(expr.body)
        return expr if body is expr.body else expr.replace(body=body, ty=None)
    if not isinstance(expr, SeqExpr):
        return _with_operands(expr, SeqExpr((), expr, span=expr.span)) if _nests(expr) else expr
    blocks = [new for block in expr.blocks for new in _flat_block(block)]
    if _nests(expr.body):
        return _with_operands(expr.body, SeqExpr(tuple(blocks), expr.body, span=expr.span))
    if len(blocks) == len(expr.blocks) and all(a is b for a, b in zip(blocks, expr.blocks, strict=True)):
        return expr
    return SeqExpr(tuple(blocks), expr.body, span=expr.span)


def _nests(expr: ir.Expr) -> bool:
    """Whether an element is taken of a tuple that is no variable and no tuple that is written down."""
    return isinstance(expr, ir.TupleGetItem) and not isinstance(expr.tuple_value, (ir.ExprVar, ir.Tuple))


def _with_operands(expr: Any, seq: SeqExpr) -> SeqExpr:
    """Bind the tuples that a result takes elements of, one after another."""
    chain: list[Any] = []
    while _nests(expr):
        chain.append(expr)
        expr = expr.tuple_value
    bindings: list[Any] = []
    for item in reversed(chain):
        bindings.append(VarBinding(Var("gv"), expr))
        expr = ir.TupleGetItem(bindings[-1].var, item.index, span=item.span)
    return SeqExpr((*seq.blocks, BindingBlock(tuple(bindings))), expr, span=seq.span)


def _flat_block(block: BindingBlock) -> list[BindingBlock]:
    out: list[BindingBlock] = []
    current: list[Any] = []
    for b in block.bindings:
        value = b.value if isinstance(b.value, ir.TupleGetItem) else _flat(b.value)
        if isinstance(value, ir.If) and not isinstance(value.cond, (ir.ExprVar, ir.Constant, ir.PrimValue)):
            current.append(VarBinding(Var("cond"), value.cond))
            parts = value.true_branch, value.false_branch
            value = ir.If(current[-1].var, *parts, span=value.span)
        if isinstance(value, SeqExpr):
            if isinstance(block, DataflowBlock) and not all(isinstance(x, DataflowBlock) for x in value.blocks):
                raise error.InvalidArgument(
                    "a dataflow block holds a block that is none", where=b.span, found=f"the value of {b.var.name_hint}"
                )
            out += [type(block)(tuple(current), span=block.span), *value.blocks]
            current, value = [], value.body
        current.append(b if value is b.value else VarBinding(b.var, value, span=b.span))
    if not out:
        return [
            block
            if all(a is b for a, b in zip(current, block.bindings, strict=True))
            else type(block)(tuple(current), span=block.span)
        ]
    return [*out, type(block)(tuple(current), span=block.span)]


def _merged(seq: Any) -> Any:
    """Join neighbouring blocks of one kind, in branches and inner functions, too."""
    if not isinstance(seq, SeqExpr):
        return seq
    blocks: list[BindingBlock] = []
    for block in seq.blocks:
        bindings = tuple(replace_value(b, with_sequences(b.value, _merged)) for b in block.bindings)
        block = ir.with_fields(block, bindings=bindings)
        if blocks and type(blocks[-1]) is type(block):
            block = type(block)((*blocks.pop().bindings, *block.bindings), span=block.span)
        if block.bindings:
            blocks.append(block)
    return ir.with_fields(seq, blocks=tuple(blocks))
