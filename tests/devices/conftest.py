"""These tests run where they are asked for: compilers, emulators and browsers take minutes."""

from types import SimpleNamespace

import numpy as np
import pytest

from weft import environment, runtime


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if environment.DEVICES.read() == "0":
        for item in items:
            if item.nodeid.startswith("tests/devices/"):
                item.add_marker(pytest.mark.skip(reason="make test-devices runs it (WEFT_DEVICES=1)"))


INSTALLABLE = {"opencl", "vulkan"}  # by a package; a CUDA device is hardware


@pytest.fixture(params=["cuda", "opencl", "vulkan"])
def gpu(request):
    """The first device of a kind, its target, and how tensors are put there."""
    dev = runtime.device(request.param, 0)
    if not dev.exist:
        assert not (environment.DEVICES.read() == "1" and request.param in INSTALLABLE), (
            f"{dev} is asked for and not there"
        )
        pytest.skip(f"there is no {dev}")

    def put(*arrays):
        return [runtime.tensor(np.asarray(a), device=dev) for a in arrays]

    return SimpleNamespace(dev=dev, kind=request.param, put=put)
