"""GLSL to SPIR-V, by ``glslangValidator``."""

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weft.error import CodegenError


def assemble(text: str, shared: Mapping[str, int]) -> bytes:
    """Compile kernels to what devices load.

    Parameters
    ----------
    text : str
        GLSL in which ``WEFT_KERNEL``, the number of a kernel, chooses it.
    shared : mapping of str to int
        The kernels in that order, with the bytes of memory that the threads of a block share.

    Returns
    -------
    bytes
        For each kernel its name, the decimal digits of those bytes and SPIR-V, each after its length (u64).

    Raises
    ------
    CodegenError
        Where the compiler is not installed, or refuses a kernel.
    """
    compiler = shutil.which("glslangValidator")
    if compiler is None:
        raise CodegenError(
            "target vulkan needs Khronos' compiler of GLSL",
            expected="glslangValidator on the PATH",
            found="none",
            help="install it: apt install glslang-tools, or the Vulkan SDK",
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernels.comp")
        source.write_text(text)

        def compiled(numbered: tuple[int, str]) -> bytes:
            out = source.with_suffix(f".{numbered[0]}.spv")
            command = [compiler, "-V", "--target-env", "vulkan1.2", f"-DWEFT_KERNEL={numbered[0]}", "-o", out, source]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CodegenError(f"glslangValidator does not compile the kernel {numbered[1]}", found=done.stdout)
            return _keeping_special_values(out.read_bytes())

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            codes = list(pool.map(compiled, enumerate(shared)))
    parts = [
        part
        for (name, size), code in zip(shared.items(), codes, strict=True)
        for part in (name.encode(), str(size).encode(), code)
    ]
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def _keeping_special_values(code: bytes) -> bytes:
    """Keep NaN and the sign of zero in float64, too, where a kernel has it; in GLSL one width can be named."""
    words = list(memoryview(code).cast("I"))
    at, doubles = 5, False
    while words[at] & 0xFFFF != 54:  # the first function
        doubles |= words[at : at + 2] == [2 << 16 | 17, 10]  # OpCapability Float64
        if doubles and words[at] == 4 << 16 | 16 and words[at + 2 : at + 4] == [4461, 32]:  # OpExecutionMode
            return struct.pack(f"<{len(words) + 4}I", *words[: at + 4], *words[at : at + 3], 64, *words[at + 4 :])
        at += words[at] >> 16
    return code
