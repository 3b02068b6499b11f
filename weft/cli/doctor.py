"""``weft doctor``: what this installation has: versions, CPU features, devices, threads, the cache, a linker."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from typing import Any

import weft
from weft import environment, error, ffi
from weft.cli.screen import print_table, size_text
from weft.machine import OPTION_OF, Machine, host_facts
from weft.runtime import cache, device, num_threads

_NEEDED = ("apache-tvm-ffi", "llvmlite", "numpy", "ml_dtypes", "msgspec")
_OPTIONAL = ("onnx", "torch", "ziglang", "onnxruntime")
_DEVICES = ("cuda", "opencl", "vulkan")
_FEATURES = ("avx2", "fma", "avx512f", "avx512vnni", "avx512bf16", "amx-tile", "amx-bf16", "neon", "sve")


def doctor() -> None:
    """Print versions, CPU features, threads, devices, cache, linker and environment variables of this installation."""
    library = ffi.find_library()
    rows = [("weft", weft.__version__), ("python", platform.python_version()), ("platform", platform.platform())]
    rows += [(name, _version(name)) for name in _NEEDED]
    rows += [(f"{name} (optional)", _version(name)) for name in _OPTIONAL]
    rows.append(("runtime library", f"{library}, {size_text(library.stat().st_size)}"))
    print_table("versions", ("what", "found"), rows)
    rows = [*_machine_rows(weft.target.Target("llvm").machine), ("threads for kernels", str(num_threads()), "", "")]
    print_table("machine", ("what", "found", "from", "option of a target"), rows)
    print_table("devices", ("device", "name", "memory", "driver"), [row for k in _DEVICES for row in _device_rows(k)])
    statistics = cache.statistics()
    rows = [
        ("kernel cache", f"{statistics.directory}, {statistics.entries} entries, {size_text(statistics.bytes)}"),
        ("cache can be written", "yes" if _writable(statistics.directory) else "no: every compilation starts anew"),
        ("linker", shutil.which("cc") or shutil.which("clang") or "none: libraries are written as containers"),
    ]
    print_table("files", ("what", "found"), rows)
    rows = [(v.name, _setting(v), f"read at: {v.when}", v.meaning) for v in environment.VARIABLES.values()]
    rows += [
        (name, "unknown", "", f"did you mean {near}?" if near else "Weft reads no such variable")
        for name, near in environment.unknown().items()
    ]
    print_table("environment", ("variable", "value", "", "what it is"), rows)


def _device_rows(kind: str) -> list[tuple[str, str, str, str]]:
    """List the devices of a kind, or why there is none."""
    rows: list[tuple[str, str, str, str]] = []
    while (dev := device(kind, len(rows))).exist:
        about = dev.driver_version or f"compute capability {dev.compute_version}"
        units = f"{dev.multi_processor_count} units" if dev.multi_processor_count else None  # Vulkan does not say
        name, driver = (", ".join(filter(None, said)) for said in ((dev.device_name, units), (dev.api_version, about)))
        rows.append((str(dev), name, size_text(dev.total_global_memory or 0), driver))
    if not rows:
        try:
            dev.sync()
        except RuntimeError as e:
            rows.append((kind, f"none: {e}", "", ""))
    return rows


def _setting(variable: environment.Variable[Any]) -> str:
    """What a variable is now, also where it cannot be that."""
    try:
        variable.read()
    except error.InvalidArgument as e:
        return f"{variable.text}: wrong, expected {e.expected}"
    return variable.text or f"not set: {variable.unset}"


def _machine_rows(machine: Machine) -> list[tuple[str, str, str, str]]:
    """List the fields of this machine, where each is from, and what sets it."""
    used = " ".join(f for f in _FEATURES if f in machine.features) or "none of those that kernels use"
    read = {"vector_bits", "vector_registers", *host_facts()}
    rows = [("features", used, "read", "-mattr")]
    for name, value in machine.described().items():
        if name in OPTION_OF:
            rows.append((name, str(value), "read" if name in read else "assumed", f"-{OPTION_OF[name]}"))
    return [*rows, ("matrix_tiles", "on" if machine.matrix_tiles else "off", "assumed", "-matrix-tiles")]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _writable(directory: str) -> bool:
    """Whether the directory, or the nearest one above it that exists, can be written."""
    while not os.path.exists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return os.access(directory, os.W_OK)
