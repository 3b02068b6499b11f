"""Intrinsics of matrix tiles: the interpreter, the instructions and the registers' checks agree."""

import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.target import amx_emulation as amx
from weft.target import Target, get_source
from weft.tir import TILE_KINDS, PrimFunc, Var, decl_buffer, interpret, seq, tile_intrinsic
from weft.tir.tiles import TileRegisters

SPR = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"


def product(kind: str, m: int, n: int, groups: int, steps: int) -> PrimFunc:
    """``C = sum of A[s] @ B[s]``, one tile each."""
    left, right, total = (np.dtype(t).name for t in TILE_KINDS[kind])
    group = 4 // np.dtype(TILE_KINDS[kind][0]).itemsize
    a = decl_buffer((steps, m, groups * group), left, "A")
    b = decl_buffer((steps, groups, n * group), right, "B")
    c = decl_buffer((m, n), total, "C")
    body = [tile_intrinsic("configure", m, 4 * n, m, 4 * groups, groups, 4 * n), tile_intrinsic("zero", 0)]
    for s in range(steps):
        body += [
            tile_intrinsic("load", 1, a.access_ptr("r", offset=s * m * groups * group), 4 * groups),
            tile_intrinsic("load", 2, b.access_ptr("r", offset=s * groups * n * group), 4 * n),
            tile_intrinsic("dot", kind, 0, 1, 2),
        ]
    body += [tile_intrinsic("store", 0, c.access_ptr("w"), 4 * n), tile_intrinsic("release")]
    buffers = (a, b, c)
    params = tuple(Var(x.name, "handle") for x in buffers)
    return PrimFunc(params, seq(*body), None, tuple(zip(params, buffers, strict=True)))


def operands(kind: str, m: int, n: int, groups: int, steps: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    left, right, total = TILE_KINDS[kind]
    group = 4 // np.dtype(left).itemsize

    def draw(dtype, shape):
        if kind == "bf16":
            return (rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)).astype(dtype)
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)

    a, b = draw(left, (steps, m, groups * group)), draw(right, (steps, groups, n * group))
    wide = b.reshape(steps, groups, n, group).transpose(0, 1, 3, 2).reshape(steps, groups * group, n)
    exact = np.einsum("smk,skn->mn", a.astype(np.float64), wide.astype(np.float64))
    return a, b, np.full((m, n), 99, total), exact


@pytest.mark.parametrize("kind", TILE_KINDS)
@pytest.mark.parametrize("shape", [(16, 16, 16, 3), (5, 16, 16, 1), (16, 3, 7, 2), (1, 1, 1, 1)])
def test_the_instructions_do_what_the_interpreter_does(kind, shape):
    func = product(kind, *shape)
    a, b, c, exact = operands(kind, *shape)
    interpret(func, a, b, c)
    np.testing.assert_allclose(c, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    found = np.full_like(c, 7)
    weft.build(func, amx.target())(a, b, found)
    np.testing.assert_array_equal(found.view(np.int32), c.view(np.int32))
    assert not amx.is_configured()


def test_denormals_are_zeros_and_special_values_pass():
    func = product("bf16", 16, 16, 1, 1)
    rng = np.random.default_rng(1)
    special = np.array([0, -0.0, 1e-40, -1e-39, 1e38, -3e38, np.inf, -np.inf, np.nan, 1, 1e-20], np.float32)
    a, b = (rng.choice(special, s).astype(ml_dtypes.bfloat16) for s in ((1, 16, 2), (1, 1, 32)))
    c, found = np.zeros((16, 16), np.float32), np.ones((16, 16), np.float32)
    interpret(func, a, b, c)
    weft.build(func, amx.target())(a, b, found)
    np.testing.assert_array_equal(found, c)
    assert np.isnan(c).any() and np.isinf(c).any() and np.isfinite(c).any()


@pytest.mark.usefixtures("optimised")
def test_assembly():
    text = get_source(product("bf16", 16, 16, 16, 1), SPR, fmt="asm")
    for wanted in ("ldtilecfg", r"tilezero\s+%tmm0", "tileloadd", r"tdpbf16ps\s+%tmm2, %tmm1, %tmm0", "tilestored"):
        assert re.search(wanted, text), wanted
    assert text.index("ldtilecfg") < text.index("tilezero") < text.index("tilerelease")


def test_targets_without_tiles_refuse():
    for kind, target, feature in (
        ("bf16", SPR + " -mattr=-amx-tile", "amx-tile"),
        ("uint8int8", SPR + " -mattr=-amx-int8", "amx-int8"),
    ):
        with pytest.raises(weft.error.CodegenError, match=f"no {feature}"):
            get_source(product(kind, 16, 16, 16, 1), Target(target), fmt="asm")


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.zero(0),
        lambda t: t.configure(17, 64),
        lambda t: t.configure(*[1, 4] * 9),
        lambda t: (t.configure(16, 64, 16, 64, 16, 64), t.dot("bf16", 0, 0, 1)),
        lambda t: (t.configure(16, 64, 8, 64, 16, 64), t.dot("bf16", 0, 1, 2)),
        lambda t: (t.configure(16, 64), t.load(0, np.zeros(1023, np.uint8), 0, 64)),
        lambda t: (t.configure(16, 64), t.release(), t.zero(0)),
    ],
)
def test_what_registers_refuse(use):
    with pytest.raises(weft.error.LoweringError):
        use(TileRegisters())
