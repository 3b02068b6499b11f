"""Session: inputs of every kind, outputs, and refusals that name what is wrong."""

import os
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import numpy as np
import pytest
import torch
from onnx import helper

import weft
from tests import onnx_models
from tests.clock import eventually
from tests.refusals import refuses
from tests.threads import at_once
from weft.error import DTypeMismatch, ExecutableError, InvalidArgument, ModelImportError, ShapeMismatch


@pytest.fixture(scope="module")
def add():
    return weft.Session(onnx_models.add())


@pytest.fixture(scope="module")
def split():
    """Two outputs: y = -x and n = |x|."""
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["n"])]
    spec = ("float32", ("a", "b"))
    return weft.Session(onnx_models.model(nodes, {"x": spec}, {"y": spec, "n": spec}))


def test_describes_inputs_and_outputs(add):
    assert [tuple(i) for i in add.inputs] == [("x", "float32", ("n", 4)), ("y", "float32", ("n", 4))]
    assert [(o.name, o.dtype, o.shape) for o in add.outputs] == [("z", "float32", ("n", 4))]
    assert "x: float32" in repr(add)


@pytest.mark.parametrize("rows", [0, 1, 3, 17])
def test_one_compilation_takes_every_size(add, rows):
    x, y = np.random.rand(2, rows, 4).astype(np.float32)
    (z,) = add.run({"x": x, "y": y})
    assert z.dtype == "float32"
    np.testing.assert_array_equal(z.numpy(), x + y)


def test_outputs_by_name_and_order(split):
    x = np.array([[1.0, -2.0]], np.float32)
    n, y = split.run(["n", "y"], {"x": x})
    np.testing.assert_array_equal(n.numpy(), np.abs(x))
    np.testing.assert_array_equal(y.numpy(), -x)
    assert len(split.run(None, {"x": x})) == 2
    assert split.run([], {"x": x}) == []
    refuses(InvalidArgument, r"no such output.*\n.*expected y, n, found z", split.run, ["z"], {"x": x})


def test_outputs_are_fresh(add):
    x = np.ones((2, 4), np.float32)
    (first,) = add.run({"x": x, "y": x})
    kept = first.numpy().copy()
    add.run({"x": 5 * x, "y": x})
    np.testing.assert_array_equal(first.numpy(), kept)
    np.testing.assert_array_equal(np.from_dlpack(first), kept)


def test_inputs_are_never_written(split):
    x = np.array([[1.0, -2.0, 3.0]], np.float32)
    before = x.copy()
    split.run({"x": x})
    np.testing.assert_array_equal(x, before)


def _arrays():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    read_only = base[:, :4].copy()
    read_only.flags.writeable = False
    return {
        "transposed": np.arange(12, dtype=np.float32).reshape(4, 3).T,
        "strided": base[::2, 1:5],
        "reversed": base[::-1, :4],
        "broadcast": np.broadcast_to(np.float32(3), (2, 4)),
        "read-only": read_only,
        "empty": np.zeros((0, 4), np.float32),
        "fortran": np.asfortranarray(base[:, :4]),
        "tensor": weft.runtime.tensor(base[:, :4].copy()),
        "list": base[:, :4].tolist(),
    }


@pytest.mark.parametrize("kind", list(_arrays()))
def test_accepts(split, kind):
    value = _arrays()[kind]
    expected = np.asarray(value.numpy() if hasattr(value, "numpy") else value, np.float32)
    np.testing.assert_array_equal(split.run({"x": value})[0].numpy(), -expected)


HELD = {
    "int8": ([-128, 127, True], [128]),
    "uint8": ([0, 255], [-1, 0]),
    "uint64": ([2**64 - 1], [3, -1]),
    "float16": ([1, 65504.0, np.inf], [70000]),
    "float32": ([1, -np.inf], [1.0, 1e300]),
    "int4": ([-8, 7], [8]),
}


@pytest.mark.parametrize("dtype", HELD)
def test_a_list_takes_on_a_type_that_holds_its_numbers(dtype):
    (held, beyond), like = HELD[dtype], helper.make_node("CastLike", ["x", "x"], ["y"])
    session = weft.Session(onnx_models.model([like], {"x": (dtype, ["n"])}, {"y": (dtype, ["n"])}, opset=21))
    for given in (held, tuple(held), []):
        (found,) = session.run({"x": given})
        found = found if isinstance(found, np.ndarray) else found.numpy()
        np.testing.assert_array_equal(found.astype("O"), given)
    refuses(InvalidArgument, "no number of its dtype", session.run, {"x": beyond})


def test_accepts_unaligned_memory(split):
    raw = np.zeros(4 * 6 * 4 + 1, np.uint8)
    array = raw[1:].view(np.float32).reshape(4, 6)
    array[:] = np.arange(24).reshape(4, 6)
    assert array.ctypes.data % 4
    np.testing.assert_array_equal(split.run({"x": array})[0].numpy(), -array)


def test_accepts_torch(split):
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    np.testing.assert_array_equal(split.run({"x": x})[0].numpy(), -x.numpy())
    np.testing.assert_array_equal(split.run({"x": x.T})[0].numpy(), -x.T.numpy())
    assert torch.equal(torch.from_dlpack(split.run({"x": x})[0]), -x)


X = np.ones((2, 4), np.float32)
REFUSED = {
    "missing": ({"x": X}, InvalidArgument, r"wrong inputs\n  expected x, y, found missing: y"),
    "unknown": ({"x": X, "y": X, "w": X}, InvalidArgument, r"found unknown: w"),
    "both": ({"x": X, "Y": X}, InvalidArgument, r"found missing: y; unknown: Y"),
    "not a mapping": ([X, X], InvalidArgument, r"feeds must be a mapping.*\n.*found list"),
    "dtype": ({"x": X.astype(np.float64), "y": X}, DTypeMismatch, r"input 'x'.*\n  expected float32, found float64"),
    "dtype of a tensor": (
        {"x": X, "y": weft.runtime.tensor(X.astype(np.int32))},
        DTypeMismatch,
        r"input 'y'.*\n  expected float32, found int32",
    ),
    "numbers beyond": ({"x": [[1, 2, 3, -(10**300)]], "y": X}, InvalidArgument, "input 'x' is not an array of numbers"),
    "a buffer": ({"x": memoryview(X.astype(np.float64)), "y": X}, DTypeMismatch, r"input 'x'.*\n  expected float32"),
    "dtype of a list": ({"x": [[1j, 0, 0, 0]], "y": X}, DTypeMismatch, r"input 'x'.*\n  expected float32"),
    "byte order": ({"x": X.astype(">f4"), "y": X}, DTypeMismatch, r"input 'x'.*\n  expected float32, found >f4"),
    "words": ({"x": "abc", "y": X}, InvalidArgument, r"input 'x' is not an array of numbers"),
    "unshared": ({"x": torch.ones(2, 4, device="meta"), "y": X}, InvalidArgument, r"input 'x' is memory.*\n.*on meta"),
    "ragged": ({"x": [[1.0], [1.0, 2.0]], "y": X}, InvalidArgument, r"input 'x' is not an array"),
    "rank": ({"x": X[0], "y": X}, ShapeMismatch, r"input 'x'.*rank\n  expected 2 dimensions \(n, 4\), found 1 \(4\)"),
    "dimension": ({"x": X, "y": X[:, :3]}, ShapeMismatch, r"input 'y'.*dimension 1\n  expected 4 of .*found 3 of"),
    "symbol": (
        {"x": X, "y": X[:1]},
        ShapeMismatch,
        r"dimension 'n'\n  expected 2, as in dimension 0 of input 'x', found 1 in dimension 0 of input 'y'",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refuses(add, kind):
    feeds, error, message = REFUSED[kind]
    refuses(error, message, add.run, feeds)
    (z,) = add.run({"x": X, "y": X})  # and stays usable
    np.testing.assert_array_equal(z.numpy(), X + X)


def test_fixed_shapes_are_checked_and_converted_alike():
    spec = ("float32", ("a", 4))
    model = onnx_models.model([helper.make_node("Neg", ["x"], ["y"])], {"x": spec}, {"y": spec})
    session = weft.Session(model, shape_dict={"x": (4, 4)})
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    raw = np.zeros(65, np.uint8)[1:].view(np.float32).reshape(4, 4)
    raw[:] = square + 1
    frozen = square.copy()
    frozen.flags.writeable = False
    for x in (square, square.T, square[::-1], raw, frozen, square.tolist(), weft.runtime.tensor(square)):
        expected = np.asarray(x.numpy() if hasattr(x, "numpy") else x, np.float32)
        (y,) = session.run(MappingProxyType({"x": x}))
        np.testing.assert_array_equal(y.numpy(), -expected)
    refuses(ShapeMismatch, r"dimension 0\n  expected 4 of \(4, 4\), found 3 of", session.run, {"x": square[:3]})
    refuses(DTypeMismatch, "expected float32, found float64", session.run, {"x": square.astype(np.float64)})


def test_refuses_wrong_counts_of_arguments(add):
    refuses(InvalidArgument, r"expected run\(feeds\) or run\(output_names, feeds\), found 0", add.run)


def test_shape_and_dtype_overrides():
    session = weft.Session(onnx_models.add(), shape_dict={"x": [3, 4], "y": ["m", 4]}, dtype_dict="float64")
    assert session.inputs[0].shape == (3, 4)
    x = np.random.rand(3, 4)
    np.testing.assert_array_equal(session.run({"x": x, "y": x})[0].numpy(), x + x)
    refuses(ModelImportError, "nothing", weft.Session, onnx_models.add(), shape_dict={"nothing": [3, 4]})


@pytest.mark.filterwarnings("ignore:precision")
def test_precision(tmp_path):
    proto, w, b = onnx_models.linear()
    x = np.random.default_rng(1).standard_normal((3, 8), np.float32)
    expected = np.maximum(x @ w + b, 0)
    session = weft.Session(proto, precision="bf16")
    (found,) = session.run({"x": x})
    assert found.dtype == "float32"
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-2 * np.abs(expected).max())
    refuses(InvalidArgument, "precision is for models", weft.Session, session.executable, precision="bf16")
    refuses(InvalidArgument, "unknown precision 'half'", weft.Session, proto, precision="half")
    with pytest.raises(InvalidArgument, match="pipelines by name"):
        weft.compile(weft.frontend.onnx.from_onnx(proto), relax_pipeline=weft.relax.get_pipeline(), precision="bf16")


def test_sources(tmp_path):
    proto, w, b = onnx_models.linear()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    x = np.random.default_rng(1).standard_normal((3, 8), np.float32)
    expected = np.maximum(x @ w + b, 0)
    library = tmp_path / "m.so"
    first = weft.Session(path)
    first.executable.export_library(library)
    for source in (path, str(path), proto, proto.SerializeToString(), first.executable, library, str(library)):
        session = weft.Session(source)
        assert session.inputs == first.inputs
        assert session.outputs == first.outputs
        np.testing.assert_allclose(session.run({"x": x})[0].numpy(), expected, rtol=1e-5, atol=1e-5)


def test_refuses_sources(tmp_path):
    refuses(InvalidArgument, "target is for models", weft.Session, weft.Session(onnx_models.add()).executable, "llvm")
    (tmp_path / "broken.so").write_bytes(b"abc")
    refuses(ExecutableError, "", weft.Session, tmp_path / "broken.so")
    refuses(ExecutableError, "no such library", weft.Session, tmp_path / "missing.so")
    refuses(ModelImportError, r"missing\.onnx", weft.Session, tmp_path / "missing.onnx")


def test_many_threads(add):
    failures = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            x, y = rng.standard_normal((2, int(rng.integers(0, 9)), 4)).astype(np.float32)
            if not np.array_equal(add.run({"x": x, "y": y})[0].numpy(), x + y):
                failures.append(seed)

    at_once(work, 8)
    assert not failures


def test_sessions_made_in_threads_are_used_in_others():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(lambda _: weft.Session(onnx_models.add()), range(8)))
        runs = [pool.submit(s.run, {"x": x, "y": x}) for s in sessions * 4]
        assert all(np.array_equal(r.result()[0].numpy(), x + x) for r in runs)


@pytest.mark.parametrize("used", [False, True])
def test_forked_after_import(used):
    """Whether or not threads of the pool ran before: a child has none of them."""
    x = np.ones((3, 4), np.float32)
    session = weft.Session(onnx_models.add())
    if used:
        session.run({"x": x, "y": x})
    child = os.fork()
    if child == 0:
        try:
            same = [s.run({"x": x, "y": x})[0].numpy().tolist() for s in (session, weft.Session(onnx_models.add()))]
            os._exit(0 if same == [(x + x).tolist()] * 2 else 1)
        except BaseException:
            os._exit(2)
    try:
        assert eventually(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)).si_status == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_progress_is_reported():
    seen = []
    weft.Session(onnx_models.linear(7)[0], progress=lambda what, done, total: seen.append((what, done, total)))
    assert seen
    assert seen[-1][1] == seen[-1][2] == len(seen)


def test_shapes_change_from_call_to_call(add):
    """What the last call was given is not taken for what this one is given."""
    for n in (2, 2, 3, 3, 2):
        x, y = np.full((n, 4), 1, np.float32), np.full((n, 4), n, np.float32)
        np.testing.assert_array_equal(add.run({"x": x, "y": y})[0].numpy(), x + y)
        for wrong in (np.ones((n + 1, 4), np.float32), np.ones((n, 5), np.float32), np.ones(n, np.float32)):
            refuses(ShapeMismatch, "", add.run, {"x": x, "y": wrong})
        refuses(DTypeMismatch, "", add.run, {"x": x.astype("float64"), "y": y})
        for same in (np.asfortranarray(y), np.repeat(y, 2, axis=1)[:, ::2], np.broadcast_to(y[:1], y.shape)):
            np.testing.assert_array_equal(add.run({"x": x, "y": same})[0].numpy(), x + y)
