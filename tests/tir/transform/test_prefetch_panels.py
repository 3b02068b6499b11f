"""Products with large packed weights ask for the next panel while they are at one, every line of it."""

import numpy as np
import pytest

import weft
from weft import arith, target, te
from weft.ir import CallIntrin, Var, as_int, const, int64, substitute, walk
from weft.tir import BufferLoad, Evaluate, For, ForKind, LetStmt
from weft.tir.pipeline import lower
from weft.tir.schedule import schedule_func
from weft.topi.matmul import matmul_packed

TARGET = target.Target("llvm -mattr=-amx-tile -l1-cache-ways=12 -l2-cache-bytes=2097152")
K, N, PANEL = 576, 512, 32
pytestmark = pytest.mark.skipif(TARGET.vector_bits < 512, reason="panels of these widths are tiles of 512-bit vectors")


def product(rows, k=K, n=N):
    x = te.placeholder((rows, int64(k)), "float32", "x")
    w = te.placeholder((int64(n // PANEL), int64(k), int64(PANEL)), "float32", "w")
    func = te.create_prim_func([x, w, matmul_packed(x, w, n)])
    return schedule_func(func, TARGET).with_attr("tir.is_scheduled", True)


def asked_for(func):
    """List (loops and named values around it, place) of each prefetch in a lowered function."""
    found = []

    def visit(node, loops):
        if isinstance(node, Evaluate) and isinstance(node.value, CallIntrin) and node.value.op.name == "tir.prefetch":
            (load,) = (n for n in walk(node.value.args[0]) if isinstance(n, BufferLoad))
            found.append((loops, load.indices[0]))
        inner = [*loops, node] if isinstance(node, (For, LetStmt)) else loops
        for name in node.__struct_fields__:
            value = getattr(node, name)
            for child in value if isinstance(value, tuple) else (value,):
                if hasattr(child, "__struct_fields__") and type(child).__module__ == "weft.tir.stmt":
                    visit(child, inner)

    visit(func.body, [])
    return found


@pytest.mark.parametrize("rows", [16, 40, 64, 197])
def test_the_whole_next_panel(rows):
    prefetches = asked_for(lower(product(int64(rows)), TARGET))
    assert prefetches
    lines = set()
    analyzer = arith.Analyzer()
    for loops, place in prefetches:
        *outer, tiles, steps = loops
        first = {f.loop_var: const(0, f.loop_var.dtype) for f in outer}
        count = as_int(tiles.extent)
        if tiles.kind == ForKind.PARALLEL:  # over panels and tiles: those of the first panel
            count //= 512 // (64 if rows < 22 else PANEL)
        for t in range(count):
            for s in range(as_int(steps.extent)):
                at = {**first, tiles.loop_var: const(t, "int64"), steps.loop_var: const(s, "int64")}
                lines.add(as_int(analyzer.simplify(substitute(place, at))) // 16)
    width = next(w for w in (64, 32) if min(lines) * 16 == K * w)  # the panels of one tile
    assert lines >= set(range(K * width // 16, 2 * K * width // 16))


def places(around, place, known):
    """Enumerate the values of a place under loops and named values, with those of some variables given."""
    analyzer = arith.Analyzer()

    def value(expr):
        return as_int(analyzer.simplify(substitute(expr, known)))

    if not around:
        return {value(place)}
    node, *rest = around
    if isinstance(node, LetStmt):
        return places(rest, place, {**known, node.var: const(value(node.value), node.var.dtype)})
    values = [0] if node.kind == ForKind.PARALLEL else range(value(node.extent))  # of panels, the first
    found = set()
    for v in values:
        found |= places(rest, place, {**known, node.loop_var: const(v, node.loop_var.dtype)})
    return found


@pytest.mark.parametrize("rows", [8, 19, 40])
def test_unknown_rows_ask_for_a_panel_once(rows):
    n_rows = Var("rows", "int64")
    ((around, place),) = asked_for(lower(product(n_rows), TARGET))
    lines = sorted(x // 16 for x in places(around, place, {n_rows: int64(rows)}))
    width = lines[0] * 16 // K  # of the panels of one tile
    panel = K * width // 16
    assert lines[-1] < 2 * panel
    assert len(lines) == panel or (len(lines) < panel and rows == 8)  # few rows leave a part to the tile itself


def test_small_weights_stay_where_they_are():
    assert not asked_for(lower(product(int64(64), 64, 128), TARGET))


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 30])
def test_values_with_an_unknown_number_of_rows(rows):
    func = product(Var("rows", "int64"))
    assert asked_for(lower(func, TARGET))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((rows, K)).astype("float32"), rng.standard_normal((K, N)).astype("float32")
    packed = np.ascontiguousarray(w.reshape(K, N // PANEL, PANEL).transpose(1, 0, 2))
    out = weft.runtime.tensor(np.zeros((rows, N), "float32"))
    weft.build(func, target=TARGET)["main"](weft.runtime.tensor(x), weft.runtime.tensor(packed), out)
    np.testing.assert_allclose(out.numpy(), x @ w, rtol=1e-3, atol=1e-3)
