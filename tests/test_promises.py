"""What the README says one may rely on, as a user would try to break it."""

import gc
import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from onnx import helper

import weft
from tests import onnx_models
from tests.refusals import refuses
from tests.threads import at_once
from weft import relax, relay
from weft.error import InvalidArgument, NestedTooDeep, OutOfMemory
from weft.frontend.onnx import from_onnx
from weft.frontend.torch import from_exported_program, from_fx


@pytest.fixture(scope="module")
def aliasing():
    """Views, a constant, and one value under several names."""
    names = ["same", "flat", "r", "again", "rows", "constant"]
    nodes = [
        helper.make_node(*n)
        for n in (
            ("Identity", ["x"], ["same"]),
            ("Reshape", ["x", "s"], ["flat"]),
            ("Relu", ["x"], ["r"]),
            ("Identity", ["r"], ["again"]),
            ("Flatten", ["r"], ["rows"]),
            ("Identity", ["c"], ["constant"]),
        )
    ]
    weights = {"s": np.array([-1]), "c": np.arange(3, dtype="float32")}
    shapes = [["n", 4], ["m"], ["n", 4], ["n", 4], ["n", 4], [3]]
    outputs = {n: ("float32", s) for n, s in zip(names, shapes, strict=True)}
    return onnx_models.model(nodes, {"x": ("float32", ["n", 4])}, outputs, weights)


def python(program: str, *arguments: object) -> str:
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- outputs are fresh -----------------------------------------------------------------------------------------------


def test_outputs_share_memory_with_nothing(aliasing):
    session = weft.Session(aliasing)
    x = np.arange(8, dtype="float32").reshape(2, 4) - 3
    kept = x.copy()
    outputs = [o.numpy() for o in session.run({"x": x})]
    for i, a in enumerate(outputs):
        assert not np.shares_memory(a, x)
        assert not any(np.shares_memory(a, b) for b in outputs[i + 1 :])
        a.fill(1000 + i)
    np.testing.assert_array_equal(x, kept)
    again = [o.numpy() for o in session.run({"x": x})]
    np.testing.assert_array_equal(again[0], x)
    np.testing.assert_array_equal(again[3], np.maximum(x, 0))
    np.testing.assert_array_equal(again[5], [0, 1, 2])


def test_a_later_run_changes_no_output(aliasing):
    """Also one that is given outputs, and after the session is gone."""
    session = weft.Session(aliasing)
    x = np.arange(8, dtype="float32").reshape(2, 4)
    first = session.run({"x": x})
    kept = [o.numpy().copy() for o in first]
    for _ in range(5):
        second = session.run({"x": first[0]})
        session.run({"x": -second[2].numpy()})
        session.run({"x": np.ones((50, 4), "float32")})
    x.fill(-1)
    views = [o.numpy() for o in first]
    del session, second, first
    gc.collect()
    [weft.Session(aliasing).run({"x": np.full((2, 4), 9, "float32")}) for _ in range(2)]
    for a, b in zip(views, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_do_not_change_each_others_outputs(aliasing):
    session = weft.Session(aliasing)
    wrong = []

    def work(i):
        x = np.full((3, 4), i, "float32")
        kept = [session.run({"x": x}) for _ in range(100)]
        for outputs in kept:
            wrong.extend(i for o in outputs[:5] if not (o.numpy() == i).all())

    at_once(lambda i: work(i + 1), 4)
    assert wrong == []


# ---- arrays, and wrong inputs ----------------------------------------------------------------------------------------


def test_arrays_go_in_without_a_copy():
    """A packed function sees the caller's own address; for other arrays it sees another one."""
    seen = []
    weft.register_func("test.promise.see", lambda t: seen.append(t.numpy().ctypes.data) or t, override=True)
    source = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_packed("test.promise.see", x, ty_args=(R.Tensor((n,), "float32"),))
        return y
"""
    session = weft.Session(weft.compile(weft.script.from_source(source)))
    given = np.arange(64, dtype="float32")
    names = session.inputs[0].name
    session.run({names: given})
    assert seen.pop() == given.ctypes.data
    fixed = given.copy()
    fixed.flags.writeable = False
    for other in (np.arange(128, dtype="float32")[::2], fixed):
        before = other.copy()
        out = session.run({names: other})[0]
        assert seen.pop() != other.ctypes.data
        out.numpy().fill(5)
        np.testing.assert_array_equal(other, before)


WRONG_VALUES = (None, "text", [[1, "a"]], object(), [[1.0], [1.0, 2.0]], np.array(["a"]), 10**400, lambda: 1)
WRONG_ARRAYS = (np.ones((2, 8), t) for t in ("int64", "float64", ">f4")), (np.ones(s, "float32") for s in (8, (2, 9)))
WRONG = ({"x": value} for value in itertools.chain(WRONG_VALUES, *WRONG_ARRAYS))


@pytest.mark.parametrize("feeds", [{}, {"x": np.ones((2, 8), "float32"), "y": 1}, {1: 2}, [1], None, "x", *WRONG])
def test_wrong_inputs_leave_a_session_that_works(feeds):
    session = weft.Session(onnx_models.linear()[0])
    right = {"x": np.ones((2, 8), "float32")}
    before = session.run(right)[0].numpy().copy()
    caught = refuses(weft.WeftError, "", session.run, feeds)
    assert "expected" in str(caught) or "found" in str(caught)
    np.testing.assert_array_equal(session.run(right)[0].numpy(), before)


# ---- every error is Weft's -------------------------------------------------------------------------------------------


def absurd(op, *, tile=False):
    first = {} if op == "ConstantOfShape" else {"x": ("float32", ["n"] if tile else [1])}
    inputs = {**first, "s": ("int64", [1 if tile else 2])}
    node = helper.make_node(op, list(inputs), ["y"], name=f"/block/{op}")
    session = weft.Session(onnx_models.model([node], inputs, {"y": ("float32", None)}))
    return session, {n: np.ones(4 if tile else 1, "float32") for n in first}


@pytest.mark.parametrize("op", ["Expand", "ConstantOfShape", "Tile"])
@pytest.mark.parametrize("sizes", [(1 << 40, 1 << 19), (1 << 47, 1 << 20), (1 << 45, 1)], ids=str)
def test_absurd_sizes_are_out_of_memory(op, sizes):
    session, given = absurd(op, tile=op == "Tile")
    usual = np.array([3] if op == "Tile" else [3, 1])
    caught = refuses(OutOfMemory, "", session.run, {**given, "s": np.array(sizes[:1] if op == "Tile" else sizes)})
    assert isinstance(caught, MemoryError)
    assert "lv" not in str(caught) and "vm.builtin" not in str(caught)
    assert f'ONNX node 0 "/block/{op}" ({op})' in str(caught) and "cannot allocate" in str(caught)
    assert session.run({**given, "s": usual})[0].numpy().size in (3, 12)


def test_negative_sizes_are_refused():
    session, given = absurd("ConstantOfShape")
    refuses(weft.WeftError, "", session.run, {"s": np.array([-3, 1])})


def test_deep_programs_are_compiled_or_refused():
    """More operations than Python's stack is deep; and a recursion without end."""
    nodes = [helper.make_node("Neg", [f"x{i}"], [f"x{i + 1}"]) for i in range(200)]
    session = weft.Session(onnx_models.model(nodes, {"x0": ("float32", [2])}, {"x200": ("float32", [2])}))
    np.testing.assert_array_equal(session.run({"x0": np.ones(2, "float32")})[0].numpy(), [1, 1])
    expression = weft.te.placeholder((4,), name="a")
    total = expression[0]
    for _ in range(2000):
        total = total + 1.0
    func = weft.te.create_prim_func([expression, weft.te.compute((4,), lambda i: total, name="b")])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(700)
    try:
        refuses(NestedTooDeep, "nested deeper", weft.build, func)
    finally:
        sys.setrecursionlimit(limit)
    source = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.add(x, x)
        z: R.Tensor((2,), "float32") = Module.main(y)
        w = R.add(z, y)
        return w
"""
    machine = weft.relax.VirtualMachine(weft.compile(weft.script.from_source(source)), weft.cpu())
    refuses(NestedTooDeep, "nested calls", machine["main"], np.ones(2, "float32"))


@pytest.mark.parametrize("depth", [5, 60, 5000])
def test_deep_models_are_refused(depth):
    refuses(weft.WeftError, "", weft.Session, onnx_models.nested_choices(depth))


@pytest.mark.parametrize("depth", [200, 30000])
def test_deep_functions_are_built_or_refused(depth):
    bb = weft.relax.BlockBuilder()
    x = weft.relax.Var("x", weft.ir.TensorType((2,), "float32"))
    value = x
    for _ in range(depth):
        value = weft.ir.Tuple((value,))
    try:
        with bb.function("main", [x]):
            bb.emit_func_output(value)
        weft.compile(bb.get())
    except NestedTooDeep as e:
        assert depth == 30000 and "recursion limit" in str(e)


def test_deep_programs_are_refused():
    text = "R.add(" * 3000 + "x" + ", x)" * 3000
    head = "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((2,), 'float32')):\n"
    refuses(weft.WeftError, "", weft.script.from_source, f"{head}        y = {text}\n        return y\n")


@pytest.mark.parametrize(
    "given", [None, 3, "text", [], object(), torch.nn.Linear(1, 1), len], ids=lambda v: type(v).__name__
)
def test_doors_are_closed_to_what_is_no_program(given):
    for door in (weft.compile, weft.build, weft.lower, relax.build, relay.build, from_onnx, from_exported_program):
        refuses(weft.WeftError, "", door, given)
    refuses(weft.WeftError, "no such data type", from_fx, torch.nn.Linear(1, 1), [((1, 1), given)])


def test_kinds_of_errors_are_pythons_too():
    assert issubclass(OutOfMemory, MemoryError) and issubclass(NestedTooDeep, RecursionError)
    with pytest.raises(InvalidArgument), weft.error.own_errors("a test"):
        raise InvalidArgument("its own")
    with pytest.raises(OutOfMemory, match="a test needs more memory"), weft.error.own_errors("a test"):
        np.empty(1 << 60, "uint8")
    with pytest.raises(OutOfMemory, match="(?s)a test needs.*new thread.*ulimit"), weft.error.own_errors("a test"):
        raise RuntimeError("can't start new thread")
    with pytest.raises(ZeroDivisionError), weft.error.own_errors("a test"):
        1 / 0  # noqa: B018


# ---- libraries, the cache, the import --------------------------------------------------------------------------------


def test_an_exported_library_never_loads_the_compiler(tmp_path):
    """Compiling is impossible there: what it needs cannot be imported."""
    weft.Session(onnx_models.linear()[0]).executable.export_library(tmp_path / "m.so")
    program = """
import sys
for name in ("llvmlite", "onnx", "weft.relax", "weft.tir", "weft.ir", "weft.target"): sys.modules[name] = None
import numpy as np, weft
session = weft.Session(sys.argv[1])
for rows in (1, 0, 70): print(session.run({"x": np.ones((rows, 8), "float32")})[0].shape[0], end=" ")
"""
    assert python(program, tmp_path / "m.so") == "1 0 70"


def test_entries_of_the_cache_that_were_exchanged_are_never_used(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    right = weft.Session(onnx_models.linear()[0]).run({"x": x})[0].numpy().copy()
    weft.Session(onnx_models.add())
    entries = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    contents = [p.read_bytes() for p in entries]
    assert len(entries) > 1
    for path, content in zip(entries, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    np.testing.assert_array_equal(weft.Session(onnx_models.linear()[0]).run({"x": x})[0].numpy(), right)
    assert weft.runtime.cache.statistics().damaged > 0


def test_import_takes_milliseconds():
    """Of this process: others use the machine, too."""
    program = "import time; t = time.process_time(); import weft; print(time.process_time() - t)"
    assert any(float(python(program)) < 0.1 for _ in range(20))
