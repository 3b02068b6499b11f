"""Sizes are computed exactly or refused: random expressions of numbers of 64 bits, beside Python's integers."""

from __future__ import annotations

import random

import weft
from tests.refusals import refuses
from weft import ir, relax

_NUMBERS = (0, 1, -1, 2, 7, -12, 2**31, 2**32 + 1, -(2**33), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), -(2**62) - 1)
_STEPS = {
    ir.Add: lambda a, b: a + b,
    ir.Sub: lambda a, b: a - b,
    ir.Mul: lambda a, b: a * b,
    ir.FloorDiv: lambda a, b: a // b,
    ir.FloorMod: lambda a, b: a % b,
    ir.Min: min,
    ir.Max: max,
}


def _drawn(rng: random.Random, variables: list[ir.Var], depth: int) -> ir.PrimExpr:
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([*variables, *variables, ir.int64(rng.choice(_NUMBERS))])
    a, b = (_drawn(rng, variables, depth - 1) for _ in range(2))
    if rng.random() < 0.2:
        return ir.if_then_else(ir.not_equal(variables[0], 0), a, b)
    return rng.choice(list(_STEPS))(a, b)


def _exact(e: ir.PrimExpr, numbers: dict[ir.Var, int]) -> int:
    """Compute a value, an OverflowError where 64 bits do not hold a part of it that counts."""
    if isinstance(e, ir.Var):
        return numbers[e]
    if isinstance(e, ir.CallIntrin):
        return _exact(e.args[2 - (_exact(e.args[0].a, numbers) != 0)], numbers)
    if isinstance(e, ir.IntImm):
        return e.value
    value = _STEPS[type(e)](_exact(e.a, numbers), _exact(e.b, numbers))
    limit = 2**63 - 2**13 * isinstance(e, ir.Mul)  # products are told apart by float64
    if not -limit <= value < limit:
        raise OverflowError
    return value


def test_sizes_are_exact_or_refused() -> None:
    rng = random.Random(7)
    a, b, c = variables = [ir.Var(n, "int64") for n in "abc"]
    module, asked = ir.IRModule(), {}
    for i in range(60):
        sizes = relax.Var("sizes", ir.ShapeType(tuple(variables)))
        builder = relax.BlockBuilder(module)
        with builder.function(f"f{i}", [sizes]):
            asked[f"f{i}"] = _drawn(rng, variables, 3)
            builder.emit_func_output(builder.emit(ir.ShapeExpr((asked[f"f{i}"],))))
        module = builder.get()
    for mode in ("bytecode", "compiled"):
        vm = relax.VirtualMachine(weft.compile(module, "llvm", exec_mode=mode), weft.cpu())
        answers = 0
        for name, e in asked.items():
            for _ in range(40):
                given = [rng.choice(_NUMBERS) for _ in variables]
                try:
                    expected = _exact(e, dict(zip(variables, given, strict=True)))
                except (OverflowError, ZeroDivisionError):
                    text = f"(?s){name}: .* cannot be computed\n  expected a .*found the operands"
                    refuses(weft.error.InvalidArgument, text, vm[name], weft.runtime.ShapeTuple(given))
                else:
                    answers += 1
                    assert list(vm[name](weft.runtime.ShapeTuple(given))) == [expected], (str(e), given)
        assert answers > 400
