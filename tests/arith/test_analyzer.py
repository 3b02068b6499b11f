"""What passes rely on: fused indices, ceiling divisions, proofs under loop ranges and guards, speed and identity."""

import itertools
from math import prod

import numpy as np
import pytest

import weft
from tests.clock import soon
from weft import arith, error, ffi, ir, runtime
from weft.target import Target


def rng(extent, start=0):
    return ir.Range.from_min_extent(ir.as_expr(start), ir.as_expr(extent))


f, i, j, k = (ir.Var(n, "int32") for n in "fijk")
io, ii = ir.Var("io", "int32"), ir.Var("ii", "int32")
n, H, W, N = (ir.SizeVar(s, "int32") for s in ("n", "H", "W", "N"))


@pytest.mark.parametrize(
    ("h", "w"), [(H, W), (ir.as_expr(14), ir.as_expr(28)), (H, ir.as_expr(28)), (ir.as_expr(7), W)]
)
def test_fused_index_reassembles(h, w):
    an = arith.Analyzer()
    an.bind(f, ir.Range.from_min_extent(ir.as_expr(0), N * h * w))
    e = ir.FloorDiv(f, h * w) * (h * w) + ir.FloorMod(ir.FloorDiv(f, w), h) * w + ir.FloorMod(f, w)
    assert an.simplify(e) is f
    assert an.can_prove_equal(ir.FloorDiv(f, h * w), ir.FloorDiv(ir.FloorDiv(f, w), h))
    assert an.can_prove(ir.FloorDiv(f, h * w) < N)
    assert an.can_prove(ir.FloorMod(ir.FloorDiv(f, w), h) * w + ir.FloorMod(f, w) < h * w)


@pytest.mark.parametrize("rows", [1, N])
@pytest.mark.parametrize("shape", [(6, 16, 48, 5), (3, 7, 32), (9, 5, 16, 7, 3), (773, 2)])
def test_fused_and_split_index_reassembles(shape, rows):
    an, size = arith.Analyzer(), prod(shape)
    an.bind(io, ir.Range.from_min_extent(ir.as_expr(0), rows * size // 16))
    an.bind(ii, rng(16))
    e, size = (io * 16 + ii) // size * size, 1
    for n in reversed(shape):
        e, size = e + (io * 16 + ii) // size % n * size, size * n
    assert an.can_prove_equal(e, io * 16 + ii)
    assert not any(isinstance(x, ir.FloorDiv | ir.FloorMod) for x in ir.walk(an.simplify(e)))


@pytest.mark.parametrize("w", [W, ir.as_expr(8)])
def test_split_index_comes_apart(w):
    an = arith.Analyzer()
    an.bind(j, ir.Range.from_min_extent(ir.as_expr(0), w))
    assert an.simplify(ir.FloorDiv(i * w + j, w)) is i
    assert an.simplify(ir.FloorMod(i * w + j, w)) is j
    assert an.simplify(ir.FloorDiv((k * H + i) * w + j, w) - i - k * H).value == 0


def test_constant_division():
    an = arith.Analyzer()
    an.bind(ii, rng(8))
    assert an.simplify((n * 4 + 3) // 4) is n
    assert an.simplify((io * 16 + ii) % 8) is ii
    assert an.can_prove_equal((io * 8 + ii) // 16, io // 2)
    assert an.simplify((i * n + j) - i * n) is j
    assert an.simplify(n * 2 // 2) is n
    assert an.can_prove_equal(n - n // 8 * 8, n % 8)


def test_proofs_with_symbolic_ranges():
    an = arith.Analyzer()
    an.bind(ii, rng(8))
    an.bind(io, ir.Range.from_min_extent(ir.as_expr(0), n // 8))
    assert an.can_prove(io * 8 + ii < n)
    assert not an.can_prove(io * 8 + ii < n - 1)
    an.bind(j, ir.Range.from_min_extent(ir.as_expr(0), n * 8))
    assert an.can_prove(j // n * 8 + ii < 64)
    assert not an.can_prove(j // n * 8 + ii < 63)
    assert an.can_prove((n + 7) // 8 * 8 >= n)
    assert an.can_prove(ir.min_(i, n - 1) < n)
    assert an.can_prove_less((n + 7) // 8 * 8, n + 8)
    assert not an.can_prove_less((n + 7) // 8 * 8, n + 7)


@pytest.mark.parametrize("size", [n, (n + 7) // 8, (n - 1) // 2 + 1])
def test_guards_behind_whole_tiles(size):
    """Tiles of six, then of three, then of two take what is left each time, and need no guard."""
    an = arith.Analyzer()
    an.mark_global_non_neg(size)
    rests = (size // 6 * 6, 3, size % 6 // 3), (size // 6 * 6 + size % 6 // 3 * 3, 2, size % 3 // 2)
    for number, (begin, tile, count) in enumerate(rests):
        at = ir.Var(f"t{number}", "int64")
        an.bind(at, ir.Range.from_min_extent(ir.as_expr(0), count))
        assert an.can_prove(begin + at * tile + (tile - 1) < size)
        assert not an.can_prove(begin + at * tile + tile < size)
        with an.constraint_scope(an.simplify(count > 0)):  # one tile at most, whose number is no part of the guard
            assert an.can_prove(begin + (tile - 1) < size)
        assert not an.can_prove(begin + (tile - 1) < size)


def test_constraint_scope():
    an = arith.Analyzer()
    an.bind(ii, rng(8))
    with an.constraint_scope(io < n // 8):
        assert an.can_prove(io * 8 + ii < n)
        assert an.const_int_bound(io).max_value < (1 << 31)
    assert not an.can_prove(io * 8 + ii < n)
    with an.constraint_scope((n % 8).equal(0)):
        assert an.can_prove_equal(n // 8 * 8, n)
        assert an.modular_set(n).coeff % 8 == 0
    assert not an.can_prove_equal(n // 8 * 8, n)
    with an.constraint_scope(i.equal(3)):
        assert an.simplify(i + 1).value == 4
    b = ir.Var("b", "bool")
    with an.constraint_scope(b):
        assert an.simplify(ir.Select(b, i, j)) is i


def test_guarded_choices():
    an = arith.Analyzer()
    an.bind(i, rng(16))
    s = an.simplify(ir.if_then_else(i < 8, ir.min_(i, 8), ir.max_(i, 7)))
    assert s is i
    assert an.simplify(ir.if_then_else(i < 16, i, j)) is i
    assert an.simplify(ir.Select(i < 0, i, j)) is j


@pytest.mark.parametrize("least", [ir.min_, ir.max_])
def test_a_choice_whose_sides_are_equal_where_it_holds(least):
    an = arith.Analyzer()
    n = ir.SizeVar("n", "int64")
    far = least(n, ir.int64(512 if least is ir.min_ else 0))
    for choice in (
        ir.Select(ir.equal(n, 1), far, n),
        ir.Select(ir.logical_or(ir.equal(far, 1), ir.equal(n, 1)), far, n),
    ):
        assert an.simplify(choice) is n
    assert isinstance(an.simplify(ir.Select(ir.equal(n, 1), ir.int64(2), n)), ir.Select)


def test_casts():
    an = arith.Analyzer()
    an.bind(i, rng(100))
    wide = ir.Cast("int64", i)
    assert an.simplify(ir.Cast("int32", wide)) is i
    assert an.simplify(ir.Cast("int32", wide * 4) - i * 4).value == 0
    assert isinstance(an.simplify(ir.Cast("int32", ir.Var("m", "int64"))), ir.Cast)
    assert an.can_prove(wide < ir.IntImm("int64", 100))


def test_rebinding():
    an = arith.Analyzer()
    an.bind(i, rng(4))
    assert an.can_prove(i < 4)
    with pytest.raises(error.InvalidArgument):
        an.bind(i, rng(8))
    an.bind(i, rng(8), allow_override=True)
    assert not an.can_prove(i < 4)
    assert an.can_prove(i < 8)


def test_nothing_to_do_returns_the_same_object_quickly():
    exprs = [(i * n + j) * 4 + k + ir.Var(f"v{x}", "int32") for x in range(300)]

    def simplify():
        an = arith.Analyzer()
        an.bind(i, rng(64))
        assert all(an.simplify(e) is e for e in exprs)

    soon(len(exprs) * 1e-3, simplify)  # half of it on a core of its own


def test_int_set():
    an = arith.Analyzer()
    dom = {io: ir.Range.from_min_extent(ir.as_expr(0), n // 8), ii: rng(8)}
    s = an.int_set(io * 8 + ii, dom)
    assert an.can_prove_equal(s.min_value, 0)
    assert an.can_prove_equal(s.max_value, n // 8 * 8 - 1)
    s = an.int_set((io * 8 + ii) // 4 + j, dom)
    assert an.can_prove_equal(s.min_value, j)
    s = an.int_set(ir.min_(io * 8 + ii, n - 1), {io: ir.Range.from_min_extent(ir.as_expr(0), (n + 7) // 8), ii: rng(8)})
    assert an.can_prove(s.max_value <= n - 1)
    assert not an.int_set(ir.Var("free", "int32") * ii, dom).has_upper_bound


def test_vectors():
    from weft.ir import LT, Add, Broadcast, Mul, Ramp

    an = arith.Analyzer()
    an.bind(i, rng(16))
    lanes = Ramp(i * 8, ir.as_expr(1), 8)
    four = Broadcast(ir.as_expr(4), 8)
    s = an.simplify(Add(Mul(lanes, four), four))
    assert isinstance(s, Ramp) and s.stride.value == 4
    assert an.can_prove_equal(s.base, i * 32 + 4)
    s = an.simplify(ir.FloorDiv(lanes, Broadcast(ir.as_expr(8), 8)))
    assert isinstance(s, Broadcast) and s.value is i
    s = an.simplify(ir.FloorMod(lanes, Broadcast(ir.as_expr(8), 8)))
    assert isinstance(s, Ramp) and s.base.value == 0
    assert an.simplify(LT(lanes, Broadcast(ir.as_expr(128), 8))).value.value == 1
    assert isinstance(an.simplify(LT(lanes, Broadcast(ir.as_expr(127), 8))), LT)


def test_infinite_limits_stay_infinite_when_constants_are_added():
    an = arith.Analyzer()
    w, x = ir.SizeVar("w", "int64"), ir.Var("x", "int64")
    an.mark_global_non_neg(w)
    assert an.const_int_bound(x + ir.int64(5)).min_value == an.const_int_bound(x + ir.int64(5)).NEG_INF
    far = an.simplify(x * 3 - 2 >= ir.int64(-(1 << 63)) + ir.max_(ir.min_(ir.int64(1), x * 3), 0))
    assert not any(isinstance(e, ir.IntImm) and e.value > 3 for e in ir.walk(far))  # x * 3 + (2**63 - 2) would wrap
    an.bind(x, ir.Range.from_min_extent(ir.int64(0), w * (w - ir.int64(1))))
    even = x % (w - ir.int64(1)) % ir.int64(2) == ir.int64(0)
    assert not isinstance(an.simplify(even), ir.IntImm)  # w = 4, x = 1 says otherwise


def test_int_set_without_domains_takes_the_variables_that_numbers_bound():
    an, x, n = arith.Analyzer(), ir.Var("x"), ir.Var("n")
    an.bind(x, ir.Range(0, 8))
    assert [e.value for e in (an.int_set(x + 1).min_value, an.int_set(x + 1).max_value)] == [1, 8]
    twin = an.clone()
    twin.update(x, arith.ConstIntBound(2, 3), True)
    assert [twin.int_set(x).max_value.value, an.int_set(x).max_value.value] == [3, 7]
    assert an.int_set(n + 1).is_single_point and an.int_set(x, {}).is_single_point
    values = (
        an,
        x,
        ir.IRModule(),
        Target("llvm"),
        runtime.tensor([1.0]),
        runtime.ShapeTuple([1]),
        ffi.get_global_func("testing.echo"),
    )
    assert all(isinstance(v, weft.Object) for v in values) and not isinstance(3, runtime.Object)


def test_zeros_of_two_signs_are_two_numbers():
    zeros = [ir.FloatImm("float32", z) for z in (0.0, -0.0)]
    assert isinstance(arith.Analyzer().simplify(ir.Select(ir.Var("p", "bool"), *zeros)), ir.Select)


def test_conversions_that_cut_off_stay():
    kinds, numbers = ("int8", "uint8", "int16", "int32", "uint32", "int64"), (-(2**40) - 7, -129, 0, 300, 2**31, 2**40)
    for own, inner, outer in itertools.product(kinds, repeat=3):
        x = ir.Var("x", own)
        found = arith.Analyzer().simplify(ir.Cast(outer, ir.Cast(inner, x)))
        for given in np.array(numbers).astype(own):
            value = arith.Analyzer().simplify(ir.substitute(found, {x: ir.const(int(given), own)}))
            assert value.value == int(given.astype(inner).astype(outer)), (own, inner, outer, given)


def test_what_a_condition_guards_is_not_divided_elsewhere():
    """Of ``(x + k*7) // 3`` the numerator is known to be held by its type, but only where it stands."""
    x, k, an = ir.Var("x", "int32"), ir.Var("k", "int32"), arith.Analyzer()
    guarded, nested = (x + k * 7) // 21, (x // 7 + k) // 3
    with an.constraint_scope(x < 9):
        an.simplify(guarded)
        assert an.can_prove_equal(nested, guarded)
    assert ir.structural_equal(an.simplify(nested), nested)
