import ctypes
import pickle
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from weft import error, ffi, runtime

DTYPES = "float32 float64 float16 int8 uint8 int16 int32 int64 uint32 bool bfloat16 float8_e4m3fn".split()


def sample(dtype, shape=(3, 5)):
    return np.random.default_rng(0).integers(0, 2, shape).astype(runtime.numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (1,), (2, 0, 3)])
def test_round_trip(dtype, shape):
    x = sample(dtype, shape)
    t = runtime.tensor(x)
    assert (t.shape, str(t.dtype), t.ndim) == (shape, dtype, len(shape))
    assert t.data_ptr() % 64 == 0
    y = t.numpy()
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)
    assert np.dtype(t.dtype) == x.dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_go_in_and_come_out(dtype):
    x = sample(dtype)
    copy = ffi.builtin("copy")
    for value in (x, x.T, x[::2], x[:, ::-1]):
        np.testing.assert_array_equal(copy(value).numpy(), value)
    read_only = x.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(copy(read_only).numpy(), x)


def test_no_copy_for_plain_arrays():
    x = sample("float32")
    assert np.shares_memory(ffi.builtin("copy")(x).numpy(), x)
    assert np.shares_memory(runtime.from_dlpack(x).numpy(), x)
    assert np.shares_memory(np.from_dlpack(runtime.from_dlpack(x)), x)
    b = sample("bfloat16")
    assert np.shares_memory(runtime.from_dlpack(b).numpy(), b)


def test_tensor_copies():
    x = sample("float32")
    t = runtime.tensor(x)
    x[:] = 9
    assert (t.numpy() != 9).all()


def test_copyto_copyfrom():
    x = sample("int32")
    t = runtime.empty((3, 5), "int32")
    assert t.copyfrom(x) is t
    other = runtime.empty((3, 5), "int32")
    assert t.copyto(other) is other
    np.testing.assert_array_equal(other.numpy(), x)
    np.testing.assert_array_equal(t.copyto(runtime.cpu()).numpy(), x)
    t.copyfrom([[1] * 5] * 3)
    assert (t.numpy() == 1).all()
    refuses(error.ShapeMismatch, "", t.copyfrom, x[:2])
    refuses(error.DTypeMismatch, "", t.copyfrom, runtime.tensor(sample("float32")))


def test_strided_copy():
    x = np.arange(24, dtype="int16").reshape(2, 3, 4)
    t = runtime.tensor(x.transpose(2, 0, 1)[::2])
    np.testing.assert_array_equal(t.numpy(), x.transpose(2, 0, 1)[::2])


def test_python_side():
    t = runtime.tensor([[1.0, 2.0]])
    assert str(t.dtype) == "float64"
    assert len(t) == 1
    assert t[0, 1] == 2.0
    t[0, 1] = 5
    assert t.numpy()[0, 1] == 5
    assert np.asarray(t).shape == (1, 2)
    assert np.array(t, dtype="int64").dtype == np.int64
    assert runtime.tensor(3).item() == 3
    assert t.reshape(2, 1).shape == (2, 1)
    assert "shape=(1, 2)" in repr(t)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(t)).numpy(), t.numpy())
    assert t.nbytes == 16
    assert t.size == 2
    assert t.is_contiguous()
    assert t.strides == (2, 1)


def test_bad_arguments():
    refuses(error.DTypeMismatch, "cannot become a tensor", runtime.tensor, np.array(["a"]))
    refuses(error.DTypeMismatch, "found dtype complex64", runtime.tensor, np.ones(2, "complex64"))
    refuses(error.InvalidArgument, "memory scope", runtime.empty, (1,), mem_scope="nowhere")
    refuses(ValueError, "has the CPU, CUDA and OpenCL", runtime.empty, (1,), "float32", runtime.device("metal", 0))
    refuses(ValueError, "cannot make a tensor", runtime.empty, (-1,), "float32")
    refuses((MemoryError, ValueError), "", runtime.empty, (1 << 50,), "float32")
    refuses(ValueError, "cannot make a tensor", runtime.empty, (1 << 40, 1 << 40), "float32")


def test_many_dimensions():
    x = np.zeros((1,) * 20 + (2,), "float32")
    assert ffi.builtin("copy")(runtime.tensor(x)).shape == x.shape


def test_result_class_is_ours_and_ffi_class_is_not_taken():
    t = ffi.builtin("copy")(sample("float32"))
    assert isinstance(t, runtime.Tensor)
    assert weft.Tensor is runtime.Tensor
    assert type(tvm_ffi.from_dlpack(sample("float32"))) is tvm_ffi.Tensor
    assert np.from_dlpack(t).shape == (3, 5)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(torch.from_dlpack(ffi.builtin("copy")(x)), x)
    np.testing.assert_array_equal(runtime.from_dlpack(x.t()).numpy(), x.t().numpy())
    assert torch.equal(torch.from_dlpack(runtime.tensor(x)), x)
    capsules = torch.utils.dlpack  # what went from hand to hand before objects had __dlpack__
    assert runtime.from_dlpack(capsules.to_dlpack(x)).data_ptr() == x.data_ptr()
    assert torch.equal(capsules.from_dlpack(runtime.tensor(x).to_dlpack()), x)
    for unshared in (torch.empty(2, device="meta"), torch.ones(2).to_sparse()):
        with pytest.raises(error.InvalidArgument, match="argument 1 is memory that its library does not share"):
            ffi.builtin("copy")(x, unshared)
    for negated in (torch._neg_view(x), [x, torch.ones(2, dtype=torch.complex64).conj().imag]):
        refuses(error.InvalidArgument, "negative bit", ffi.builtin("copy"), negated)
    refuses(
        error.DTypeMismatch, "found dtype torch.complex64", runtime.from_dlpack, torch.ones(2, dtype=torch.complex64)
    )
    refuses(RuntimeError, "invalid for input", ffi.convert_func(lambda _: torch.ones(2).reshape(3)), x)


def test_ml_dtypes_bits():
    x = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(ffi.builtin("copy")(x).numpy().view("uint16"), x.view("uint16"))


def test_device():
    assert runtime.device("cpu") == runtime.cpu(0) == tvm_ffi.Device("cpu", 0)
    assert runtime.device("cuda:1") == runtime.cuda(1) != runtime.cpu()
    assert runtime.device("llvm") == runtime.cpu()
    assert str(runtime.cpu()) == "cpu:0"
    assert runtime.cpu().exist
    assert not runtime.cuda().exist
    assert len({runtime.cpu(), runtime.device("cpu", 0), runtime.cuda()}) == 2
    assert runtime.device(runtime.cuda(2)).index == 2
    refuses(error.InvalidArgument, "unknown device 'gpu9'", runtime.device, "gpu9")


def test_masked_arrays_are_refused_as_such():
    """A tensor has no mask, and what lies under one is no number of the user's."""
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    target = runtime.tensor(np.zeros(2))
    weft.register_global_func("tests.same", lambda a: a, override=True)
    same, v = weft.get_global_func("tests.same"), weft.relay.var("v", shape=(2,), dtype="float64")
    relay_function = weft.relay.create_executor("debug").evaluate(weft.relay.Function([v], v))
    for take in (
        same,
        lambda a: same([1, (a,)]),
        relay_function,
        runtime.tensor,
        weft.relax.const,
        weft.relay.const,
        target.copyfrom,
        lambda a: target.__setitem__(slice(None), a),
    ):
        refuses(error.InvalidArgument, r"masked\n  found 1 masked elements\n  help: give array.filled", take, masked)
    np.testing.assert_array_equal(runtime.tensor(np.ma.masked_array([1.0, 2.0])).numpy(), [1, 2])


def test_a_dtype_that_numpy_lacks_is_said():
    refuses(error.DTypeMismatch, "NumPy has no dtype 'int4'", runtime.empty((2, 2), "int4").numpy)


@pytest.mark.parametrize("shape", [(-1, [2]), (10**9, [2]), (2, None), (2, [2, -3])], ids=str)
def test_capsules_of_dimensions_that_are_none(shape):
    extents = (ctypes.c_int64 * 2)(*(shape[1] or ()))
    at = 0 if shape[1] is None else ctypes.addressof(extents)
    memory = np.array([0, 1, (shape[0] & 0xFFFFFFFF) | (0x12002 << 32), at, 0, 0, 0, 0])
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(("PyCapsule_New", ctypes.pythonapi))(memory.ctypes.data, b"dltensor", None)
    refuses(error.InvalidArgument, "a capsule of", runtime.from_dlpack, capsule)
    refuses(error.InvalidArgument, "a capsule of", ffi.builtin("copy"), SimpleNamespace(__dlpack__=lambda **_: capsule))
