"""Rewriters that are written as modules."""

import pytest

from weft import ir
from weft.error import InvalidArgument
from weft.script import ir as I  # noqa: E741, N812
from weft.script import relax as R  # noqa: N812


@R.rewriter
class Doubled:
    @R.function
    def pattern(x: R.Tensor(["n"], "float32"), y: R.Tensor(["n"], "float32")):
        s = R.add(x, y)
        return R.exp(s)

    @R.function
    def replacement(x: R.Tensor(["n"], "float32"), y: R.Tensor(["n"], "float32")):
        z = Doubled.helper(x, y)
        return R.tanh(z)

    @R.function(private=True)
    def helper(x: R.Tensor(["n"], "float32"), y: R.Tensor(["n"], "float32")) -> R.Tensor(["n"], "float32"):
        return R.multiply(x, y)


def program(dtype="float32", effect=False):
    if not effect:

        @I.ir_module
        class Pure:
            @R.function
            def main(a: R.Tensor((4,), dtype), b: R.Tensor((4,), dtype)):
                c = R.add(a, b)
                d = R.exp(c)
                return d

        return Pure

    @I.ir_module
    class Impure:
        @R.function(pure=False)
        def main(a: R.Tensor((4,), dtype), b: R.Tensor((4,), dtype)):
            c = R.add(a, b)
            _ = R.print(format="between")
            d = R.exp(c)
            return d

    return Impure


@I.ir_module
class Expected:
    @R.function
    def main(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
        c = Expected.helper(a, b)
        d = R.tanh(c)
        return d

    @R.function(private=True)
    def helper(x: R.Tensor(["n"], "float32"), y: R.Tensor(["n"], "float32")) -> R.Tensor(["n"], "float32"):
        return R.multiply(x, y)


def test_a_match_becomes_the_replacement_and_its_subroutines_come_along():
    ir.assert_structural_equal(Doubled(program()), Expected)
    ir.assert_structural_equal(ir.Sequential([Doubled])(program()), Expected)


@pytest.mark.parametrize("mod", [program("float16"), program(effect=True)])
def test_other_types_and_effects_between_are_no_match(mod):
    ir.assert_structural_equal(Doubled(mod), mod)


@I.ir_module
class Parts:
    @R.function
    def pattern(x: R.Tensor((4,), "float32")):
        return R.exp(x)

    @R.function
    def narrow(x: R.Tensor((3,), "float32")):
        return R.exp(x)


@pytest.mark.parametrize(
    ("functions", "error", "says"),
    [
        ({"pattern": "pattern"}, KeyError, "replacement"),
        ({"replacement": "pattern"}, KeyError, "pattern"),
        ({"pattern": "pattern", "replacement": "narrow"}, InvalidArgument, "same signature"),
        ({"pattern": "pattern", "replacement": "pattern", "more": "pattern"}, InvalidArgument, "publicly exposed"),
    ],
)
def test_incomplete_rewriters(functions, error, says):
    with pytest.raises(error, match=says):
        R.rewriter(ir.IRModule({name: Parts[of] for name, of in functions.items()}))
