"""Patterns over small programs, and what rewriting by them leaves."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import relax
from weft.relax.analysis import get_var2val
from weft.relax.dpl import (
    extract_matches,
    is_call_packed,
    is_const,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    rewrite_call,
    wildcard,
)

MAIN = written("""
x: (3, 4), w: (4, 5)
a = R.matmul(x, w)
b = R.add(a, R.const(2.0, "float32"))
c = R.nn.relu(b)
d = R.multiply(c, c)
""")["main"]
VALUES = get_var2val(MAIN)
BY_NAME = {v.name_hint: e for v, e in VALUES.items()}

MATCHES = {
    "relu of a sum": (lambda: is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), is_const())), "c", True),
    "relu of a product": (lambda: is_op("relax.nn.relu")(is_op("relax.multiply")(wildcard(), wildcard())), "c", False),
    "either": (lambda: is_op("relax.add")(wildcard(), is_const()) | is_op("relax.nn.relu")(wildcard()), "c", True),
    "both": (lambda: wildcard().has_dtype("float32") & is_op("relax.matmul")(is_var("x"), is_var("w")), "a", True),
    "not": (lambda: ~is_op("relax.matmul")(wildcard(), wildcard()), "a", False),
    "dtype": (lambda: wildcard().has_dtype("float16"), "a", False),
    "shape": (lambda: wildcard().has_shape((3, 5)), "a", True),
    "other shape": (lambda: wildcard().has_shape((5, 3)), "a", False),
    "name": (lambda: is_op("relax.matmul")(is_var("w"), wildcard()), "a", False),
    "too few arguments": (lambda: is_op("relax.matmul")(wildcard()), "a", False),
    "free arguments": (lambda: is_op("relax.matmul")(wildcard(), varg_default_wildcard=True), "a", True),
    "sugar": (lambda: is_op("relax.matmul")(wildcard(), wildcard()) + is_const(), "b", True),
    "attribute": (lambda: is_op("relax.matmul")(wildcard(), wildcard()).has_attr({"absent": 1}), "a", False),
}


@pytest.mark.parametrize("name", MATCHES)
def test_matches(name):
    pattern, variable, expected = MATCHES[name]
    assert match(pattern(), BY_NAME[variable], VALUES) is expected


def test_a_part_that_occurs_twice_is_one_expression():
    part = wildcard()
    assert match(is_op("relax.multiply")(part, part), BY_NAME["d"], VALUES)
    assert not match(is_op("relax.matmul")(part, part), BY_NAME["a"], VALUES)
    assert match(is_op("relax.matmul")(part, part.dup()), BY_NAME["a"], VALUES)


def test_a_failed_alternative_leaves_nothing():
    x, left = wildcard(), is_const()
    pattern = is_op("relax.matmul")(x, left) | is_op("relax.matmul")(wildcard(), x)
    found = extract_matches(pattern, BY_NAME["a"], VALUES)
    assert found is not None
    assert found[x].name_hint == "w"
    assert left not in found


def test_tuples_and_packed_functions():
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    pair = relax.Tuple((x, x))
    assert match(is_tuple([is_var("x"), is_var()]), pair)
    assert not match(is_tuple([wildcard()]), pair)
    assert match(is_tuple_get_item(wildcard(), 1), relax.TupleGetItem(pair, 1))
    assert not match(is_tuple_get_item(wildcard(), 0), relax.TupleGetItem(pair, 1))
    assert match(is_call_packed("f"), relax.call_packed("f", x))
    assert not match(is_call_packed("g"), relax.call_packed("f", x))


def test_rewriting():
    x, bias = wildcard(), is_const()
    pattern = is_op("relax.nn.relu")(is_op("relax.add")(x, bias))
    new = rewrite_call(pattern, lambda _, found: relax.op.subtract(found[x], found[bias]), MAIN)
    vm = relax.VirtualMachine(weft.compile(weft.IRModule({"main": new}), target="llvm"), weft.cpu())
    a, b = np.random.default_rng(0).standard_normal((3, 4), np.float32), np.ones((4, 5), np.float32)
    found = vm["main"](weft.runtime.tensor(a), weft.runtime.tensor(b)).numpy()
    np.testing.assert_allclose(found, (a @ b - 2) ** 2, rtol=1e-4, atol=1e-5)


def test_nothing_matches_nothing_changes():
    assert rewrite_call(is_op("relax.exp")(wildcard()), lambda e, _: e.args[0], MAIN) is MAIN
    assert rewrite_call(is_op("relax.add")(wildcard(), wildcard()), lambda e, _: e, MAIN) is MAIN
