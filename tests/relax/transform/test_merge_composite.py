"""Groups for one code generator hang together in one function, without circles; results stay."""

import numpy as np
import pytest

import weft
from tests.relax_models import written
from weft import relax
from weft.relax.analysis import well_formed
from weft.relax.dpl import is_op, wildcard
from weft.relax.transform import FuseOpsByPattern, MergeCompositeFunctions


def module(*lines):
    return written("x: (4, 4), w: (4, 4)", *lines)


PATTERNS = [
    ("one.matmul", is_op("relax.matmul")(wildcard(), wildcard())),
    ("one.relu", is_op("relax.nn.relu")(wildcard())),
    ("two.exp", is_op("relax.exp")(wildcard())),
]


def check(mod):
    grouped = FuseOpsByPattern(PATTERNS)(mod)
    new = MergeCompositeFunctions()(grouped)
    well_formed(new)
    rng = np.random.default_rng(0)
    args = [0.1 * rng.standard_normal((4, 4), np.float32) for _ in range(2)]
    results = []
    for m in (new, mod):
        found = relax.VirtualMachine(weft.compile(m, target="llvm"), weft.cpu())["main"](*args)
        results.append([t.numpy() for t in (found if isinstance(found, tuple) else (found,))])
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert not any(f.attrs.get("Composite") for _, f in new.items())
    assert MergeCompositeFunctions()(new) is new
    values = [b.value for block in new["main"].body.blocks for b in block.bindings]
    called = [new[v.op.name_hint] for v in values if isinstance(v, relax.Call) and isinstance(v.op, relax.GlobalVar)]
    return sorted(f.attrs["Codegen"] for f in called if f.attrs.get("Codegen")), new


def test_chains_are_one_function():
    names, new = check(module("a = R.matmul(x, w)", "b = R.nn.relu(a)", "c = R.matmul(b, w)"))
    assert names == ["one"]
    (func,) = [f for _, f in new.items() if f.attrs.get("Codegen")]
    symbol = func.attrs["global_symbol"]
    assert symbol.startswith("fused_relax_matmul_relax_nn_relu_relax_matmul") and symbol.endswith("_one")
    assert len([b for b in func.body.blocks[0].bindings if isinstance(b.value, relax.Function)]) >= 2


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("a = R.matmul(x, w); b = R.exp(a); c = R.matmul(b, w); d = R.sin(c); e = R.nn.relu(d)", "one one one two"),
        ("a = R.matmul(x, w); b = R.exp(a); c = R.matmul(a, b)", "one one two"),  # else a circle: exp lies between
        ("a = R.matmul(x, w); b = R.nn.relu(x); c = R.matmul(a, b); d = R.nn.relu(c)", "one"),
    ],
)
def test_generators_stay_apart_and_branches_join(lines, names):
    assert check(module(*lines.split("; ")))[0] == names.split()


def test_several_results():
    lines = ["a = R.matmul(x, w)", "b = R.nn.relu(a)", "c = R.sin(a)", "d = R.add(b, c)"]
    names, new = check(module(*lines))
    assert names == ["one"]
    assert isinstance(new["fused_relax_matmul_relax_nn_relu_one"].ret_ty, relax.TupleType)


def test_nothing_to_merge():
    mod = module("a = R.sin(x)")
    assert MergeCompositeFunctions()(mod) is mod


def test_equal_groups_are_one_function():
    lines = ["a = R.matmul(x, w)", "b = R.sin(a)", "c = R.matmul(b, w)"]
    names, new = check(module(*lines))
    assert names == ["one", "one"] and len([f for _, f in new.items() if f.attrs.get("Codegen")]) == 1
