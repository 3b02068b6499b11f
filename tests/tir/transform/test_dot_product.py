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
from weft.tir.transform import dot_product

FORMS = {4: ("uint8", "int8", "int32"), 2: ("bfloat16", "bfloat16", "float32")}


def product(m: int, n: int, k: int, group: int, panel: int = 32) -> tir.PrimFunc:
    """A product whose second operand is packed in groups of neighbouring summands."""
    left, right, total = FORMS[group]
    a = te.placeholder((m, k), left, name="A")
    w = te.placeholder((-(-n // panel), k // group, panel * group), right, name="W")
    r = te.reduce_axis((0, k), name="r")

    def element(i, j):
        return te.sum(cast(total, a[i, r]) * cast(total, w[j // panel, r // group, (j % panel) * group + r % group]), r)

    return te.create_prim_func([a, w, te.compute((m, n), element, name="C")])


def operands(m: int, n: int, k: int, group: int, panel: int = 32):
    """Random factors, the second one packed, and their product."""
    rng = np.random.default_rng(m * n + k)
    if group == 4:
        a, b = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
        expected = a.astype(np.int32) @ b.astype(np.int32)
    else:
        a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
        expected = a.astype(np.float64) @ b.astype(np.float64)
    padded = np.zeros((k, -(-n // panel) * panel), b.dtype)
    padded[:, :n] = b
    packed = padded.reshape(k // group, group, -1, panel).transpose(2, 0, 3, 1).reshape(-1, k // group, panel * group)
    return a, np.ascontiguousarray(packed), expected


def needs(group: int) -> Target:
    target = Target("llvm -mattr=-amx-tile")  # tiles would take the products of pairs
    if not any(form[:3] == FORMS[group] for form in target.dot_forms):
        pytest.skip("the machine has no such instruction")
    return target


@pytest.mark.parametrize("group", [4, 2])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 32, 16), (7, 64, 24), (13, 96, 100), (64, 19, 48), (9, 5, 24)])
def test_products(group, m, n, k):
    target = needs(group)
    func = default_schedule(product(m, n, k, group), target)
    a, w, expected = operands(m, n, k, group)
    out = np.zeros((m, n), FORMS[group][2])
    result = weft.runtime.tensor(out)
    weft.build(func, target=target)["main"](weft.runtime.tensor(a), weft.runtime.tensor(w), result)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("columns", [1, 3, 8, 64])
@pytest.mark.parametrize("group", [4, 2])
def test_instruction_is_used(group, columns):
    target = needs(group)
    text = get_source(default_schedule(product(16, columns, 64, group), target), target, "asm")
    bytes_ = "vpdpbusd" if target.machine.adds_four_bytes else "vpmaddwd"
    assert (bytes_ if group == 4 else "vdpbf16ps") in text


@pytest.mark.usefixtures("optimised")
def test_bytes_widen_where_no_instruction_adds_four():
    """Sums are exact where pairs of products leave 16 bits, and no register goes to the stack."""
    target = Target("llvm -mcpu=x86-64-v3")
    func = default_schedule(product(16, 32, 64, 4), target)
    a, w, _ = operands(16, 32, 64, 4)
    a[:], w[:] = 255, -128
    result = weft.runtime.tensor(np.zeros((16, 32), np.int32))
    weft.build(func, target=target)["main"](weft.runtime.tensor(a), weft.runtime.tensor(w), result)
    np.testing.assert_array_equal(result.numpy(), -128 * 255 * 64)
    wide = Target("llvm -mcpu=skylake-avx512 -num-cores=2 -vector-width=512")
    for t, register in ((target, "ymm"), (wide, "zmm")):
        text = get_source(default_schedule(product(16, 32, 64, 4), t), t, "asm")
        assert "vpmaddwd" in text and "vpmulld" not in text and f"(%rsp), %{register}" not in text


def test_without_the_instruction_the_loop_stays():
    target = Target("llvm -mcpu=x86-64-v2")
    func = lower(default_schedule(product(8, 32, 16, 4), target), target)
    assert not any(getattr(getattr(n, "op", None), "name", "") == "tir.dot_accumulate" for n in walk(func.body))


@pytest.mark.parametrize("group", [4, 2])
def test_interpreter_defines_it(group):
    class FourLanes(machine.Machine):
        """A machine whose instruction has four lanes."""

        dot_forms = ((*FORMS[group], 4),)

    func = lower(default_schedule(product(3, 32, 8, group), FourLanes(cores=1)), FourLanes(cores=1))
    found = [n for n in walk(func.body) if getattr(getattr(n, "op", None), "name", "") == "tir.dot_accumulate"]
    assert found
    a, w, expected = operands(3, 32, 8, group)
    out = np.zeros((3, 32), FORMS[group][2])
    tir.interpret(func, a, w, out)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)


def test_other_sums_are_left_alone():
    x = te.placeholder((64,), "uint8", name="x")
    r = te.reduce_axis((0, 4), name="r")
    y = te.compute((16,), lambda i: te.sum(cast("int32", x[i * 4 + r]), r), name="y")
    func = lower(default_schedule(te.create_prim_func([x, y]), Target("llvm")), Target("llvm"))
    mod = IRModule({"main": func})
    assert dot_product(forms=Target("llvm").dot_forms)(mod)["main"] is func
