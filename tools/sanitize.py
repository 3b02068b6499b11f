"""Build the native runtime with sanitizers and run its stress program and tests under them.

Usage: ``python tools/sanitize.py [address] [thread]``. Each sanitizer has its build folder, ``build/sanitize-<name>``;
the program is `native/tests/stress.cc`, the tests those of `tests/runtime` with the sanitizer loaded into Python.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import tvm_ffi

from tests import clock

ROOT = Path(__file__).resolve().parent.parent
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
PRELOAD = {"address": ("libasan.so", "libstdc++.so.6"), "thread": ("libtsan.so",)}
# Python itself leaves memory behind; the stress program is looked at for leaks too.
OPTIONS = {
    "address": {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"},
    "thread": {"TSAN_OPTIONS": "die_after_fork=0:exitcode=66"},
}
TESTS = {
    "address": "vm executable tensor threads mapped_weights relay_vm relay_machine relay_executable graph_executor",
    "thread": "threads shared_executable vm relay_machine graph_executor",
}
# They compare memory, wait for an idle machine or for a signal (which the thread sanitizer puts off), or start a Python
# without the sanitizer.
NOT_UNDER = (
    "keep_coming or endless_loop or touched_and_is_shared or stays_in_this_process or take_no_memory or "
    "without_the_compiler"
)
CALLS = {"address": 2000, "thread": 500}
MODEL = """
import sys
from weft import relax, tir
n, bb = tir.Var("n", "int64"), relax.BlockBuilder()
x = relax.Var("x", relax.TensorStructInfo((n, 4), "float32"))
with bb.function("main", [x]):
    with bb.dataflow():
        y = bb.emit(relax.op.add(x, x))
        y = bb.emit_output(bb.emit(relax.op.add(y, y)))
    bb.emit_func_output(y)
relax.build(bb.get(), "llvm", relax_pipeline="zero").export_library(sys.argv[1])
"""


def run(what: str, command: list[str], limit: float = 900, **environment: str) -> None:
    """Run a command, for `limit` seconds at most that others leave it; end with its output when it fails."""
    start = time.monotonic()
    done = clock.run(command, limit, ROOT, {**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\n{what}: failed with status {done.returncode}")
    print(f"{what}: clean, {time.monotonic() - start:.0f} s", flush=True)


def library_path(name: str) -> str:
    """Where the compiler has a library."""
    return subprocess.check_output([os.environ.get("CXX", "g++"), f"-print-file-name={name}"], text=True).strip()


def sanitize(name: str) -> None:
    """Build and run under one sanitizer."""
    folder = ROOT / "build" / f"sanitize-{name}"
    settings = {
        "WEFT_SANITIZE": SANITIZERS[name],
        "WEFT_LIBRARY_DIR": folder / "lib",
        "Python_EXECUTABLE": sys.executable,
    }
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), *(f"-D{k}={v}" for k, v in settings.items())]
    run(f"{name}: configure", configure)
    build = ["cmake", "--build", str(folder), "--parallel", "2", "--target", "weft_stress"]
    run(f"{name}: build", build, limit=3600)
    model = folder / "model.so"
    run(f"{name}: model", [sys.executable, "-c", MODEL, str(model)])
    tvm_ffi_folder = Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent
    stress = [str(folder / "native" / "tests" / "weft_stress"), str(model), str(CALLS[name])]
    options = {**OPTIONS[name], "LD_LIBRARY_PATH": str(tvm_ffi_folder)}
    if name == "address":
        options["ASAN_OPTIONS"] = "detect_leaks=1"
    run(f"{name}: stress", stress, **options)
    broken = subprocess.run([*stress, "break"], env={**os.environ, **options}, capture_output=True, text=True)
    if "Sanitizer: " not in broken.stderr:
        sys.exit(f"{broken.stderr}\n{name}: a deliberate mistake went unseen")
    tests = [str(ROOT / "tests" / "runtime" / f"test_{file}.py") for file in TESTS[name].split()]
    run(
        f"{name}: tests",
        [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "-k",
            f"not ({NOT_UNDER})",
            *tests,
        ],
        **OPTIONS[name],
        WEFT_RUNTIME_LIBRARY=str(folder / "lib" / "libweft_runtime.so"),
        LD_PRELOAD=" ".join(map(library_path, PRELOAD[name])),
    )


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SANITIZERS:
        sanitize(chosen)
