"""Intrinsics of LLVM that a program names itself, tried in a process of their own.

LLVM ends the process over a name that it once had with other types, and over an instruction that the target lacks.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from functools import lru_cache

from weft.error import CodegenError
from weft.runtime.process import command
from weft.target.cpu import ASK_LLVM
from weft.target.target import Target

_UNKNOWN = "LLVM does not know the name"  # what ASK_LLVM says


def check_intrinsic(name: str, result: str, args: list[tuple[str, str]], target: Target) -> None:
    """Refuse an intrinsic that LLVM does not know, not with these types, or that the target lacks.

    Parameters
    ----------
    name : str
        With its suffix.
    result : str
        LLVM's type of the result.
    args : list of (str, str)
        Types and values; constants stay constants, which some intrinsics ask for.

    Raises
    ------
    CodegenError
        With LLVM's reason.
    """
    types = ", ".join(t for t, _ in args)
    is_constant = [v[:1] not in "%@" for _, v in args]
    values = ", ".join(
        f"{t} {v if c else f'%a{i}'}" for i, ((t, v), c) in enumerate(zip(args, is_constant, strict=True))
    )
    params = ", ".join(f"{t} %a{i}" for i, ((t, _), c) in enumerate(zip(args, is_constant, strict=True)) if not c)
    value, back = ("", "void") if result == "void" else ("%r = ", f"{result} %r")
    text = f"""declare {result} @{name}({types})
define {result} @try({params}) {{
  {value}call {result} @{name}({values})
  ret {back}
}}
"""
    problem = _problem(text, target.triple, target.cpu, target.attribute_string)
    if problem:
        raise CodegenError(
            f"target {target.kind}{f' of {target.cpu}' * bool(target.cpu)} has no intrinsic '{name}' of these types",
            found=f"{result} {name}({types}): {problem}",
            help="LLVM's language reference lists names and types; -mcpu and -mattr name what the machine has",
        )


_NUMBERED: dict[int, str] = {}  # the names behind numbers that were asked for


def llvm_lookup_intrinsic_id(name: str) -> int:
    """Return a number that calls may have for an intrinsic of LLVM, such as ``"llvm.fma"``; 0 where there is none.

    It is the same in every process, and no number of LLVM's own, which mean other intrinsics in every version.
    """
    number = 1 << 30 | zlib.crc32(name.encode()) >> 2
    if _NUMBERED.get(number) != name:
        text = f"declare void @{name}()"
        if not re.fullmatch(r"llvm\.[\w.]+", name) or _UNKNOWN in _problem(text, Target("llvm").triple, "", ""):
            return 0
        if _NUMBERED.setdefault(number, name) != name:
            raise CodegenError("two intrinsics have one number", found=f"{name} and {_NUMBERED[number]}")
    return number


def llvm_get_intrinsic_name(intrin_id: int) -> str:
    """Return the name of an intrinsic by a number that :func:`llvm_lookup_intrinsic_id` returned; refuse others."""
    if intrin_id in _NUMBERED:
        return _NUMBERED[intrin_id]
    raise CodegenError("no intrinsic has this number", found=str(intrin_id), help="name it: 'llvm.fma'")


@lru_cache(maxsize=256)
def _problem(text: str, triple: str, cpu: str, features: str) -> str:
    asked = command(ASK_LLVM, triple, cpu, features, watched=False)
    done = subprocess.run(asked, input=text, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reasons = [line for line in lines if "rror:" in line or "ERROR" in line or "Assertion" in line]
    return reasons[-1] if reasons else lines[-1] if lines else f"LLVM ended with {done.returncode}"
