"""Build the runtime for WebAssembly: ``python -m tools.wasm_runtime [FILE]``, ``web/runtime.wasm`` by default.

ziglang (PyPI) brings clang, wasm-ld, the C and the C++ library; tvm-ffi's sources are those of the installed package.
The C++ library of the kit throws nothing, so its three files about exceptions are compiled here, too, with
WebAssembly's own exceptions, which every browser has. Objects are kept in ``build/wasm`` and made again when a file
that they include is newer.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import tvm_ffi

ROOT = Path(__file__).resolve().parent.parent
BUILD, NATIVE = ROOT / "build" / "wasm", ROOT / "native"
LIMIT = 600_000  # bytes of the runtime

_FFI = (
    "function backtrace init_once dtype object tensor error custom_allocator extra/env_c_api extra/module "
    "extra/env_context"
).split()
_RUNTIME = (
    "builtin builtin_checks code_module error executable growing memory module padding register system_memory "
    "tensor_copy tvm_backend unique vm vm_decode"
).split()
# What JavaScript calls, and what kernels may: services of the runtime, functions of the C library.
_EXPORTS = """
snprintf TVMFFIHandleInitOnce TVMFFIHandleDeinitOnce TVMFFIFunctionCall TVMFFIFunctionCreate
TVMFFIFunctionGetGlobal TVMFFIFunctionSetGlobal TVMFFIObjectIncRef TVMFFIObjectDecRef TVMFFIErrorMoveFromRaised
TVMFFIErrorSetRaised TVMFFIErrorSetRaisedFromCStr TVMFFIEnvModLookupFromImports TVMFFITensorFromDLPackVersioned
TVMFFIStringFromByteArray TVMFFIDataTypeFromString TVMFFIAnyViewToOwnedAny weft_parallel_for
weft_parallel_forwards weft_workspace_alloc weft_workspace_free weft_arg_error weft_set_error weft_num_threads
weft_request_tiles aligned_alloc malloc free memcpy memmove memset fmod fmodf exp expf exp2 exp2f exp10 exp10f
log logf log2 log2f log10 log10f log1p log1pf expm1 expm1f pow powf sin sinf cos cosf tan tanf asin asinf acos
acosf atan atanf atan2 atan2f sinh sinhf cosh coshf tanh tanhf asinh asinhf acosh acoshf atanh atanhf erf erff
cbrt cbrtf hypot hypotf fma fmaf round roundf ldexp ldexpf nextafter nextafterf copysign copysignf tgamma
tgammaf lgamma lgammaf __stack_pointer __multi3 __divti3 __udivti3 __modti3 __umodti3
""".split()
_FLAGS = (
    "-target wasm32-wasi -Os -fexceptions -fwasm-exceptions -mexception-handling -msimd128 -mbulk-memory -DNDEBUG -w"
).split()


def kit() -> Path:
    """Return the folder of the ziglang package."""
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("the compiler is that of the ziglang package: pip install 'weft[cross]'")
    return Path(spec.origin).parent


def _own_options() -> list[str]:
    """List what every file of the runtime and of tvm-ffi is compiled with."""
    ffi = Path(tvm_ffi.__file__).parent
    return [
        "-std=c++17",
        "-Oz",
        "-fvisibility=hidden",
        "-DTVM_FFI_CMAKE_LITTLE_ENDIAN=1",
        "-DTVM_FFI_USE_LIBBACKTRACE=0",
        f"-I{ffi / 'include'}",
        f"-I{NATIVE / 'include'}",
        f"-I{NATIVE / 'src'}",
        f"-I{NATIVE / 'wasm/include'}",
        f"-I{NATIVE / 'small'}",
        "-include",
        "single_thread.h",
    ]


def _sources(zig: Path, headers: str) -> list[tuple[Path, list[str]]]:
    """List the files to compile, each with what only it is compiled with; `headers` are those that clang has read."""
    ffi, plain = Path(tvm_ffi.__file__).parent, _own_options()
    own = ["-include-pch", headers, *plain]
    abi, unwind = zig / "lib" / "libcxxabi", zig / "lib" / "libunwind"
    thrown = [
        "-Os",
        "-D_LIBCXXABI_BUILDING_LIBRARY",
        "-D_LIBCPP_BUILDING_LIBRARY",
        "-DLIBCXX_BUILDING_LIBCXXABI",
        "-D_LIBCXXABI_HAS_NO_THREADS",
        f"-I{abi / 'include'}",
        f"-I{unwind / 'include'}",
        f"-I{zig / 'lib' / 'libcxx' / 'src'}",
    ]
    return [  # those about exceptions first: the kit's library, which has them without throwing, is only asked then
        *((abi / "src" / f"{name}.cpp", thrown) for name in ("cxa_exception", "cxa_personality")),
        *((ffi / "src" / "ffi" / f"{name}.cc", [*plain, "-include", "no_reflection.h"]) for name in _FFI),
        *((NATIVE / "src" / f"{name}.cc", own) for name in _RUNTIME),
        *((file, own) for file in sorted((NATIVE / "wasm").glob("*.cc"))),
        (unwind / "src" / "Unwind-wasm.c", ["-fdeclspec", "-D_LIBUNWIND_HIDE_SYMBOLS", f"-I{unwind / 'include'}"]),
    ]


def _is_new(out: Path, depends: Path) -> bool:
    """Whether an object is newer than all that it was made of."""
    if not out.exists() or not depends.exists():
        return False
    files = depends.read_text().replace("\\\n", " ").split()[1:]
    made = out.stat().st_mtime
    return all(Path(f).exists() and Path(f).stat().st_mtime <= made for f in files)


def build(out: Path) -> None:
    """Compile what changed and link the runtime to `out`."""
    zig = kit()
    BUILD.mkdir(parents=True, exist_ok=True)

    def compiled(source: Path, extra: list[str], suffix: str = ".o") -> str:
        target = BUILD / f"{source.parent.name}-{source.stem}{suffix}"
        depends = target.with_suffix(f"{suffix}.d")
        if not _is_new(target, depends):
            print(f"compiling {source.name}", flush=True)
            driver = "cc" if source.suffix == ".c" else "c++"
            command = [str(zig / "zig"), driver, *_FLAGS, *extra, "-MD", "-MF", str(depends), str(source)]
            subprocess.run([*command, "-o", str(target)], check=True)
        return str(target)

    headers = compiled(NATIVE / "small" / "precompiled.h", [*_own_options(), "-x", "c++-header"], ".pch")
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda s: compiled(s[0], [*s[1], "-c"]), _sources(zig, headers)))
    linker = (
        "--export-table",
        "--growable-table",
        "--import-memory",
        "--export-memory",
        "-z,stack-size=1048576",
        "--max-memory=4294901760",
        *(f"--export={name}" for name in _EXPORTS),
    )
    command = [str(zig / "zig"), "c++", *_FLAGS, "-mexec-model=reactor", "-s", "-o", str(out), *objects]
    subprocess.run([*command, *(f"-Wl,{option}" for option in linker)], check=True)
    size = out.stat().st_size
    print(f"{out}: {size:,} bytes")
    if size > LIMIT:
        raise SystemExit(f"the runtime has {size:,} bytes; at most {LIMIT:,} are allowed")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "web" / "runtime.wasm")
