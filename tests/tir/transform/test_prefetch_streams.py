"""A sum of several loops asks for the lines of the next panel of weights, each tile for its part."""

import itertools

import pytest

from weft import arith, tir
from weft.ir import CallIntrin, IRModule, as_int, const, substitute, walk
from weft.script import tir as T
from weft.tir.transform import prefetch_streams

PANELS, LINE = 3, 16


def product(tiles: int, taps: int, channels: int, marked: int):
    """A sum over taps and channels for each tile of each panel; loop `marked` of the sum has the annotation."""
    panel = taps * channels * LINE
    notes = [{"pragma_prefetch_panel": panel} if i == marked else {} for i in range(2)]

    @T.prim_func
    def func(a: T.Buffer((PANELS * panel,), "float32"), b: T.Buffer((PANELS * tiles * LINE,), "float32")):
        for i in T.parallel(PANELS * tiles):
            b[T.Ramp(i * LINE, 1, LINE)] = T.Broadcast(T.float32(0), LINE)
            for j in T.serial(taps, annotations=notes[0]):
                for k in T.serial(channels, annotations=notes[1]):
                    b[T.Ramp(i * LINE, 1, LINE)] = (
                        b[T.Ramp(i * LINE, 1, LINE)]
                        + a[T.Ramp(((i // tiles * taps + j) * channels + k) * LINE, 1, LINE)]
                    )

    return func


def lines_by_panel(func) -> list[list[int]]:
    """The lines that are asked for while each panel is read, in the order of the loops."""
    places = [
        n.args[0].args[0].indices[0]
        for n in walk(func.body)
        if isinstance(n, CallIntrin) and n.op.name == "tir.prefetch"
    ]
    used = {v for p in places for v in walk(p)}
    loops = [n for n in walk(func.body) if isinstance(n, tir.For) and n.loop_var in used]
    found: list[list[int]] = [[] for _ in range(PANELS)]
    for values in itertools.product(*[range(as_int(f.extent)) for f in loops]):
        at = {f.loop_var: const(v, f.loop_var.dtype) for f, v in zip(loops, values, strict=True)}
        tiles = as_int(loops[0].extent) // PANELS
        found[values[0] // tiles] += [as_int(arith.Analyzer().simplify(substitute(p, at))) // LINE for p in places]
    return found


@pytest.mark.parametrize("marked", [0, 1])
@pytest.mark.parametrize(("tiles", "taps", "channels"), [(2, 1, 8), (4, 3, 8), (7, 9, 2), (5, 2, 7)])
def test_the_whole_next_panel_and_no_more(tiles, taps, channels, marked):
    func = prefetch_streams()(IRModule({"main": product(tiles, taps, channels, marked)}))["main"]
    size = taps * channels
    for panel, lines in enumerate(lines_by_panel(func)):
        assert set(lines) == set(range((panel + 1) * size, (panel + 2) * size))
    assert not any("pragma_prefetch_panel" in n.annotations for n in walk(func.body) if isinstance(n, tir.For))


def test_panels_that_cannot_be_told_are_not_asked_for():
    @T.prim_func
    def func(a: T.Buffer((256,), "float32"), b: T.Buffer((128,), "float32")):
        for i in T.serial(8):
            b[T.Ramp(i * 16, 1, 16)] = T.Broadcast(T.float32(0), 16)
            for k in T.serial(8, annotations={"pragma_prefetch_panel": 128}):
                b[T.Ramp(i * 16, 1, 16)] = b[T.Ramp(i * 16, 1, 16)] + a[T.Ramp((i % 3 + k) * 16, 1, 16)]

    assert "tir.prefetch" not in str(prefetch_streams()(IRModule({"main": func}))["main"])
