"""Remote calls by Weft or Apache TVM: ``rpc_programs.py weft|tvm serve|track|proxy|use|bench``.

``serve`` and the like print where they listen and go on until their input ends.
"""

import importlib
import sys
import time

import numpy as np

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
BITS = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]  # which go through views of integers: both packages take those


def serve(package: str, key: str, tracker: str = "", proxy: str = "") -> None:
    """Be a server, until the input ends."""
    server = importlib.import_module(f"{package}.rpc.server").Server
    address = ("127.0.0.1", int(tracker)) if tracker else None
    started = server(
        "127.0.0.1", int(proxy or 9091), 9899, is_proxy=bool(proxy), key=key, tracker_addr=address, silent=True
    )
    _stay(started)


def _stay(started) -> None:
    print(started.port, flush=True)
    sys.stdin.read()
    started.terminate()


def track(package: str) -> None:
    """Be a tracker."""
    _stay(importlib.import_module(f"{package}.rpc.tracker").Tracker("127.0.0.1", 9190, 9890, silent=True))


def proxy(package: str) -> None:
    """Be a proxy."""
    _stay(importlib.import_module(f"{package}.rpc.proxy").Proxy("127.0.0.1", 9091, 9891))


def connected(package: str, key: str, port: str, tracked: str = ""):
    """A session with a server, or with one of a tracker's."""
    rpc = importlib.import_module(f"{package}.rpc")
    if tracked:
        return rpc.connect_tracker("127.0.0.1", int(port)).request(key)
    return rpc.connect("127.0.0.1", int(port), key=key)


def use(package: str, library: str, key: str, port: str, tracked: str = "") -> None:
    """Do with a server what programs do."""
    tvm = importlib.import_module(package)
    remote = connected(package, key, port, tracked)
    echo = remote.get_function("testing.echo")
    for value in (0, -(2**63), True, 2.5, None, "", "text" * 100, b"bytes"):
        found = echo(value)
        assert (bytes(found) if isinstance(value, bytes) else found) == value, (value, found)
    assert echo(bytearray(b"x")) == b"x"
    dev = remote.cpu(0)
    dev.sync()
    for dtype in DTYPES:
        data = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
        there, other = tvm.runtime.tensor(data, dev), tvm.runtime.empty((3, 4), dtype, dev)
        there.copyto(other)
        np.testing.assert_array_equal(other.numpy(), data, err_msg=dtype)
    for dtype in BITS:
        here, there = tvm.runtime.empty((3, 4), dtype), tvm.runtime.empty((3, 4), dtype, dev)
        there.copyfrom(here)
        assert str(there.dtype) == dtype
    assert remote.get_function("rpc.test.add_to_lhs")(10)(12) == 22
    array = remote.get_function("rpc.test.remote_return_nd")("get_arr")()
    np.testing.assert_array_equal(array.numpy(), np.zeros(10, "float32"))
    shape = remote.get_function("ffi.Shape")(2, 3)
    assert remote.get_function("rpc.testing.GetShapeElem")(shape, 1) == 3
    try:
        remote.get_function("rpc.test.except")("mine")
    except RuntimeError as e:
        assert "mine" in str(e), e
    else:
        raise AssertionError("no error")
    remote.upload(bytearray(b"content"), "data.bin")
    assert bytes(remote.download("data.bin")) == b"content"
    remote.remove("data.bin")
    modules(tvm, remote, library)


def modules(tvm, remote, library: str) -> None:
    """Open a library there, call it and time it; run a virtual machine there."""
    remote.upload(library)
    dev = remote.cpu(0)
    executable = remote.load_module(library.rsplit("/", 1)[-1])
    vm = importlib.import_module(f"{tvm.__name__}.relax").VirtualMachine(executable, dev)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    vm.set_input("main", tvm.runtime.tensor(x, dev))
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main").numpy(), x + x)
    vm.save_function("main", "saved", tvm.runtime.tensor(x, dev), include_return=False)
    results = vm.time_evaluator("saved", dev, number=3, repeat=4)().results
    assert len(results) == 4
    assert min(results) > 0


def bench(package: str, key: str, port: str) -> None:
    """Print microseconds of an empty call, and milliseconds of copies of 64 MB there and back."""
    tvm = importlib.import_module(package)
    remote = connected(package, key, port)
    echo = remote.get_function("testing.echo")

    def best(function, times: int) -> float:
        taken = []
        for _ in range(times):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
        return min(taken)

    call = best(lambda: [echo(1) for _ in range(200)], 20) / 200 * 1e6
    here = tvm.runtime.tensor(np.ones(1 << 24, "float32"))
    there = tvm.runtime.empty((1 << 24,), "float32", remote.cpu(0))
    print(call, best(lambda: there.copyfrom(here), 2) * 1e3, best(lambda: there.copyto(here), 2) * 1e3)


if __name__ == "__main__":
    package, action, *words = sys.argv[1:]
    {"serve": serve, "track": track, "proxy": proxy, "use": use, "bench": bench}[action](package, *words)
