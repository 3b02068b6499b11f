"""The server without Python offers the libraries that it opens all that generated code calls."""

import re
from pathlib import Path

from weft.target.llvm import intrin

ROOT = Path(__file__).resolve().parent.parent.parent


def test_what_generated_code_calls_is_offered():
    """Every function that the emitter declares or calls by name, and the C library's mathematics in both precisions."""
    offered = set(re.findall(r"X\((\w+)\)", (ROOT / "native" / "server" / "host_symbols.cc").read_text()))
    text = "".join(path.read_text() for path in sorted((ROOT / "weft" / "target" / "llvm").glob("*.py")))
    called = set(re.findall(r"(?:declare|call) [^@\"\n]*@([A-Za-z_]\w*)\(", text))
    assert {"aligned_alloc", "weft_parallel_for"} <= called
    called |= {name + suffix for name in intrin._LIBM for suffix in ("", "f")}
    assert not called - offered
