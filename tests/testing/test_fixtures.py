"""Fixtures of values, of groups of values and of results that are made once; checks by numbers."""

import numpy as np
import pytest

from tests.refusals import refuses
from weft import error, ir, testing, tir

number = testing.parameter(1, 2)
word, length = testing.parameters(("ab", 2), ("abc", 3), ids=["short", "long"])
made: list[int] = []
seen: set[object] = set()


@testing.fixture(cache_return_value=True)
def squares(number):
    made.append(number)
    return {"value": number * number}


@testing.fixture
def both(number, word):
    return number, word


def test_values_change_together(word, length):
    assert len(word) == length
    seen.add((word, length))


def test_every_group_was_seen():
    assert seen == {("ab", 2), ("abc", 3)}


@pytest.mark.parametrize("again", [0, 1])
def test_results_are_made_once(squares, number, again):
    assert squares == {"value": number * number}
    squares["value"] = None  # a copy of its own
    assert made.count(number) == 1


class TestInClasses:
    letter, place = testing.parameters(("a", 0), ("b", 1))
    single = testing.parameter("x")

    def test_it(self, letter, place, single):
        assert "ab"[place] == letter and single == "x"


@testing.skip_parameterizations("3", reason="not this one")
@pytest.mark.parametrize("n", [3, 4])
def test_cases_are_left_out(n):
    assert n == 4


def test_refusals():
    refuses(error.InvalidArgument, "a value for each fixture", testing.parameters, (1, 2), (1,))
    assert testing.strtobool("Yes") == 1 and testing.strtobool("off") == 0
    refuses(error.InvalidArgument, "neither yes nor no", testing.strtobool, "perhaps")


def test_gradients():
    x = np.array([1.0, 2.0, 3.0])
    testing.check_numerical_grads(lambda x: float((x**2).sum()), [x], [2 * x])
    with pytest.raises(AssertionError, match="gradient of 'x'"):
        testing.check_numerical_grads(lambda x: float((x**2).sum()), {"x": x}, {"x": 3 * x})


def test_conditions():
    i = tir.Var("i", "int32")
    testing.check_bool_expr_is_true(i < 10, {i: ir.Range(0, 10)})
    testing.check_bool_expr_is_true(i > 5, {i: ir.Range(0, 10)}, cond=i > 6)
    refuses(AssertionError, "i = 9", testing.check_bool_expr_is_true, i < 9, {i: ir.Range(0, 10)})


def test_random_arrays():
    assert testing.generate_random_array("int8", (3, 4)).dtype == np.int8
    assert testing.generate_random_array("float16", (3,)).shape == (3,)
    assert str(testing.np_dtype_from_str("bfloat16")) == "bfloat16"


def test_the_lock_passes_results_on():
    assert testing.run_with_gpu_lock(lambda a, b: a + b, 1, b=2) == 3


def test_what_the_machine_has():
    assert testing.env.has_llvm_min_version(10) and not testing.env.has_llvm_min_version(10**6)
    assert isinstance(testing.env.has_x86_vnni(), bool) and not testing.env.has_metal()
