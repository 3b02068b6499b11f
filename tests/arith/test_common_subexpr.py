"""What an expression computes more than once, counted by hand."""

import pytest

from weft import arith, error, ir, tir

x, y, z = (ir.Var(name, "int32") for name in "xyz")


def named(expr, threshold):
    return {str(e): n for e, n in arith.detect_common_subexpr(expr, threshold).items()}


def test_the_largest_that_occur_often_enough():
    first, second = tir.floor(x + y + 0.5), tir.floor(x + y + 0.5)
    found = arith.detect_common_subexpr(first + x + z * second, 2)
    assert list(found.values()) == [2] and next(iter(found)) is first


def test_occurrences_of_larger_ones_that_are_rare_add_up():
    e = (x + y) * z + (x + y) * 3 + tir.max(x + y, z)
    assert named(e, 3) == {str(x + y): 3}
    assert named(e, 4) == {}
    assert list(arith.detect_common_subexpr(e, 1).items())[0][0] is e


def test_what_simplifies_to_the_same_is_the_same():
    assert list(arith.detect_common_subexpr((x + y) * (y + x), 2).values()) == [2]
    assert named((x + y) * (x + z), 2) == {}  # they differ in a free variable


@pytest.mark.parametrize("leaf", [x, ir.const(3, "int32")])
def test_leaves_are_no_computations(leaf):
    assert named(leaf, 0) == {} and named(leaf * leaf, 2) == {}


@pytest.mark.parametrize("e", [tir.call_extern("int32", "next", x + y), tir.decl_buffer((64,), "int32", "A")[x + y]])
def test_calls_with_effects_and_loads_are_looked_into_only(e):
    assert named(e * e, 2) == {str(x + y): 2}


def test_a_variable_that_is_bound_inside_is_no_value_outside():
    e = ir.Let(z, x * y, (z + 1) * (z + 1))
    assert named(e + tir.call_extern("int32", "f", z + 1), 2) == {}


def test_a_negative_threshold_is_refused():
    with pytest.raises(error.InvalidArgument, match="threshold"):
        arith.detect_common_subexpr(x + y, -1)
