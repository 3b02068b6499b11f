"""LazyGradientInit: tensors of zeros and ones, with which adjoints begin, are not made where sums absorb them."""

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.relay.expr import Function, Var
from weft.relay.transform.typed_pass import typed_function_pass
from weft.relay.walk import operator_name, rewrite

_ZEROS, _ONES = ("zeros", "zeros_like"), ("ones", "ones_like")


@typed_function_pass
def lazy_gradient_init(func: Function) -> Function:
    """Leave out sums with zeros and products with zeros and ones that are of the shape of the result.

    Requires: Any form; types are inferred where there are none.
    Ensures: The same form, types and, for finite numbers, values.
    Before::

        def @main(%x: Tensor[(2), float32]) {
          add(zeros_like(%x), multiply(%x, ones_like(%x)))
        }

    After::

        def @main(%x: Tensor[(2), float32]) { %x }
    Cost: Linear.
    Source: TVM's ``LazyGradientInit``, which keeps such tensors as values of the data type ``GradCell`` instead.
    """
    values: dict[Var, Any] = {}

    def is_of(e: ir.Expr, names: tuple[str, ...]) -> bool:
        e = values.get(e, e) if type(e) is Var else e
        return operator_name(e) in names

    def rule(e: ir.Expr) -> Any:
        name = operator_name(e)
        return _absorbed(e, name, is_of) if name in ("add", "multiply") else e

    return rewrite(func, rule, on_let=values.__setitem__)


def _absorbed(e: Any, name: str, is_of: Callable[[Any, tuple[str, ...]], bool]) -> Any:
    for x, c in ((0, 1), (1, 0)):
        neutral = is_of(e.args[c], _ZEROS if name == "add" else _ONES)
        if neutral and ir.structural_equal(e.args[x].ty, e.ty):
            return e.args[x]
        if name == "multiply" and is_of(e.args[c], _ZEROS) and ir.structural_equal(e.args[c].ty, e.ty):
            return e.args[c]
    return e
