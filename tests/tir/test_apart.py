"""What is known of the elements that instances of blocks and iterations of loops touch."""

import itertools
import random

import pytest

from weft import arith, ir, script, tir
from weft.tir.analysis import apart
from weft.tir.pipeline import lower

_VARS = [ir.Var(n, "int64") for n in "ijk"]


def _expression(r: random.Random, depth: int = 2) -> ir.PrimExpr:
    if depth == 0 or r.random() < 0.2:
        return r.choice([*_VARS, *_VARS, ir.int64(r.randint(0, 4))])
    a = _expression(r, depth - 1)
    return r.choice(
        [
            lambda: a + _expression(r, depth - 1),
            lambda: a * r.randint(1, 6),
            lambda: a // r.randint(1, 4),
            lambda: a % r.randint(1, 4),
            lambda: a - _expression(r, depth - 1),
            lambda: a * _expression(r, depth - 1),
        ]
    )()


def test_known_to_differ_means_differ():
    r, known = random.Random(3), 0
    for _ in range(400):
        extents = [r.choice([1, 2, 3, 4]) for _ in _VARS]
        starts = [r.choice([0, 0, 2]) for _ in _VARS]
        exprs = [_expression(r) for _ in range(r.randint(1, 3))]
        domain = {
            v: ir.Range.from_min_extent(ir.int64(s), ir.int64(n))
            for v, s, n in zip(_VARS, starts, extents, strict=True)
        }
        points = list(itertools.product(*(range(s, s + n) for s, n in zip(starts, extents, strict=True))))
        simplify = arith.Analyzer().simplify
        at = [{v: ir.int64(x) for v, x in zip(_VARS, p, strict=True)} for p in points]
        places = {tuple(ir.as_int(simplify(ir.substitute(e, m))) for e in exprs) for m in at}
        differ = len(places) == len(points)
        assert apart.values_apart(exprs, domain) == differ, (list(map(str, exprs)), starts, extents)
        known += differ
    assert 20 < known < 380


def test_symbolic_parts_of_a_fused_loop():
    n, m, f = ir.SizeVar("n", "int64"), ir.SizeVar("m", "int64"), ir.Var("f", "int64")
    domain = {f: ir.Range.from_min_extent(ir.int64(0), n * m)}
    assert apart.values_apart([f // m, f % m], domain)
    assert not apart.values_apart([f // m, f % n], domain)
    assert not apart.values_apart([f // m], domain)


def test_digits_of_a_fused_loop_that_threads_share():
    """Of threads within a block, whose number is no part of the sizes that the loop was fused of."""
    outer, t, n, m = ir.Var("outer", "int64"), ir.Var("t", "int64"), ir.SizeVar("n", "int64"), ir.SizeVar("m", "int64")
    at, threads = outer * 1024 + t, {t: ir.Range.from_min_extent(ir.int64(0), ir.int64(1 << 20))}
    assert apart.values_apart([at // 784, at // 28 % 28, at % 28], threads)
    assert apart.values_apart([at // 784, at % 784 // 28, at % 28], threads)
    assert apart.values_apart([at // (n * m * 64), at // (n * m) % 64, at // m % n, at % m], threads)
    assert not apart.values_apart([at // 784, at // 28 % 14, at % 28], threads)
    assert not apart.values_apart([at // 784, at // 56 % 14, at % 28], threads)
    assert not apart.values_apart([at // (n * m * 64), at // m % n, at % m], threads)
    assert not apart.values_apart([at // 28 % 28, at % 28], threads)


_BY_ADDRESS = """
@T.prim_func
def f(X: T.Buffer((4, 6), "int32"), C: T.Buffer((4, 6), "int32")):
    B = T.alloc_buffer((4, 6), "int32")
    for i, j in T.grid(4, 6):
        with T.block("A"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = X[v, w] * 2 + w
    for i in range(4):
        with T.block("P"):
            v = T.axis.spatial(4, i)
            T.reads(B[v, 0:6])
            T.writes(C[v, 0:6])
            T.evaluate(T.call_extern("int32", "copy", C.access_ptr("w", offset=v * 6), ADDRESS))
"""


@pytest.mark.parametrize("address", ['B.access_ptr("r", offset=v * 6)', "T.address_of(B[v, 0])"])
def test_memory_reached_by_address_stays_whole(address, monkeypatch):
    sch = tir.Schedule(script.from_source(_BY_ADDRESS.replace("ADDRESS", address)))
    sch.compute_at("A", sch.get_loops("P")[0])
    assert [r.buffer.name for r in sch.get(sch.get_block("P")).reads] == ["B"]
    bounded, box = [], apart._box
    monkeypatch.setattr(apart, "_box", lambda *given: bounded.append(given[1:3]) or box(*given))
    sch.parallel(sch.get_loops("P")[0])
    assert len(bounded) == len(set(bounded)) > 0  # what a block touches is found once
    allocations = [n for n in ir.walk(lower(sch.func).body) if isinstance(n, tir.AllocBuffer)]
    assert [ir.as_int(a.buffer.shape[0]) for a in allocations] == [24]
    uses = [n for n in ir.walk(allocations[0].body) if isinstance(n, tir.BufferLoad) and n.buffer.name == "B"]
    assert uses and all(n.buffer.data is allocations[0].buffer.data for n in uses)
