"""Operators that expand to several shared ones are compiled, with constant and with unknown dimensions.

Operators that stand for one shared operator are compiled by the contract of the shared registry.
"""

from typing import Any

import numpy as np
import pytest

from tests.op.contract import compare
from tests.relay.op import cases  # noqa: F401 - registers the cases
from tests.relay.op.contract import CASES, Case, drawn, typed_call, unknown, values
from weft import IRModule, ir, relay
from weft.relay.op import declaration, evaluate, expand, list_ops


def is_macro(name: str) -> bool:
    """Whether the first case expands to more than one call."""
    if declaration(name).infer is not None:
        return False
    expansion: Any = expand(typed_call(name, drawn(name, 0)[0]))
    args = getattr(expansion, "args", ())
    return not all(isinstance(a, (ir.ExprVar, ir.Constant, ir.ShapeExpr, ir.PrimValue, relay.Tuple)) for a in args)


MACROS = [n for n in list_ops() if is_macro(n)]


def flat(value: Any) -> list[Any]:
    return [v for f in value for v in flat(f)] if isinstance(value, (tuple, list)) else [value]


def check(name: str, case: Case, dim: Any) -> None:
    node = typed_call(name, case, dim)
    given = [(e, a) for e, a in zip(leaves(node.args), flat(tuple(values(case))), strict=True) if type(e) is relay.Var]
    mod = IRModule.from_expr(relay.Function([e for e, _ in given], node))
    found = relay.create_executor("vm", mod).evaluate()(*[a for _, a in given])
    for f, e in zip(flat(found), flat(evaluate(node, values(case))), strict=True):
        assert f.numpy().shape == e.shape
        compare(f.numpy(), e, 2e-3, 1e-4)


def leaves(args: tuple[Any, ...]) -> list[Any]:
    return [v for a in args for v in (leaves(a.fields) if isinstance(a, relay.Tuple) else [a])]


def test_some_are_macros() -> None:
    assert len(MACROS) > 30
    assert "nn.dense" in MACROS
    assert "add" not in MACROS


@pytest.mark.share(4, None)
@pytest.mark.parametrize(("name", "index"), [(name, index) for name in MACROS for index in range(len(CASES[name]))])
def test_constant_dimensions(name: str, index: int) -> None:
    check(name, drawn(name, index)[0], int)


@pytest.mark.share(3, None)
@pytest.mark.parametrize("name", MACROS)
def test_unknown_dimensions(name: str) -> None:
    check(name, drawn(name, 0)[0], unknown)


def test_a_wrong_value_fails() -> None:
    with pytest.raises(AssertionError):
        compare(np.float32([1.0]), np.float32([1.1]), 2e-3, 1e-4)
