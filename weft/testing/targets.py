"""Targets and devices that a test runs on, and pytest marks for what it needs.

pytest is imported only when a mark is used: the package itself serves programs without it.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from weft.error import InvalidArgument, require
from weft.runtime import Device, device
from weft.spelling import also_called
from weft.testing import env

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

SKIP_SLOW_TESTS = os.getenv("SKIP_SLOW_TESTS", "").lower() in ("true", "1", "yes")
IS_IN_CI = os.getenv("CI", "") == "true"


def _kind(target: Any) -> str:
    return str(target["kind"]) if isinstance(target, dict) else str(target).split()[0]


def _device_of(kind: str) -> str:
    """The device that a kind of target runs on; what is no kind may be a device."""
    from weft.target import Target  # loads LLVM, so only when asked

    return Target(kind).kind.device if env.has_target(kind) else kind


def enabled_targets() -> list[tuple[str, Device]]:
    """Pairs of target and device to test on.

    ``llvm``, and ``cuda`` where a GPU is, of those that the variable ``TVM_TEST_TARGETS`` (separated by ``;``) names.
    """
    wanted = [t for t in os.environ.get("TVM_TEST_TARGETS", "llvm;cuda").split(";") if t]
    return [(t, device(_device_of(_kind(t)), 0)) for t in wanted if device_enabled(t)]


def device_enabled(target: object) -> bool:
    """Whether code for a target can be generated and run here."""
    if not isinstance(target, (str, dict)) and not hasattr(target, "kind"):
        raise InvalidArgument("expected a target", found=type(target).__name__)
    kind = _kind(str(target) if hasattr(target, "kind") else target)
    where = _device_of(kind)
    return env.has_target(kind) and (where == "cpu" or env.has_gpu(where))


def _pytest() -> Any:
    return require("pytest", extra="test")


class _Marks(list[Any]):
    """Marks, which also decorate: ``requires_llvm()`` is a list in some releases and a decorator in others."""

    def __call__(self, test: Any) -> Any:
        for mark in self:
            test = mark(test)
        return test


def _skip_unless(condition: Callable[[], bool], reason: str) -> Callable[..., Any]:
    def mark(*args: Callable[..., Any]) -> Any:
        found = _Marks([_pytest().mark.skipif(not condition(), reason=reason)])
        return found(args[0]) if args else found

    mark.marks = mark  # type: ignore[attr-defined]  # the name of newer releases
    return mark


requires_llvm = _skip_unless(env.has_llvm, "LLVM is not there")
requires_gpu = _skip_unless(env.has_gpu, "no GPU is there")
requires_cuda = _skip_unless(env.has_cuda, "no NVIDIA GPU is there")
requires_multi_gpu = _skip_unless(env.has_multi_gpu, "there are no two GPUs")
uses_multi_gpu = requires_multi_gpu
requires_nvptx = _skip_unless(lambda: env.has_target("nvptx") and env.has_gpu("cuda"), "no NVIDIA GPU is there")
requires_tensorcore = _skip_unless(lambda: env.has_cuda_compute(7), "no GPU with tensor cores is there")
skip_if_wheel_test = _skip_unless(
    lambda: os.environ.get("WHEEL_TEST", "").lower() not in ("1", "true", "yes"), "WHEEL_TEST is set"
)
requires_rpc = _skip_unless(lambda: True, "remote calls are always there")
requires_x86_vnni = _skip_unless(env.has_x86_vnni, "no processor with VNNI is there")
requires_x86_avx512 = _skip_unless(env.has_x86_avx512, "no processor with AVX-512 is there")
requires_x86 = _skip_unless(lambda: env.is_machine("x86_64", "AMD64"), "this is no x86 processor")
requires_aarch64 = _skip_unless(lambda: env.is_machine("aarch64", "arm64"), "this is no Arm processor")


def _absent(name: str) -> Callable[..., Any]:
    """The mark of tests for a device or library that Weft has no code for."""
    return _skip_unless(lambda: env.build_flag_enabled(name), f"there is no {name}")


requires_cudnn, requires_cublas, requires_nccl, requires_cudagraph = map(_absent, ("cudnn", "cublas", "nccl", "graph"))
requires_opencl = _skip_unless(env.has_opencl, "no OpenCL device is there")
requires_vulkan = _skip_unless(env.has_vulkan, "no Vulkan device is there")
requires_rocm, requires_metal = map(_absent, ("rocm", "metal"))
requires_hexagon, requires_cutlass, requires_hipblas = map(_absent, ("hexagon", "cutlass", "hipblas"))
requires_matrixcore, requires_micro, requires_libtorch = map(_absent, ("matrixcore", "micro", "libtorch"))
requires_ethosn, requires_ethosu, requires_cmsisnn = map(_absent, ("ethosn", "ethosu", "cmsisnn"))
requires_vitis_ai, requires_mrvl, requires_openclml = map(_absent, ("vitis_ai", "mrvl", "openclml"))
requires_nnapi, requires_corstone300, requires_arm_dot = map(_absent, ("nnapi", "corstone300", "arm_dot"))


def uses_gpu(*args: Callable[..., Any]) -> Any:
    """Mark a test that runs on a GPU if there is one."""
    mark = _pytest().mark.gpu
    return mark(args[0]) if args else [mark]


def skip_if_32bit(reason: str) -> Callable[[Any], Any]:
    """Skip a test where pointers have 32 bits."""
    return _pytest().mark.skipif(sys.maxsize <= 2**32, reason=reason)


def _dev_of_target(target: Any) -> Any:
    return device(_device_of(_kind(target)), 0)


def parametrize_targets(*targets: Any) -> Any:
    """Run a test for each of some targets (by default the enabled ones).

    The test, or fixtures that it uses, take ``target``, and ``dev`` if they like: a fixture of its module then.
    """
    bare = len(targets) == 1 and callable(targets[0])
    chosen = [t for t, _ in enabled_targets()] if bare or not targets else list(targets)

    def decorate(test: Callable[..., Any]) -> Any:
        pytest = _pytest()
        failing = getattr(test, "_failing_targets", ())
        excluded = getattr(test, "_excluded_targets", ())
        cases = []
        for target in chosen:
            kind = _kind(target)
            if kind in excluded:
                continue
            marks = [pytest.mark.skipif(not device_enabled(target), reason=f"target {kind} is not there")]
            if kind in failing:
                marks.append(pytest.mark.xfail(reason=f"known to fail on {kind}"))
            cases.append(pytest.param(target, marks=marks, id=kind))
        test.__globals__["_dev_of_target"] = pytest.fixture(name="dev")(_dev_of_target)  # where pytest looks for it
        return pytest.mark.parametrize("target", cases)(test)

    return decorate(targets[0]) if bare else decorate


def known_failing_targets(*kinds: str) -> Callable[[Any], Any]:
    """Expect a test to fail on some kinds of target; stands below :func:`parametrize_targets`."""

    def decorate(test: Callable[..., Any]) -> Any:
        test._failing_targets = kinds  # type: ignore[attr-defined]
        return test

    return decorate


def exclude_targets(*kinds: str) -> Callable[[Any], Any]:
    """Leave some kinds of target out of what :func:`parametrize_targets`, which stands above, runs a test on.

    A test that is not parametrized, and asks for ``target``, is skipped on them.
    """

    def decorate(test: Callable[..., Any]) -> Any:
        test._excluded_targets = kinds  # type: ignore[attr-defined]
        return test

    return decorate


def requires_package(*packages: str) -> Any:
    """Mark a test that needs some Python packages."""
    missing = [p for p in packages if find_spec(p) is None]
    return [_pytest().mark.skipif(bool(missing), reason=f"without {', '.join(missing)}")]


def requires_nvcc_version(major_version: int, minor_version: int = 0, release_version: int = 0) -> Callable[[Any], Any]:
    """Mark a test that needs a release of NVIDIA's compiler."""
    there = env.has_cuda() and env.has_nvcc_version(major_version, minor_version, release_version)
    return _skip_unless(lambda: there, f"needs CUDA {major_version}.{minor_version}")


def requires_cuda_compute_version(major_version: int, minor_version: int = 0) -> Callable[[Any], Any]:
    """Mark a test that needs a GPU's compute capability."""
    return _skip_unless(
        lambda: env.has_cuda_compute(major_version, minor_version), f"needs sm_{major_version}{minor_version}"
    )


@also_called(fn="test")
def slow(test: Callable[..., Any]) -> Any:
    """Mark a test that takes long: the variable ``SKIP_SLOW_TESTS`` leaves it out."""
    return _pytest().mark.skipif(SKIP_SLOW_TESTS, reason="SKIP_SLOW_TESTS is set")(test)


@also_called(val="value")
def strtobool(value: str) -> int:
    """1 for a word that means yes, 0 for one that means no.

    Raises
    ------
    InvalidArgument
        For another word.
    """
    word = value.lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if word in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise InvalidArgument("this is neither yes nor no", found=repr(value))


@also_called(func="function")
def run_with_gpu_lock(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function while no other process of tests on this machine has the GPU."""
    path = Path(tempfile.gettempdir()) / "weft-testing-gpu.lock"
    with path.open("a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        return function(*args, **kwargs)


def identity_after(x: object, sleep: float) -> Any:
    """Return `x` some seconds later."""
    time.sleep(sleep)
    return x


def terminate_self() -> None:
    """End the process at once."""
    os._exit(-1)


def main() -> None:
    """Run the tests of the calling file with pytest and exit with its status."""
    path = inspect.stack()[1].filename
    sys.exit(_pytest().main([path, *sys.argv[1:]]))


__all__ = [
    "IS_IN_CI",
    "SKIP_SLOW_TESTS",
    "device_enabled",
    "enabled_targets",
    "exclude_targets",
    "identity_after",
    "known_failing_targets",
    "main",
    "parametrize_targets",
    "run_with_gpu_lock",
    "skip_if_32bit",
    "skip_if_wheel_test",
    "slow",
    "strtobool",
    "terminate_self",
    "uses_gpu",
    "uses_multi_gpu",
    *(n for n in dir() if n.startswith("requires_")),
]  # pyright: ignore[reportUnsupportedDunderAll]
