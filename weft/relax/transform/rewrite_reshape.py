"""RewriteDataflowReshape.

Operations that only give memory another shape become ``relax.reshape``, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import ir, tir
from weft.relax.analysis.tir_pattern import reshaped_parameter
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import Binding, DataflowVar
from weft.relax.rewriter import rewrite_bindings

_VIEWS = ("flatten", "expand_dims", "squeeze", "nn.batch_flatten", "reshape")


@ir.function_pass(kind=ir.Function, opt_level=0)
def rewrite_dataflow_reshape(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Turn flatten, expand_dims, squeeze and transposes of unit dimensions into reshape, and join chains of reshapes.

    Requires: ``relax.normalized`` with known output shapes where a view is to be made; other calls stay. A call of a
        kernel that copies in the order of memory is a view, too, where its result does not leave the block.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.expand_dims(x, axis=[0])
                b = R.flatten(a)
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((6,), "float32"):
            with R.dataflow():
                a: R.Tensor((1, 2, 3), "float32") = R.reshape(x, R.shape([1, 2, 3]))
                b: R.Tensor((6,), "float32") = R.reshape(x, R.shape([6]))
                R.output(b)
            return b
    Cost: Linear.
    Source: TVM's ``RewriteDataflowReshape``.
    """
    return _joined(func, mod, _seen_differently)


@ir.function_pass(kind=ir.Function, opt_level=0)
def remove_redundant_reshape(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Join chains of reshapes, and leave out those to the shape that there is.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. A reshape that the last one of a chain makes superfluous stays, unused.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.reshape(x, (3, 2))
                b = R.reshape(a, (6,))
                c = R.reshape(x, (2, 3))
                d = R.exp(c)
                R.output(b, d)
            return (b, d)

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a: R.Tensor((3, 2), "float32") = R.reshape(x, R.shape([3, 2]))
                b: R.Tensor((6,), "float32") = R.reshape(x, R.shape([6]))
                d: R.Tensor((2, 3), "float32") = R.exp(x)
                R.output(b, d)
            return (b, d)
    Cost: Linear.
    Source: TVM's ``RemoveRedundantReshape``.
    """
    return _joined(func, mod, lambda call, _binding, _mod: call.args[0] if is_op(call, "reshape") else None)


def _joined(
    func: ir.Function, mod: ir.IRModule, operand: Callable[[ir.Call, Binding, ir.IRModule], ir.Expr | None]
) -> ir.Function:
    """Make calls that give their `operand` another shape reshapes of what the operand itself is a reshape of."""
    source: dict[ir.Expr, ir.Expr] = {}
    mutable = mutable_variables(func, mod)

    def rule(binding: Binding, value: ir.Expr, _bb: BlockBuilder) -> ir.Expr | None:
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
            return None
        base: Any = operand(value, binding, mod)
        if base is None or not isinstance(value.ty, ir.TensorType) or value.ty.shape is None:
            return None
        if mutable and not is_mergeable(value, binding.var, mutable, mod):
            return None  # a view would show what is written later
        base = source.get(base, base)
        same = isinstance(base, ir.ExprVar) and isinstance(base.ty, ir.TensorType)
        if same and ir.structural_equal(base.ty.shape, value.ty.shape):  # type: ignore[attr-defined]
            return base
        source[binding.var] = base
        if is_op(value, "reshape") and base is value.args[0] and len(value.args) == 2:
            return None
        return ir.Call(
            ir.Op.get("relax.reshape"), (base, ir.shape_expr(value.ty.shape)), ir.Attrs.of(), span=value.span
        )

    return rewrite_bindings(func, mod, rule)


def _seen_differently(call: ir.Call, binding: Binding, mod: ir.IRModule) -> ir.Expr | None:
    """Return the operand that a call only gives another shape; None where it does more."""
    if not is_op(call, "call_tir"):
        return call.args[0] if any(is_op(call, v) for v in _VIEWS) or moves_only_unit_dims(call) else None
    name: Any = call.args[0]
    kernel = mod[name] if isinstance(binding.var, DataflowVar) and name in mod else None
    place = reshaped_parameter(kernel) if isinstance(kernel, tir.PrimFunc) else None
    args = call.args[1].fields if isinstance(call.args[1], ir.Tuple) else ()
    return args[place] if place is not None and place < len(args) else None


def moves_only_unit_dims(call: ir.Call) -> bool:
    """Whether a call is a transpose that leaves the order of all dimensions but those of extent 1."""
    shape: Any = getattr(call.args[0].ty, "shape", None) if is_op(call, "permute_dims") else None  # type: ignore[attr-defined]
    if shape is None:
        return False
    axes = call.attrs.get("axes") or tuple(reversed(range(len(shape))))
    moved = [a % len(shape) for a in axes if ir.as_int(shape[a]) != 1]
    return moved == sorted(moved)
