"""Names in C's styles, made of a prefix and segments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.error import InvalidArgument


def _words(name: str, what: str) -> list[str]:
    if not name:
        raise InvalidArgument(f"{what} name is empty")
    if not name.startswith("TVM"):
        raise InvalidArgument(f"{what} not TVM prefixed", expected="TVM or TVMGen and segments", found=name)
    return name.split("_")


def to_c_function_style(original_name: str) -> str:
    """``"TVMGen_model_run"`` becomes ``"TVMGenModelRun"``."""
    first, *rest = _words(original_name, "Function")
    return first + "".join(w[:1].upper() + w[1:] for w in rest)


def to_c_variable_style(original_name: str) -> str:
    """``"TVM_Device"`` becomes ``"tvm_device"``."""
    return "_".join(_words(original_name, "Variable")).lower()


def to_c_constant_style(original_name: str) -> str:
    """``"TVM_Device"`` becomes ``"TVM_DEVICE"``."""
    return "_".join(_words(original_name, "Constant")).upper()


def _prefixed(prefix: str, names: str | Sequence[str]) -> str:
    if not names:
        raise InvalidArgument("Name is empty" if isinstance(names, str) else "Name segments empty")
    segments = [names] if isinstance(names, str) else list(names)
    if not all(segments):
        raise InvalidArgument("Name segment is empty", found=repr(segments))
    return "_".join([prefix, *segments])


def prefix_name(names: str | Sequence[str]) -> str:
    """Put ``TVM`` before a name or segments."""
    return _prefixed("TVM", names)


def prefix_generated_name(names: str | Sequence[str]) -> str:
    """Put ``TVMGen`` before a name or segments."""
    return _prefixed("TVMGen", names)


def sanitize_name(name: str) -> str:
    """Replace what an identifier of C cannot have by underscores."""
    if not name:
        raise InvalidArgument("Name is empty")
    return re.sub(r"[^0-9A-Za-z_]", "_", name)
