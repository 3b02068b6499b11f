"""ProductsInBfloat16: products with constant weights on bfloat16 operands, summed in float32.

A value that such a product reads is stored as bfloat16: whoever computes it rounds it once, and all who read it get the
rounded value. What lies between products (biases, residuals, norms, softmax) is computed in float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft import op, runtime
from weft.ir import Call, Constant, Expr, Function, IRModule, Op, TensorType, Tuple, constant, function_pass, walk
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import CORE_OPS
from weft.relax.expr import Binding, MatchCast, SeqExpr
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.element_moves import PRODUCTS, SELECTIONS
from weft.relax.unused import remove_all_unused

_NARROW, _WIDE = "bfloat16", "float32"
_FORM = (_NARROW, _NARROW, _WIDE)


@function_pass(kind=Function)
def products_in_bfloat16(
    func: Function, mod: IRModule, *, dot_forms: Sequence[tuple[str, str, str, int]] = (), channels: int = 1
) -> Function:
    """Compute products and convolutions with constant weights on bfloat16 operands, in float32 sums.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; types of results stay.
    With ``dot_forms=[("bfloat16", "bfloat16", "float32", 16)]``, before::

        @R.function
        def main(x: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                a = R.matmul(x, R.const([[1.0, 2.0], [3.0, 4.0]], "float32"))
                b = R.nn.relu(a)
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                x16: R.Tensor((2, 2), "bfloat16") = R.astype(x, dtype="bfloat16")
                a = R.matmul(x16, R.const([[1.0, 2.0], [3.0, 4.0]], "bfloat16"), out_dtype="float32")
                b: R.Tensor((2, 2), "float32") = R.nn.relu(a)
                R.output(b)
            return b

    Options:
        ``dot_forms``: the target's dot products of narrow numbers; without one of bfloat16 the function stays.
        ``channels``: convolutions whose input channels are no multiple stay in float32.
    Cost: Linear, plus one pass over the weights.
    Source: Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019.
    """
    if not any(tuple(form[:3]) == _FORM for form in dot_forms):
        return func
    late = _computed_wide(func)
    state = _Narrowed(_stored_narrow(func, late, channels), late, channels)
    new = rewrite_bindings(func, mod, state.rule)
    return func if new is func else remove_all_unused(new, mod)


def _name(value: Any) -> str:
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return ""
    name = value.op.name.removeprefix("relax.")
    return "" if name in CORE_OPS else name


def _is_wide(e: Any) -> bool:
    return isinstance(getattr(e, "ty", None), TensorType) and e.ty.dtype == _WIDE


def _is_product(value: Any, channels: int) -> bool:
    """Whether a value is a product of a float32 tensor with constant weights that dot products are for."""
    return (
        _name(value) in PRODUCTS
        and _is_wide(value)
        and all(map(_is_wide, value.args[:2]))
        and not isinstance(value.args[0], Constant)
        and isinstance(value.args[1], Constant)
        and value.attrs.get("groups", 1) == 1
        and (
            value.args[0].ty.ndim >= 2 and value.args[1].ty.ndim == 2
            if _name(value) == "matmul"
            else int(value.args[1].ty.shape[value.attrs["kernel_layout"].index("I")]) % channels == 0
        )
    )


def _operands(value: Call) -> list[Any]:
    """List the tensors that an operation which moves elements takes them from."""
    data = value.args[0]
    return list(data.fields) if isinstance(data, Tuple) else [data]


def _moves(value: Any) -> bool:
    return _name(value) in SELECTIONS and _is_wide(value) and all(map(_is_wide, _operands(value)))


def _computed_wide(func: Function) -> set[Expr]:
    """List the variables of operations that move what is computed for them alone: they come before its rounding."""
    assert isinstance(func.body, SeqExpr)
    bindings = all_bindings(func)
    uses = Counter(x for value in [*(b.value for b in bindings), func.body.body] for x in walk(value))
    computed = {b.var for b in bindings if isinstance(b.value, Call) and not _moves(b.value)}
    return {
        b.var
        for b in bindings
        if _name(b.value) == "nn.relu" and b.value.args[0] in computed and uses[b.value.args[0]] == 1
    }


def _stored_narrow(func: Function, late: set[Expr], channels: int) -> set[Expr]:
    """Choose the variables that are stored as bfloat16: what products read, and what that is moved from."""
    chosen: set[Expr] = set()
    for b in reversed(all_bindings(func)):
        if _is_product(b.value, channels):
            chosen.add(b.value.args[0])
        elif b.var in chosen and b.var not in late and not isinstance(b, MatchCast) and _moves(b.value):
            chosen.update(x for x in _operands(b.value) if not isinstance(x, Constant))
    return chosen


class _Narrowed:
    """The bfloat16 forms of float32 values."""

    def __init__(self, chosen: set[Expr], late: set[Expr], channels: int) -> None:
        self.chosen, self.late, self.channels = chosen, late, channels
        self.narrow: dict[Expr, Any] = {}  # a variable to its bfloat16 form
        self.casts: dict[tuple[Expr, int], Any] = {}  # a variable and a block to the bfloat16 form made there
        self.blocks: list[Any] = []  # keeps the blocks' lists alive, so that their ids stay unique

    def rule(self, binding: Binding, value: Any, bb: BlockBuilder) -> Expr | None:
        """Replace one value; its type stays."""
        if isinstance(binding, MatchCast):
            return None
        if _is_product(value, self.channels):
            args = (self.narrowed(value.args[0], bb), self.narrowed(value.args[1], bb), *value.args[2:])
            value = Call(value.op, args, value.attrs.with_(out_dtype=_WIDE), value.ty_args, span=value.span)
            if binding.var not in self.chosen:
                return value
        elif binding.var not in self.chosen or not _is_wide(value) or not isinstance(value, Call):
            return None
        elif _moves(value) and binding.var not in self.late:
            data: list[Any] = [self.narrowed(x, bb) for x in _operands(value)]
            first = Tuple(tuple(data)) if isinstance(value.args[0], Tuple) else data[0]
            return self.widened(binding, bb.emit(self.moved(value, first), f"{binding.var.name_hint}16"))
        wide = bb.emit(value, binding.var.name_hint)
        narrow = bb.emit(op.make_call("astype")(wide, dtype=_NARROW), f"{binding.var.name_hint}16")
        return self.widened(binding, narrow)

    @staticmethod
    def moved(value: Call, data: Any) -> Call:
        """Return an operation that moves elements on its operand's bfloat16 form."""
        return Call(value.op, (data, *value.args[1:]), value.attrs, value.ty_args, span=value.span)

    def widened(self, binding: Binding, narrow: Any) -> Expr:
        """Remember the bfloat16 form of a variable, and return its float32 value."""
        self.narrow[binding.var] = narrow
        return op.make_call("astype")(narrow, dtype=_WIDE)

    def narrowed(self, e: Any, bb: BlockBuilder) -> Any:
        """Return the bfloat16 form of an expression."""
        if isinstance(e, Constant):
            return constant(runtime.aligned(e.data.numpy().astype(runtime.numpy_dtype(_NARROW))))
        if e in self.narrow:
            return self.narrow[e]
        key = (e, id(bb.bindings()))
        if key not in self.casts:
            self.blocks.append(bb.bindings())
            self.casts[key] = bb.emit(op.make_call("astype")(e, dtype=_NARROW), f"{e.name_hint}16")
        return self.casts[key]
