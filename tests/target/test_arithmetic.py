"""Every operation on every data type.

Native code against the interpreter, scalar and vector, on three instruction sets.
"""

import itertools
import operator

import numpy as np
import pytest

import weft
from tests.target.programs import check_native, elementwise, function, load, loop, sample, store
from tests.topi.running import evaluate
from weft import ir, te, tir
from weft.target import Target, get_source
from weft.tir import And, Or, decl_buffer
from weft.tir.schedule import default_schedule

INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
N = 23
BINARY = [operator.add, operator.sub, operator.mul, ir.Div, ir.Mod, ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max]
COMPARE = [ir.EQ, ir.NE, ir.LT, ir.LE, ir.GT, ir.GE]


def run_all(makes, dtypes, outs, lanes, target="llvm", args=None):
    """Check several functions of the same inputs in one kernel; those with one type of result share an output."""
    rng = np.random.default_rng(len(dtypes) * 7 + lanes)
    args = args or [sample(d, N, rng) for d in dtypes]
    ins = [decl_buffer((ir.int64(N),), d, f"x{n}") for n, d in enumerate(dtypes)]
    outs = [outs] * len(makes) if isinstance(outs, str) else outs
    sizes = {out: outs.count(out) * 24 for out in outs}
    results = {out: decl_buffer((ir.int64(size),), out, f"y_{out}") for out, size in sizes.items()}
    nests = []
    for k, (make, out) in enumerate(zip(makes, outs, strict=True)):
        kernel = elementwise(make, dtypes, out, ir.int64(N), lanes)
        buffers = [b for _, b in kernel.buffer_map]
        mapping = dict(zip(buffers[:-1], ins, strict=True))
        body = tir.substitute(kernel.body, mapping)

        base = ir.int64(outs[:k].count(out) * 24)

        def place(n, old=buffers[-1], new=results[out], base=base):
            return tir.BufferStore(new, n.value, (n.indices[0] + base,)) if getattr(n, "buffer", None) is old else n

        nests.append(tir.rewrite(body, place))
    found = [np.zeros(size, ir.numpy_dtype(out)) for out, size in sizes.items()]
    check_native(function([*ins, *results.values()], tir.seq(*nests)), args, *found, target=target)


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("dtype", INTS + FLOATS)
def test_binary(dtype, lanes):
    run_all(BINARY + COMPARE, [dtype, dtype], [dtype] * len(BINARY) + ["bool"] * len(COMPARE), lanes)


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("dtype", INTS)
def test_bits_and_integer_powers(dtype, lanes):
    names = ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"]
    rng = np.random.default_rng(5)
    amounts = rng.integers(0, 70, N).astype(dtype)
    makes = [lambda a, b, n=n: ir.CallIntrin(a.dtype, ir.Op.get("tir." + n), (a, b)) for n in names]
    run_all(makes, [dtype, dtype], dtype, lanes, args=[sample(dtype, N, rng), amounts])
    powers = rng.integers(0, 9, N).astype(dtype)
    run_all([tir.power], [dtype, dtype], dtype, lanes, args=[sample(dtype, N, rng), powers])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("source", [*INTS, *FLOATS, "bool"])
def test_casts(source, lanes, target):
    outs = [out for out in [*INTS, *FLOATS, "bool"] if out != source]
    run_all([lambda x, out=out: ir.Cast(ir.DataType(out), x) for out in outs], [source], outs, lanes, target)


def test_every_half_converts_exactly():
    bits = np.arange(1 << 16, dtype=np.uint16)
    for target in ("llvm", "llvm -mcpu=x86-64"):
        for dtype in ("float16", "bfloat16"):
            values = bits.view(ir.numpy_dtype(dtype))
            widen = elementwise(lambda x: ir.Cast("float32", x), [dtype], "float32", ir.int64(1 << 16), 8)
            out = np.zeros(1 << 16, np.float32)
            tir_build(widen, target)(values, out)
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(out, values.astype(np.float32))


def tir_build(func, target):
    from weft.target import build

    return build(func, target)["main"]


def test_float64_to_half_rounds_once():
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (halves[1:] + halves[:-1]) / 2
    x = np.concatenate([middles, np.nextafter(middles, 0), np.nextafter(middles, 1e9), -middles])
    func = elementwise(lambda v: ir.Cast("float16", v), ["float64"], "float16", ir.int64(len(x)), 8)
    for target in ("llvm", "llvm -mcpu=x86-64"):
        out = np.zeros(len(x), np.float16)
        tir_build(func, target)(x, out)
        np.testing.assert_array_equal(out, x.astype(np.float16))


@pytest.mark.parametrize("divisor", [-7, -4, -1, 0, 1, 3, 8])
def test_division_by_constants(divisor):
    run_all(
        [
            lambda x, cls=cls: cls(
                x,
                ir.Broadcast(ir.const(divisor, "int32"), 8)
                if ir.DataType(x.dtype).lanes > 1
                else ir.const(divisor, "int32"),
            )
            for cls in (ir.Div, ir.Mod, ir.FloorDiv, ir.FloorMod)
        ],
        ["int32"],
        "int32",
        0,
    )


def test_bool_logic_and_short_circuit():
    """The right side of a conjunction is evaluated only where the left side holds."""
    x, y = decl_buffer((ir.int64(4),), "int32", "x"), decl_buffer((ir.int64(6),), "int32", "y")
    func = function(
        [x, y],
        loop(
            6,
            lambda i: tir.IfThenElse(
                And(i < 4, load(x, i) > 0),
                store(y, i, ir.const(1, "int32")),
                tir.IfThenElse(Or(i >= 4, load(x, i) < -5), store(y, i, ir.const(2, "int32"))),
            ),
        ),
    )
    check_native(func, [np.array([3, -1, -9, 5], np.int32)], np.zeros(6, np.int32))


def test_shuffle_ramp_broadcast():
    x, y = decl_buffer((ir.int64(8),), "float32", "x"), decl_buffer((ir.int64(8),), "float32", "y")
    vector = tir.BufferLoad(x, (ir.Ramp(ir.int64(0), ir.int64(1), 4),))
    other = tir.BufferLoad(x, (ir.Ramp(ir.int64(4), ir.int64(1), 4),))
    swapped = ir.Shuffle((vector, other), tuple(ir.int64(i) for i in (7, 0, 6, 1)))
    lane = ir.Shuffle((vector,), (ir.int64(2),))
    body = tir.seq(
        tir.BufferStore(y, swapped, (ir.Ramp(ir.int64(0), ir.int64(1), 4),)),
        tir.BufferStore(y, ir.Broadcast(lane, 4), (ir.Ramp(ir.int64(7), ir.int64(-1), 4),)),
    )
    check_native(function([x, y], body), [np.arange(8, dtype=np.float32)], np.zeros(8, np.float32))


def test_gather_scatter_masked():
    x, at = decl_buffer((ir.int64(16),), "float32", "x"), decl_buffer((ir.int64(8),), "int32", "at")
    y = decl_buffer((ir.int64(16),), "float32", "y")
    lanes = ir.Ramp(ir.int64(0), ir.int64(1), 8)
    index = tir.BufferLoad(at, (lanes,))
    mask = index >= ir.Broadcast(ir.const(0, "int32"), 8)
    body = tir.BufferStore(y, tir.BufferLoad(x, (index,), mask), (index,), mask)
    args = [
        np.random.default_rng(0).normal(size=16).astype(np.float32),
        np.array([3, -1, 0, 15, 7, -9, 2, 8], np.int32),
    ]
    check_native(function([x, at, y], body), args, np.zeros(16, np.float32))


def test_float8_is_moved():
    x, y = decl_buffer((ir.int64(5),), "float8_e4m3fn", "x"), decl_buffer((ir.int64(5),), "float8_e4m3fn", "y")
    func = function([x, y], loop(5, lambda i: store(y, i, load(x, ir.int64(4) - i))))
    values = np.arange(5).astype(ir.numpy_dtype("float8_e4m3fn"))
    out = np.zeros(5, values.dtype)
    tir_build(func, "llvm")(values, out)
    np.testing.assert_array_equal(out.view(np.uint8), values[::-1].view(np.uint8))


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_division_behind_a_test_is_found_ahead_of_the_loop(symbolic):
    """Its divisor may be zero there, or -1: a guard keeps it from trapping where the test does not hold."""
    ib = tir.ir_builder.create()
    n, m = tir.Var("n", "int32"), tir.Var("m", "int32")
    A = tir.decl_buffer((8,), "int32", "A")
    a = ib.buffer_ptr(A)
    with ib.for_range(0, n if symbolic else 8, name="i") as i, ib.if_scope(i < m):
        a[i] = n // m + n % m + tir.truncdiv(n, m) + i
    pa = tir.Var("a", "handle")
    func = tir.PrimFunc((pa, n, m), ib.get(), buffer_map=((pa, A),))
    text = weft.target.get_source(func, Target("llvm"), "ll")
    assert max(text.rindex(word) for word in ("sdiv i32", "srem i32")) < text.index("phi i32")
    f = weft.build(func, target="llvm")
    out = np.zeros(8, "int32")
    f(out, 8, 0)
    f(out, -(2**31) if not symbolic else 0, -1)
    assert not out.any()
    f(out, 8, 3)
    assert out.tolist() == [2 + 2 + 2 + i if i < 3 else 0 for i in range(8)]


def test_a_divisor_that_wraps_round_to_zero():
    """Positive by its bounds, zero in the machine: as any other zero it gives zero, and no trap."""
    n, m, pa = tir.Var("n", "int64"), tir.Var("m", "int64"), tir.Var("a", "handle")
    A = tir.decl_buffer((2,), "int64", "A")
    ib = tir.ir_builder.create()
    a = ib.buffer_ptr(A)
    divisor = ir.Max(m, ir.int64(1)) * ir.int64(4)
    a[0], a[1] = n // divisor, n % divisor
    f = weft.build(tir.PrimFunc((pa, n, m), ib.get(), buffer_map=((pa, A),)), target="llvm")
    out = np.full(2, 9, "int64")
    f(out, 17, 2**62)
    assert not out.any()
    f(out, 17, 2)
    assert out.tolist() == [2, 1]


@pytest.mark.parametrize(("dtype", "rounded"), itertools.product(["uint8", "int8", "uint16", "int16"], [False, True]))
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_vectors_become_narrow_integers(dtype, rounded, back, target):
    """Saturated, NaN as 0, ties to the even number; and no detour by integers where they become float32 again."""
    info = np.iinfo(dtype)
    special = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -0.9]
    special += [end + part for end, part in ((info.max, 0.4), (info.max, 0.6), (info.min, -0.4), (info.min, -0.6))]
    x = np.concatenate([special, np.random.default_rng(0).uniform(info.min - 9, info.max + 9, 117)]).astype("float32")

    def element(value):
        value = ir.cast(dtype, tir.round(value) if rounded else value)
        return ir.cast("float32", value) if back else value

    out = evaluate(lambda t: te.compute(x.shape, lambda i: element(t[i])), x, target=target)
    clean = np.nan_to_num(x.astype(np.float64), nan=0.0)
    expected = np.clip(np.rint(clean) if rounded else np.trunc(clean), info.min, info.max)
    np.testing.assert_array_equal(out, expected.astype(dtype))


@pytest.mark.parametrize(
    ("source", "dtype"), itertools.product(["float32", "float64"], ["int32", "uint32", "int64", "uint64"])
)
@pytest.mark.parametrize("target", TARGETS)
def test_vectors_become_wide_integers(source, dtype, target):
    """Truncated and saturated, NaN as 0, the numbers next to the limits exactly."""
    info, near = np.iinfo(dtype), [np.nextafter(np.array(2.0**p, source), 0) for p in (31, 32, 63, 64)]
    values = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, 0.9, -0.9, -1.0, -(2.0**31), -(2.0**63), *near]
    values += [2.0**p for p in (31, 32, 63, 64)]
    x = np.concatenate([values, np.random.default_rng(0).uniform(-1e10, 1e10, 120)]).astype(source)
    out = evaluate(lambda t: te.compute(x.shape, lambda i: ir.cast(dtype, t[i])), x, target=target)
    expected = [
        0 if np.isnan(v) else info.max if v >= info.max else info.min if v <= info.min else int(v) for v in x.tolist()
    ]
    assert out.tolist() == expected


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_vectors_become_words_without_taking_elements_out(source):
    x = te.placeholder((64,), source, name="x")
    func = te.create_prim_func([x, te.compute((64,), lambda i: weft.ir.cast("int64", x[i]))])
    haswell = Target("llvm -mcpu=haswell")
    assert "fptosi" not in get_source(default_schedule(func, haswell), haswell)
