"""Natural numbers as an algebraic data type: ``nat`` of the standard module ``nat.rly``, in and out of Python."""

from typing import Any

from weft.error import InvalidArgument
from weft.relay.expr import Call
from weft.relay.prelude import Prelude
from weft.relay.values import ConstructorValue


def _constructors(prelude: Any) -> tuple[Any, Any]:
    """The constructors of zero and successor, of a Prelude or a module."""
    _, zero, successor = getattr(prelude, "mod", prelude).get_type("nat")
    return zero, successor


def count(prelude: Prelude, n: ConstructorValue) -> int:
    """Return a number of the data type as an int.

    Parameters
    ----------
    prelude : Prelude
        What holds the module with the data type.
    n : ConstructorValue
        The number.
    """
    zero, successor = _constructors(prelude)
    steps = 0
    while n.tag != zero.tag:
        if n.tag != successor.tag:
            raise InvalidArgument("this is no natural number", found=f"a value of tag {n.tag}")
        n, steps = n.fields[0], steps + 1
    return steps


def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """Return a number as a value of the data type."""
    zero, successor = _constructors(prelude)
    value = ConstructorValue(zero.tag, [], zero)
    for _ in range(_natural(n)):
        value = ConstructorValue(successor.tag, [value], successor)
    return value


def make_nat_expr(prelude: Prelude, n: int) -> Call:
    """Return a number as an expression: nested calls of the constructors."""
    zero, successor = _constructors(prelude)
    expr = zero()
    for _ in range(_natural(n)):
        expr = successor(expr)
    return expr


def _natural(n: int) -> int:
    if n < 0:
        raise InvalidArgument("a natural number is not negative", found=str(n))
    return int(n)
