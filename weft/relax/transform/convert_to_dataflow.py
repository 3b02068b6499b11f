"""ConvertToDataflow: runs of pure bindings become dataflow blocks."""

from typing import Any

from weft.ir import Call, Expr, Function, If, IRModule, Op, function_pass, with_fields
from weft.relax.effects import is_pure_call, written_arguments
from weft.relax.expr import Binding, BindingBlock, DataflowBlock, SeqExpr
from weft.relax.rename import rename_vars, variables, with_sequences
from weft.relax.rewriter import localize, replace_value


@function_pass(kind=Function)
def convert_to_dataflow(func: Function, mod: IRModule, min_size: int = 2) -> Function:
    """Turn runs of pure bindings outside of dataflow blocks into dataflow blocks, joined with those beside them.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            a = R.exp(x)
            b = R.sin(a)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                a: R.Tensor((2, 3), "float32") = R.exp(x)
                b: R.Tensor((2, 3), "float32") = R.sin(a)
                R.output(b)
            return b

    Options:
        ``min_size``: the shortest run that becomes a block.
    Cost: Linear.
    Source: TVM's ``ConvertToDataflow``.
    """
    return func.replace(body=_sequence(func.body, min_size, mod))


def _sequence(seq: Any, min_size: int, mod: IRModule) -> Any:
    if not isinstance(seq, SeqExpr):
        return seq
    bindings = [_inside(b, min_size, mod) for block in seq.blocks for b in block.bindings]
    homes = [block for block in seq.blocks for _ in block.bindings]
    runs: list[tuple[bool, list[int]]] = []  # whether a dataflow block, and which bindings
    for i, b in enumerate(bindings):
        flow = isinstance(homes[i], DataflowBlock) or _is_pure(b.value, mod)
        if not runs or runs[-1][0] != flow or (not flow and homes[i] is not homes[i - 1]):
            runs.append((flow, []))
        runs[-1][1].append(i)
    blocks: list[Any] = []
    renamed: dict[Expr, Expr] = {}
    for flow, run in runs:
        was = dict.fromkeys(homes[i] for i in run)
        flow = flow and (len(run) >= min_size or any(isinstance(h, DataflowBlock) for h in was))
        kept = [replace_value(bindings[i], rename_vars(bindings[i].value, renamed)) for i in run]
        if flow and (len(was) > 1 or not isinstance(homes[run[0]], DataflowBlock)):
            later = [b.value for b in bindings[run[-1] + 1 :]] + [seq.body]
            kept = localize(kept, {v for value in later for v in variables(value)}, renamed)
        only = next(iter(was))
        same = len(was) == 1 and len(kept) == len(only.bindings) and flow == isinstance(only, DataflowBlock)
        if not flow and blocks and type(blocks[-1]) is BindingBlock:
            blocks[-1] = BindingBlock(blocks[-1].bindings + tuple(kept))
        elif same and all(a is b for a, b in zip(kept, only.bindings, strict=True)):
            blocks.append(only)
        else:
            blocks.append((DataflowBlock if flow else BindingBlock)(tuple(kept)))
    known = {tuple(block.bindings): block for block in seq.blocks}
    blocks = [old if type(old := known.get(tuple(b.bindings))) is type(b) else b for b in blocks]
    return with_fields(seq, blocks=tuple(blocks), body=rename_vars(seq.body, renamed))


def _is_pure(value: Expr, mod: IRModule) -> bool:
    if not isinstance(value, Call):
        return not isinstance(value, (If, Function))
    return is_pure_call(value, mod) and (isinstance(value.op, Op) or not written_arguments(value, mod))


def _inside(binding: Binding, min_size: int, mod: IRModule) -> Any:
    return replace_value(binding, with_sequences(binding.value, lambda s: _sequence(s, min_size, mod)))
