"""Errors of another machine: as text that says their kind, as TVM's, and as the errors that they were."""

from __future__ import annotations

import builtins
import re
import traceback

import tvm_ffi

import weft.error as errors
from weft.error import RPCError, RPCSessionTimeoutError, WeftError

_HEAD = "Traceback (most recent call last):"
_KIND = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)(?:: |$)")
_FRAMES = 8
_NOT_RAISED = (errors.ErrorGroup, StopIteration, StopAsyncIteration)
"""What is made of several errors, and what would end a loop here as if there were no more."""
_CLASSES: dict[str, type[RPCError]] = {"RPCSessionTimeoutError": RPCSessionTimeoutError, "RPCError": RPCError}


def error_text(error: BaseException) -> str:
    """The text that tells a client of an error: where it was raised, its kind, its message."""
    frames = "".join(traceback.format_tb(error.__traceback__, -_FRAMES))
    return f"{_HEAD}\n{frames}{type(error).__name__}: {error}"


def remote_error(text: str) -> RPCError:
    """The error that a text of :func:`error_text`, or of TVM's, is about.

    It is an RPCError, and also of the class that it was of where this process has that class.
    """
    lines = text.split("\n")
    if lines[0].startswith(_HEAD):
        start = next((i for i, line in enumerate(lines[1:], 1) if line and not line.startswith(" ")), len(lines) - 1)
        lines = lines[start:]
    message = "\n".join(lines)
    match = _KIND.match(message)
    kind = match[1].rsplit(".", 1)[-1] if match else ""
    if kind == RPCSessionTimeoutError.__name__:
        return RPCSessionTimeoutError(message)
    return _class_of(kind)(message, where="another machine" if "\n" not in message else None)


def _class_of(kind: str) -> type[RPCError]:
    """RPCError, and where there is a class of errors of that name, a class of both."""
    found = _CLASSES.get(kind)
    if found is None:
        known = (
            getattr(errors, kind, None) or getattr(builtins, kind, None) or tvm_ffi.core.ERROR_NAME_TO_TYPE.get(kind)
        )
        found = RPCError
        if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, _NOT_RAISED):
            found = _CLASSES[kind] = _combined(known)
    return found


def _combined(known: type[Exception]) -> type[RPCError]:
    if issubclass(known, RPCError):
        return known
    bases = (RPCError, known) if not issubclass(known, WeftError) else (known, RPCError)
    try:
        made = type(
            known.__name__,
            bases,
            {
                "__doc__": f"{known.__name__} on another machine.",
                "__init__": WeftError.__init__,
                "__str__": WeftError.__str__,
            },
        )
        made("")
    except TypeError:  # classes whose layouts or arguments do not go together
        return RPCError
    tvm_ffi.core.ERROR_TYPE_TO_NAME[made] = known.__name__  # so that it keeps its kind across native functions, too
    return made
