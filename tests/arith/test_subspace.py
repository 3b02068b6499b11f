"""subspace_divide: both parts together are the index, and the inner one depends on the sub-iterators alone."""

import itertools
import random

from weft import arith, ir

X, Y, Z, C = (ir.Var(n, "int32") for n in "xyzc")


def text(pairs):
    return [[str(arith.Analyzer().simplify(arith.normalize_iter_map_to_expr(m.source))) for m in p] for p in pairs[:-1]]


def domain(*extents):
    return {v: ir.Range(0, n) for v, n in zip((X, Y, Z), extents, strict=False)}


def test_each_group_decides_its_part():
    pairs = arith.subspace_divide([Z * 12 + Y * 3 + X + C], domain(3, 4, 5), [X], Z * 4 + Y < 18)
    assert text(pairs) == [["z * 4 + y", "x + c"]]
    assert [m.extent.value for m in pairs[0]] == [20, 3]
    assert [str(m.extent) for m in pairs[-1]] == ["z * 4 + y < 18", "T.bool(True)"]
    assert text(arith.subspace_divide([X * 2 + Y // 4, (Y % 4) * 5 + Z], domain(3, 8, 5), [Z])) == [
        ["x * 2 + y // 4", "0"],
        ["y % 4", "z"],
    ]


def test_what_mixes_the_groups_is_not_divided():
    assert arith.subspace_divide([Z * 12 + Y * 3 + X], domain(3, 4, 5), [Y]) == []
    assert arith.subspace_divide([Z * 12 + Y * 3 + X], domain(3, 4, 5), [X], Y * 3 + X < 7) == []
    assert arith.subspace_divide([Y * Y], domain(3, 4), [X]) == []


def test_parts_make_the_index():
    r, divided = random.Random(1), 0
    for _ in range(150):
        extents = [r.choice([1, 2, 3, 4, 6]) for _ in range(3)]
        fused = (Z * extents[1] + Y) * extents[0] + X
        size = extents[0] * extents[1] * extents[2]
        cut = r.choice([n for n in range(1, size + 1) if size % n == 0])
        bindings = r.choice([[fused], [fused // cut, fused % cut], [fused % cut, Z], [X, Y * extents[2] + Z]])
        sub = r.sample([X, Y, Z], r.randint(0, 3))
        dom = domain(*extents)
        pairs = arith.subspace_divide(bindings, dom, sub)
        if not pairs or not arith.detect_iter_map(bindings, dom).indices:
            continue
        divided += bool(0 < len(sub) < 3)
        for e, (outer, inner) in zip(bindings, pairs[:-1], strict=True):
            assert isinstance(outer, arith.IterMark)
            parts = [arith.normalize_iter_map_to_expr(m.source) for m in (outer, inner)]
            assert {n for n in ir.walk(parts[1]) if isinstance(n, ir.Var)} <= set(sub)
            assert {n for n in ir.walk(parts[0]) if isinstance(n, ir.Var)}.isdisjoint(sub)
            for point in itertools.product(*map(range, extents)):
                at = {v: ir.const(x, "int32") for v, x in zip((X, Y, Z), point, strict=True)}
                value, o, i = (ir.as_int(arith.Analyzer().simplify(ir.substitute(x, at))) for x in (e, *parts))
                assert value == o * inner.extent.value + i and i < inner.extent.value and o < outer.extent.value
    assert divided > 20
