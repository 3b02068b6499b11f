"""The helpers for tests do what their names say."""

import numpy as np

import weft
from tests.refusals import refuses
from weft import error, testing, tir


def test_allclose():
    testing.assert_allclose(weft.runtime.tensor(np.ones(3)), np.ones(3))
    refuses(AssertionError, "shapes differ", testing.assert_allclose, np.ones(3), np.ones((3, 1)))
    refuses(AssertionError, "", testing.assert_allclose, np.ones(3), np.full(3, 1.1))


def test_prim_expr_equal():
    x = tir.Var("x", "int32")
    testing.assert_prim_expr_equal((x + 1) * 2, x * 2 + 2)
    refuses(AssertionError, "not equal", testing.assert_prim_expr_equal, x, x + 1)


def test_functions():
    assert testing.echo("text") == "text" and testing.echo(3) == 3
    assert testing.nop(1, "x") is None
    array = weft.runtime.tensor(np.arange(3.0))
    before = testing.object_use_count(array)
    again = testing.echo(array)
    assert testing.object_use_count(array) == before + 1
    np.testing.assert_array_equal(again.numpy(), array.numpy())
    assert testing.device_test(weft.cpu(0), 1, 0) == weft.cpu(0)
    refuses(error.InvalidArgument, "another device", testing.device_test, weft.cpu(0), 2, 0)


def test_targets(monkeypatch):
    assert ("llvm", weft.cpu(0)) in testing.enabled_targets()
    assert testing.device_enabled("llvm") and testing.device_enabled("c") and not testing.device_enabled("metal")
    monkeypatch.setenv("TVM_TEST_TARGETS", "c")
    assert testing.enabled_targets() == [("c", weft.cpu(0))]
    assert testing.env.has_llvm() and testing.env.build_flag_enabled("USE_LLVM")
    assert not testing.env.build_flag_enabled("USE_METAL")


size = testing.parameter(3, 4)


@testing.parametrize_targets("llvm", "c", "metal")
def test_parametrized(target, dev, size):
    assert target in ("llvm", "c") and dev == weft.cpu(0) and size in (3, 4)


@testing.parametrize_targets("llvm", "c")
@testing.known_failing_targets("c")
def test_known_failure(target, dev):
    assert target == "llvm"


@testing.requires_llvm
def test_with_llvm():
    assert weft.target.codegen.llvm_version_major() >= 10


@testing.requires_cuda
def test_with_cuda():
    assert weft.cuda(0).exist


class TestTargetsOfFixtures:
    @testing.fixture
    def kind(self, target):
        return str(target).split()[0]

    @testing.parametrize_targets("llvm -num-cores=1")
    def test_a_fixture_may_be_the_only_one_that_takes_the_target(self, kind):
        assert kind == "llvm"

    @testing.parametrize_targets("llvm")
    def test_the_device_may_be_all_that_is_taken(self, dev):
        assert str(dev) == "cpu:0"
