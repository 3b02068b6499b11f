"""Sizes are computed exactly or refused: random expressions of numbers of 64 bits, beside Python's integers."""

import random

import weft
from tests.arith.test_simplify_property import evaluate
from tests.refusals import refuses
from weft import ir, relax

NUMBERS = (0, 1, -1, 2, 7, -12, 2**31, 2**32 + 1, -(2**33), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), -(2**62) - 1)
STEPS = (ir.Add, ir.Sub, ir.Mul, ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max)


def drawn(rng, variables, depth):
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([*variables, *variables, ir.int64(rng.choice(NUMBERS))])
    a, b = (drawn(rng, variables, depth - 1) for _ in range(2))
    if rng.random() < 0.2:
        return ir.if_then_else(ir.not_equal(variables[0], 0), a, b)
    return rng.choice(STEPS)(a, b)


def holds(e, env):
    """Whether 64 bits hold each part of an expression that counts."""
    if isinstance(e, ir.CallIntrin):
        return holds(e.args[1] if evaluate(e.args[0], env) else e.args[2], env)
    if not isinstance(e, ir.BinaryOp):
        return True
    limit = 2**63 - 2**13 * isinstance(e, ir.Mul)  # products are told apart by float64
    divides = isinstance(e, (ir.FloorDiv, ir.FloorMod))
    parts = holds(e.a, env) and holds(e.b, env) and not (divides and evaluate(e.b, env) == 0)
    return parts and -limit <= evaluate(e, env) < limit


def test_sizes_are_exact_or_refused():
    rng, module, asked, answers = random.Random(7), ir.IRModule(), {}, 0
    variables = [ir.Var(n, "int64") for n in "abc"]
    for i in range(60):
        builder = relax.BlockBuilder(module)
        with builder.function(f"f{i}", [relax.Var("sizes", ir.ShapeType(tuple(variables)))]):
            asked[f"f{i}"] = drawn(rng, variables, 3)
            builder.emit_func_output(builder.emit(ir.ShapeExpr((asked[f"f{i}"],))))
        module = builder.get()
    for mode in ("bytecode", "compiled"):
        vm = relax.VirtualMachine(weft.compile(module, "llvm", exec_mode=mode), weft.cpu())
        for name, e in [*asked.items()] * 40:
            env = {v: rng.choice(NUMBERS) for v in variables}
            given = weft.runtime.ShapeTuple(env.values())
            if holds(e, env):
                answers += 1
                assert list(vm[name](given)) == [evaluate(e, env)], (str(e), env.values())
            else:
                refuses(weft.error.InvalidArgument, f"(?s){name}: .* cannot be computed.*operands", vm[name], given)
    assert 1000 < answers < 4000
