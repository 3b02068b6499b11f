"""Scheduled kernels execute their blocks about as often as they say, and have the same loops however a size is written.

Each operator has an operand before or behind it that is broadcast along some dimensions.
"""

import numpy as np
import pytest

from tests.relax_models import model
from weft import arith, ir, relax
from weft.relax import op
from weft.relax.core_ops import is_op
from weft.relax.pipeline import graph_passes
from weft.relax.rewriter import all_bindings
from weft.script import relax as R
from weft.target import Target
from weft.tir.analysis.structure import used_vars
from weft.tir.schedule.rules.select import schedule_func
from weft.tir.stmt import BlockRealize, For, IfThenElse, SeqStmt

TARGET = Target("llvm")


def ones(*shape):
    return relax.const(np.ones(shape, "float32"))


OPERATORS = {
    "matmul": ((3, 100, 64), (0, 1), lambda x: op.matmul(x, ones(64, 96))),
    "product of both": ((3, 50, 64), (0, 1), lambda x: op.matmul(x, op.permute_dims(x, (0, 2, 1)))),
    "heads": ((2, 3, 40, 32), (0, 2), lambda x: op.matmul(x, ones(32, 48))),
    "conv1x1": ((2, 32, 20, 20), (0, 2, 3), lambda x: op.nn.conv2d(x, ones(48, 32, 1, 1))),
    "conv3x3": ((2, 16, 21, 21), (0, 2, 3), lambda x: op.nn.conv2d(x, ones(32, 16, 3, 3), padding=1, strides=2)),
    "depthwise": ((2, 32, 20, 20), (0, 2, 3), lambda x: op.nn.conv2d(x, ones(32, 1, 3, 3), padding=1, groups=32)),
    "grouped": ((2, 32, 20, 20), (0, 2, 3), lambda x: op.nn.conv2d(x, ones(32, 8, 3, 3), padding=1, groups=4)),
    "transposed": ((2, 16, 10, 10), (0, 2, 3), lambda x: op.nn.conv2d_transpose(x, ones(16, 24, 4, 4), strides=2)),
    "conv1d": ((2, 16, 60), (0, 2), lambda x: op.nn.conv1d(x, ones(32, 16, 5), padding=2)),
    "conv3d": ((1, 8, 8, 12, 12), (0, 2, 3, 4), lambda x: op.nn.conv3d(x, ones(16, 8, 3, 3, 3), padding=1)),
    "sum": ((3, 40, 50), (0, 1, 2), lambda x: op.sum(x, axis=-1, keepdims=True)),
    "mean of columns": ((3, 40, 50), (0, 1, 2), lambda x: op.mean(x, axis=1, keepdims=True)),
    "softmax": ((3, 40, 50), (0, 1, 2), lambda x: op.nn.softmax(x, axis=-1)),
    "softmax of columns": ((3, 40, 50), (0, 1, 2), lambda x: op.nn.softmax(x, axis=1)),
    "layer norm": ((3, 40, 64), (0, 1), lambda x: op.nn.layer_norm(x, ones(64), ones(64), axes=[-1])),
    "max pool": ((2, 16, 20, 20), (0, 2, 3), lambda x: op.nn.max_pool2d(x, pool_size=3, strides=2, padding=1)),
    "mean pool": ((2, 16, 20, 20), (0, 2, 3), lambda x: op.nn.avg_pool2d(x, pool_size=3, padding=1)),
    "cumulative sum": ((3, 40, 50), (0, 1, 2), lambda x: op.cumsum(x, axis=1)),
    "concatenation": ((3, 40, 50), (0, 1, 2), lambda x: op.concat([x, x], axis=1)),
}
CASES = [
    (name, unknown, before, mask)
    for name, (shape, *_) in OPERATORS.items()
    for unknown in (False, True)
    for before in (False, True)
    for mask in range(2 ** len(shape))
]


def kernels(name, unknown, before, mask, size=lambda n: n):
    """The kernels of an operator times an operand, each with the numbers that its unknown sizes stand for."""
    numbers, open_, operator = OPERATORS[name]
    sizes = {i: size(ir.SizeVar(f"n{i}", "int64")) for i in open_} if unknown else {}
    shape = tuple(sizes.get(i, n) for i, n in enumerate(numbers))
    x = relax.Var("x", R.Tensor(shape, "float32"))
    out = relax.BlockBuilder().normalize(operator(x)).ty.shape
    wide = (d if mask >> i & 1 else 1 for i, d in enumerate(shape if before else out))
    y = relax.Var("y", R.Tensor(tuple(wide), "float32"))

    def product(x, y):
        return operator(op.multiply(x, y)) if before else op.multiply(operator(x), y)

    mod = ir.Sequential(graph_passes(TARGET))(model(product, x, y))
    known = {v: numbers[i] for i, v in sizes.items()}
    calls = [b.value for b in all_bindings(mod["main"]) if is_op(b.value, "call_tir")]
    return [(mod[c.args[0]], inside(c, mod[c.args[0]], known)) for c in calls]


def inside(call, func, known):
    """The numbers that a kernel's sizes stand for at a call."""
    out = call.ty.fields if isinstance(call.ty, relax.TupleType) else (call.ty,)
    shapes = [t.shape for t in (*(a.ty for a in call.args[1].fields), *out)]
    pairs = [p for (_, b), shape in zip(func.buffer_map, shapes, strict=True) for p in zip(b.shape, shape, strict=True)]
    if len(call.args) > 2:
        pairs += zip(func.params[-len(call.args[2].values) :], call.args[2].values, strict=True)
    an, values = arith.Analyzer(), {v: ir.int64(n) for v, n in known.items()}
    return {d: ir.as_int(an.simplify(ir.substitute(e, values))) for d, e in pairs if isinstance(d, ir.Var)}


def executions(func, known):
    """How often blocks without loops inside are executed."""
    an = arith.Analyzer()
    free = {v for _, b in func.buffer_map for d in b.shape for v in used_vars(d)}
    inner = {}

    def number(e, values):
        return ir.as_int(an.simplify(ir.substitute(e, values)))

    def decides(stmt):
        if id(stmt) not in inner:
            parts = [e for f in ir.find(stmt, For) for e in (f.min, f.extent)]
            parts += [e for b in ir.find(stmt, BlockRealize) if ir.find(b.block.body, For) for e in b.iter_values]
            inner[id(stmt)] = {v for e in parts for v in used_vars(e)}
        return inner[id(stmt)]

    def count(stmt, values):
        if isinstance(stmt, For):
            n = number(stmt.extent, values)
            if stmt.loop_var not in decides(stmt.body):
                return n and n * count(stmt.body, values)
            first = number(stmt.min, values)
            each = (ir.const(first + i, stmt.loop_var.dtype) for i in range(n))
            return sum(count(stmt.body, {**values, stmt.loop_var: i}) for i in each)
        if isinstance(stmt, SeqStmt):
            return sum(count(x, values) for x in stmt.seq)
        if isinstance(stmt, BlockRealize):
            bound = {
                iv.var: ir.substitute(v, values) for iv, v in zip(stmt.block.iter_vars, stmt.iter_values, strict=True)
            }
            return count(stmt.block.body, {**values, **bound}) if ir.find(stmt.block.body, For) else 1
        if isinstance(stmt, IfThenElse):
            return max(count(x, values) for x in (stmt.then_case, stmt.else_case) if x is not None)
        return count(stmt.body, values) if hasattr(stmt, "body") else 1

    return count(func.body, {v: ir.const(known[v], v.dtype) for v in free})


@pytest.mark.share(20, None)
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)).replace(" ", "_"))
def test_elements_are_computed_once(case):
    for f, known in kernels(*case):
        # parts of sums, tiles that reach over an end and padding are further work: a whole row for each element is not
        assert executions(schedule_func(f, TARGET), known) <= 4 * executions(f, known)


@pytest.mark.parametrize("name", OPERATORS)
def test_loops_do_not_depend_on_how_a_size_is_written(name):
    def kinds(size):
        scheduled = [schedule_func(f, TARGET) for f, _ in kernels(name, True, False, 2, size)]
        return [[loop.kind for loop in ir.find(f.body, For)] for f in scheduled]

    assert kinds(lambda n: (n + 2) // 4 + 1) == kinds(lambda n: n)
