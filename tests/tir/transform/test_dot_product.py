"""Groups of narrow products as one instruction: recognised where they are, left alone elsewhere, equal to the loop."""

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import machine, te, tir
from weft.ir import IRModule, cast, walk
from weft.target import Target, get_source
from weft.tir.pipeline import lower
from weft.tir.schedule import default_schedule
from weft.tir.transform import DOT_GROUPS, dot_product

FORMS = {form[0]: form for form in DOT_GROUPS}


def product(m: int, n: int, k: int, left: str, panel: int = 32) -> tir.PrimFunc:
    """A product whose second operand is packed in groups of neighbouring summands."""
    (_, right, total), group = FORMS[left], DOT_GROUPS[FORMS[left]]
    a = te.placeholder((m, k), left, name="A")
    w = te.placeholder((-(-n // panel), k // group, panel * group), right, name="W")
    r = te.reduce_axis((0, k), name="r")

    def element(i, j):
        return te.sum(cast(total, a[i, r]) * cast(total, w[j // panel, r // group, (j % panel) * group + r % group]), r)

    return te.create_prim_func([a, w, te.compute((m, n), element, name="C")])


def operands(m: int, n: int, k: int, left: str, panel: int = 32):
    """Random factors, the second one packed, and their product."""
    rng, group = np.random.default_rng(m * n + k), DOT_GROUPS[FORMS[left]]
    if left != "bfloat16":
        a, b = rng.integers(0, 256, (m, k)).astype(left), rng.integers(-128, 128, (k, n)).astype(np.int8)
        expected = a.astype(np.int32) @ b.astype(np.int32)
    else:
        a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
        expected = a.astype(np.float64) @ b.astype(np.float64)
    padded = np.zeros((k, -(-n // panel) * panel), b.dtype)
    padded[:, :n] = b
    packed = padded.reshape(k // group, group, -1, panel).transpose(2, 0, 3, 1).reshape(-1, k // group, panel * group)
    return a, np.ascontiguousarray(packed), expected


def needs(left: str) -> Target:
    target = Target("llvm -mattr=-amx-tile")  # tiles would take the products of pairs
    if not any(form[:3] == FORMS[left] for form in target.dot_forms):
        pytest.skip("the machine has no such instruction")
    return target


@pytest.mark.parametrize("left", FORMS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 32, 16), (7, 64, 24), (13, 96, 100), (64, 19, 48), (9, 5, 24)])
def test_products(left, m, n, k):
    target = needs(left)
    func = default_schedule(product(m, n, k, left), target)
    a, w, expected = operands(m, n, k, left)
    result = weft.runtime.tensor(np.zeros((m, n), FORMS[left][2]))
    weft.build(func, target=target)["main"](weft.runtime.tensor(a), weft.runtime.tensor(w), result)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("columns", [1, 3, 8, 64])
@pytest.mark.parametrize("left", FORMS)
def test_instruction_is_used(left, columns):
    target = needs(left)
    text = get_source(default_schedule(product(16, columns, 64, left), target), target, "asm")
    bytes_ = "vpdpbusd" if target.machine.adds_four_bytes else "vpmaddwd"
    assert ("vdpbf16ps" if left == "bfloat16" else bytes_) in text


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("left", ["uint8", "int16"])
def test_bytes_widen_where_no_instruction_adds_four(left):
    """Sums are exact where pairs of products leave 16 bits, and no register goes to the stack."""
    target = Target("llvm -mcpu=x86-64-v3")
    func = default_schedule(product(16, 32, 64, left), target)
    a, w, _ = operands(16, 32, 64, left)
    a[:], w[:] = 255, -128
    result = weft.runtime.tensor(np.zeros((16, 32), np.int32))
    weft.build(func, target=target)["main"](weft.runtime.tensor(a), weft.runtime.tensor(w), result)
    np.testing.assert_array_equal(result.numpy(), -128 * 255 * 64)
    wide = Target("llvm -mcpu=skylake-avx512 -num-cores=2 -vector-width=512")
    for t, register in ((target, "ymm"), (wide, "zmm")):
        text = get_source(default_schedule(product(16, 32, 64, left), t), t, "asm")
        assert "vpmaddwd" in text and "vpmulld" not in text and f"(%rsp), %{register}" not in text


def test_without_the_instruction_the_loop_stays():
    target = Target("llvm -mcpu=x86-64-v2")
    func = lower(default_schedule(product(8, 32, 16, "uint8"), target), target)
    assert not any(getattr(getattr(n, "op", None), "name", "") == "tir.dot_accumulate" for n in walk(func.body))


@pytest.mark.parametrize("left", FORMS)
def test_interpreter_defines_it(left):
    four_lanes = type("FourLanes", (machine.Machine,), {"dot_forms": ((*FORMS[left], 4),)})(cores=1)
    func = lower(default_schedule(product(3, 32, 8, left), four_lanes), four_lanes)
    assert [n for n in walk(func.body) if getattr(getattr(n, "op", None), "name", "") == "tir.dot_accumulate"]
    a, w, expected = operands(3, 32, 8, left)
    out = np.zeros((3, 32), FORMS[left][2])
    tir.interpret(func, a, w, out)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)


def test_other_sums_are_left_alone():
    x = te.placeholder((64,), "uint8", name="x")
    r = te.reduce_axis((0, 4), name="r")
    y = te.compute((16,), lambda i: te.sum(cast("int32", x[i * 4 + r]), r), name="y")
    func = lower(default_schedule(te.create_prim_func([x, y]), Target("llvm")), Target("llvm"))
    assert dot_product(forms=Target("llvm").dot_forms)(IRModule({"main": func}))["main"] is func
