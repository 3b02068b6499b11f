"""Targets and devices that a test runs on, and pytest marks for what it needs.

pytest is imported only when a mark is used: the package itself serves programs without it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument, require
from weft.runtime import Device, device
from weft.testing import env

__all__ = [
    "device_enabled", "enabled_targets", "known_failing_targets", "main", "parameter", "parametrize_targets",
    "requires_cuda", "requires_gpu", "requires_llvm", "skip_if_32bit", "uses_gpu",
]  # fmt: skip


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


def device_enabled(target: Any) -> bool:
    """Whether code for a target can be generated and run here."""
    if not isinstance(target, (str, dict)) and not hasattr(target, "kind"):
        raise InvalidArgument("expected a target", found=type(target).__name__)
    kind = _kind(str(target) if hasattr(target, "kind") else target)
    where = _device_of(kind)
    return env.has_target(kind) and (where == "cpu" or env.has_gpu(where))


def _pytest() -> Any:
    return require("pytest", extra="test")


def _skip_unless(condition: Callable[[], bool], reason: str) -> Callable[..., Any]:
    def mark(*args: Callable[..., Any]) -> Any:
        skip = _pytest().mark.skipif(not condition(), reason=reason)
        return skip(args[0]) if args else [skip]

    return mark


requires_llvm = _skip_unless(env.has_llvm, "LLVM is not there")
requires_gpu = _skip_unless(env.has_gpu, "no GPU is there")
requires_cuda = _skip_unless(env.has_cuda, "no NVIDIA GPU is there")


def uses_gpu(*args: Callable[..., Any]) -> Any:
    """Mark a test that runs on a GPU if there is one."""
    mark = _pytest().mark.gpu
    return mark(args[0]) if args else [mark]


def skip_if_32bit(reason: str) -> Callable[[Any], Any]:
    """Skip a test where pointers have 32 bits."""
    return _pytest().mark.skipif(sys.maxsize <= 2**32, reason=reason)


def parametrize_targets(*targets: Any) -> Any:
    """Run a test, a function of ``target`` and ``dev``, for each of some targets (by default the enabled ones)."""
    bare = len(targets) == 1 and callable(targets[0])
    chosen = [t for t, _ in enabled_targets()] if bare or not targets else list(targets)

    def decorate(test: Callable[..., Any]) -> Any:
        pytest = _pytest()
        failing = getattr(test, "_failing_targets", ())
        cases = []
        for target in chosen:
            kind = _kind(target)
            marks = [pytest.mark.skipif(not device_enabled(target), reason=f"target {kind} is not there")]
            if kind in failing:
                marks.append(pytest.mark.xfail(reason=f"known to fail on {kind}"))
            cases.append(pytest.param(target, device(_device_of(kind), 0), marks=marks, id=kind))
        return pytest.mark.parametrize(("target", "dev"), cases)(test)

    return decorate(targets[0]) if bare else decorate


def known_failing_targets(*kinds: str) -> Callable[[Any], Any]:
    """Expect a test to fail on some kinds of target; stands below :func:`parametrize_targets`."""

    def decorate(test: Callable[..., Any]) -> Any:
        test._failing_targets = kinds  # type: ignore[attr-defined]
        return test

    return decorate


def parameter(*values: Any, ids: Any = None, by_dict: dict[str, Any] | None = None) -> Any:
    """Make a fixture that takes each of some values; assign it to the name that tests ask for."""
    if by_dict is not None:
        ids, values = list(by_dict), tuple(by_dict.values())

    def value(request: Any) -> Any:
        return request.param

    return _pytest().fixture(params=list(values), ids=ids)(value)


def main() -> None:
    """Run the tests of the calling file with pytest and exit with its status."""
    path = inspect.stack()[1].filename
    sys.exit(_pytest().main([path, *sys.argv[1:]]))
