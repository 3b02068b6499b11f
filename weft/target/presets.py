"""Targets by functions: ``target.cuda("a100")``, ``target.arm_cpu("rasp4b64")``."""

import shlex
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import weft.target.cuda
import weft.target.vulkan
from weft.runtime import Device, device
from weft.target.kind import kind_named
from weft.target.tags import ARM_BOARDS
from weft.target.target import Target, TargetLike, parse

Options = str | Sequence[str] | None


def _made(kind: str, options: Options, **attrs: Any) -> Target:
    words = [options] if isinstance(options, str) else list(options or ())
    _, given = parse(" ".join([kind, *words]))
    return Target({"kind": kind, **attrs, **given})


def create(target: TargetLike) -> Target:
    """Make a target of its text or options."""
    return Target(target)


def cuda(model: str = "unknown", arch: str | None = None, options: Options = None) -> Target:
    """Make the target of an NVIDIA GPU, such as ``cuda(arch="sm_80")``."""
    return _made("cuda", options, model=model, **({"arch": arch} if arch else {}))


def vulkan(model: str = "unknown", options: Options = None) -> Target:
    """Make the target of a Vulkan device, such as ``vulkan(options="-max_num_threads=512")``."""
    return _made("vulkan", options, model=model)


class _Callable(ModuleType):
    """The package of a kind, which is also asked for as the function of that name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Target:
        return {"cuda": cuda, "vulkan": vulkan}[self.__name__.rpartition(".")[2]](*args, **kwargs)


for _package in (weft.target.cuda, weft.target.vulkan):
    _package.__class__ = _Callable  # pyright: ignore[reportAttributeAccessIssue] - of every module


def rocm(model: str = "unknown", options: Options = None) -> Target:
    """Describe an AMD GPU."""
    return _made("rocm", options, model=model)


def mali(model: str = "unknown", options: Options = None) -> Target:
    """Describe an Arm Mali GPU."""
    return _made("opencl", options, device="mali", model=model)


def bifrost(model: str = "unknown", options: Options = None) -> Target:
    """Describe an Arm Mali GPU of the Bifrost architecture."""
    return _made("opencl", options, device="bifrost", model=model)


def intel_graphics(model: str = "unknown", options: Options = None) -> Target:
    """Describe a GPU of an Intel processor."""
    return _made("opencl", options, device="intel_graphics", model=model, thread_warp_size=16)


def vta(model: str = "unknown", options: Options = None) -> Target:
    """Describe the VTA accelerator."""
    return _made("ext_dev", options, device="vta", keys=["vta", "cpu"], model=model)


def arm_cpu(model: str = "unknown", options: Options = None) -> Target:
    """Make the target of an Arm processor; `model` may be a board, such as ``"rasp4b64"``."""
    board = ARM_BOARDS.get(model, {"model": model})
    return _made("llvm", options, keys=["arm_cpu", "cpu"], device="arm_cpu", **board)


def rasp(options: Options = None) -> Target:
    """Make the target of a Raspberry Pi 3B."""
    return arm_cpu("rasp3b", options)


_RISCV = {
    "sifive-e31": "-mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e31 -mabi=ilp32",
    "sifive-e76": "-mtriple=riscv32-unknown-linux-gnu -mcpu=sifive-e76 -mabi=ilp32",
    "sifive-u54": "-mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u54 -mabi=lp64d",
    "sifive-u74": "-mtriple=riscv64-unknown-linux-gnu -mcpu=sifive-u74 -mabi=lp64d",
}


def riscv_cpu(model: str = "sifive-u54", options: Options = None) -> Target:
    """Make the target of a RISC-V processor."""
    given = [options] if isinstance(options, str) else list(options or ())
    return _made(
        "llvm", [*shlex.split(_RISCV.get(model, "")), *given], keys=["arm_cpu", "cpu"], device="arm_cpu", model=model
    )


def device_from_target(target: TargetLike, index: int = 0) -> Device:
    """Return the device that code for a target runs on."""
    chosen = Target(target)
    kind = chosen.attrs.get("target_device_type")
    return Device(int(kind), index) if kind is not None else device(kind_named(chosen.kind.name).device, index)
