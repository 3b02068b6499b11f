"""CUDA devices, against a stand-in for the driver library. Each program runs in its own process: the driver stays."""

import pytest

from tests.texts import named

HEAD = ""

PROGRAMS = named("""
# copies between host and devices
for shape in [(), (7,), (3, 5), (0, 4)]:
    for dtype in ["float32", "int64", "bool", "uint8"]:
        x = (np.random.default_rng(0).standard_normal(shape) * 9).astype(dtype)
        a = rt.tensor(x, device=dev)
        assert a.device == dev and a.shape == shape
        np.testing.assert_array_equal(a.numpy(), x)
        b = a.copyto(rt.empty(shape, dtype, dev))
        c = b.copyto(rt.cuda(1))
        assert c.device == rt.cuda(1)
        np.testing.assert_array_equal(c.copyto(rt.cpu()).numpy(), x)
        c.copyfrom(np.zeros(shape, dtype))
        assert not c.numpy().any()
        np.testing.assert_array_equal(b.numpy(), x)
dev.sync()
del a, b, c
calls = log()
assert calls.count("alloc") == calls.count("free") == 48, calls
assert calls.count("retain") == 2 and "peer" in calls and "d2d" in calls and calls[-1] == "free"
# bfloat16 comes back
import ml_dtypes
x = np.arange(5).astype(ml_dtypes.bfloat16)
np.testing.assert_array_equal(rt.tensor(x, device=dev).numpy(), x)
# setting elements reaches the device
a = rt.tensor(np.zeros((2, 3), "float32"), device=dev)
a[1, 2] = 5
assert a.numpy()[1, 2] == 5 and a.numpy().sum() == 5
# streams
s = dev.create_raw_stream()
dev.set_raw_stream(s)
a = rt.tensor(np.ones(3, "float32"), device=dev)
rt.tensor(np.ones(3, "float32"), device=rt.cuda(1))
dev.free_raw_stream(s)
a.numpy()
dev.set_raw_stream(0)
calls = [c for c in log() if c.startswith(("h2d", "d2h", "stream", "unstream"))]
assert calls == ["stream", "h2d@stream", "h2d", "unstream", "d2h"], calls
with pytest.raises(ValueError, match="no streams"):
    rt.cpu().create_raw_stream()
# attributes
assert dev.exist and rt.cuda(1).exist and not rt.cuda(2).exist
assert dev.compute_version == "9.0" and dev.max_threads_per_block == 1024 and dev.warp_size == 32
assert rt.cuda(1).multi_processor_count == 5 and rt.cuda(1).total_global_memory == 2 << 30
assert dev.device_name == "Stand-in 0" and rt.cuda(2).device_name is None and rt.cpu().warp_size is None
# errors say what is wrong
with pytest.raises(Exception, match="no device cuda:2; the driver has 2"):
    rt.empty((3,), "float32", rt.cuda(2))
with pytest.raises(MemoryError, match="out of memory"):
    rt.empty((1 << 31,), "uint8", dev)
with pytest.raises(Exception, match="strided"):
    rt.from_dlpack(np.ones((4, 4), "float32").T).copyto(dev)
""")


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(text, program):
    program(text)


def test_without_a_driver(program):
    text = """
assert not dev.exist and dev.compute_version is None
for use in (dev.sync, lambda: rt.empty((3,), "float32", dev), lambda: rt.tensor([1.0], device=dev)):
    with pytest.raises(RuntimeError, match="no CUDA driver.*WEFT_CUDA_DRIVER"):
        use()
"""
    program(text, "no_such_library.so")
