"""Build `weft_rpc_server`, the server of C++ alone: one static file that runs on any Linux of its processor.

Usage: ``python -m tools.rpc_server x86_64|aarch64|armv7|riscv64 ... [--sanitize]``. The compiler, its C library and
linker are those of the ``ziglang`` package; tvm-ffi's sources come with its wheel. Programs are written to
``build/rpc-server/<target>/weft_rpc_server``. With ``--sanitize`` the host's compiler builds for the host, with checks.
"""

import argparse
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tvm_ffi

from tools.wasm_runtime import kit

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "rpc-server"
TARGETS = {
    "x86_64": ("x86_64-linux-musl", ()),
    "aarch64": ("aarch64-linux-musl", ()),
    "armv7": ("arm-linux-musleabihf", ("-mcpu=generic+v7a+vfp3d16",)),
    "riscv64": ("riscv64-linux-musl", ()),
}
MAX_BYTES = 1_500_000
# Of tvm-ffi what values, functions, modules and errors need; the rest is for Python and other libraries.
FFI_SOURCES = (
    "custom_allocator dtype error function init_once object tensor extra/env_c_api extra/env_context "
    "extra/json_parser extra/library_module extra/module extra/library_module_system_lib"
).split()
NAMED_BY_NOBODY = ("ffi/function", "ffi/object", "extra/module", "extra/json_parser")  # what these register
FLAGS = (
    "-std=c++17",
    "-ffunction-sections",
    "-fdata-sections",
    "-fvisibility=hidden",
    "-DTVM_FFI_CMAKE_LITTLE_ENDIAN=1",
    "-DTVM_FFI_BACKTRACE_ON_SEGFAULT=0",
)
HOT = ("builtin", "memory", "relay_loop", "thread_pool", "vm")
SMALL = ROOT / "native" / "small"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")


def sources() -> list[Path]:
    """List what the server is made of."""
    ffi = Path(tvm_ffi.__file__).parent / "src" / "ffi"
    return [
        *(ffi / f"{name}.cc" for name in FFI_SOURCES),
        *sorted((ROOT / "native" / "src").glob("*.cc")),
        *sorted((ROOT / "native" / "server").glob("*.cc")),
    ]


def include_options() -> list[str]:
    """Where headers are."""
    package = Path(tvm_ffi.__file__).parent
    places = (
        package / "include",
        package / "3rdparty" / "dlpack" / "include",
        ROOT / "native" / "include",
        ROOT / "native" / "src",
    )
    return [f"-I{place}" for place in places]


def run(command: Sequence[str]) -> None:
    """Run a compiler; what it says is the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")


def newest_header() -> float:
    """When a header was last changed; headers count as part of each source."""
    folders = ROOT / "native", Path(tvm_ffi.__file__).parent / "include"
    return max(p.stat().st_mtime for folder in folders for suffix in ("h", "def") for p in folder.rglob(f"*.{suffix}"))


def compile_all(
    compiler: Sequence[str], options: Sequence[str], folder: Path, jobs: int, *, precompile: bool = False
) -> list[Path]:
    """Compile what is newer than its object file, with headers that clang has read once."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = newest_header()

    def is_new(out: Path, source: Path) -> bool:
        return out.exists() and out.stat().st_mtime > max(source.stat().st_mtime, newest)

    def compiled(source: Path, out: Path, *more: str) -> Path:
        if not is_new(out, source):
            run([*compiler, *FLAGS, *options, *include_options(), *more, str(source), "-o", str(out)])
        return out

    def header(level: str) -> Path:
        return compiled(SMALL / "precompiled.h", folder / f"headers{level}.pch", level, "-x", "c++-header")

    def compiled_source(source: Path) -> Path:
        level, more = "-O2" if source.stem in HOT else "-Oz", ()
        out = folder / f"{source.parent.name}_{source.stem}.o"
        if f"{source.parent.name}/{source.stem}" in NAMED_BY_NOBODY:
            more = ("-include", str(SMALL / "no_reflection.h"))
        elif precompile:
            more = ("-include-pch", str(folder / f"headers{level}.pch"))
        return compiled(source, out, level, *more, "-c")

    with ThreadPoolExecutor(jobs) as pool:
        if precompile:
            list(pool.map(header, ("-O2", "-Oz")))
        return list(pool.map(compiled_source, sources()))


def build(target: str, jobs: int) -> Path:
    """Build the server for a target; returns where it is."""
    triple, options = TARGETS[target]
    compiler = [str(kit() / "zig"), "c++", "-target", triple, *options]
    folder = BUILD / target
    objects = compile_all(compiler, (f"-I{SMALL}", "-include", str(SMALL / "sstream")), folder, jobs, precompile=True)
    out = folder / "weft_rpc_server"
    run([*compiler, "-Oz", "-static", "-s", "-Wl,--gc-sections", "-o", str(out), *map(str, objects)])
    size = out.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{out} has {size} bytes, more than {MAX_BYTES}")
    print(f"{out.relative_to(ROOT)}: {size} bytes")
    return out


def build_sanitized(jobs: int) -> Path:
    """Build the server for this machine with its own compiler and sanitizers."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise SystemExit("a C++ compiler of this machine is needed for --sanitize")
    folder = BUILD / "sanitize"
    options = ("-g1", *SANITIZERS)
    objects = compile_all([compiler], options, folder, jobs)
    out = folder / "weft_rpc_server"
    run([compiler, *SANITIZERS, "-o", str(out), *map(str, objects), "-lpthread"])
    print(out.relative_to(ROOT))
    return out


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="processors; all without any")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.sanitize:
        build_sanitized(given.jobs)
        return
    for target in given.targets or TARGETS:
        build(target, given.jobs)


if __name__ == "__main__":
    main()
