"""Instructions that a program names itself, tried in a process of their own: LLVM ends one where it has no code."""

from __future__ import annotations

import subprocess
import sys

from weft.error import CodegenError
from weft.target.target import Target

__all__ = ["check_instructions"]

_PROGRAM = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
module = llvm.parse_assembly(sys.stdin.read())
kind = llvm.Target.from_triple(sys.argv[1])
kind.create_target_machine(cpu=sys.argv[2], features=sys.argv[3]).emit_assembly(module)
"""


def check_instructions(text: str, names: set[str], target: Target) -> None:
    """Refuse LLVM IR that has instructions, of those with some names, that an architecture lacks.

    Raises
    ------
    CodegenError
        With LLVM's reason.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, target.triple, target.cpu, target.attribute_string],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        reasons = [line for line in done.stderr.splitlines() if "ERROR" in line or "rror:" in line]
        raise CodegenError(
            f"target nvptx of {target.cpu} has no code for one of {', '.join(sorted(names))}",
            found=reasons[0] if reasons else done.stderr.strip()[-200:],
            help="name a newer architecture (-mcpu=sm_90) or version of PTX (-mattr=+ptx80)",
        )
