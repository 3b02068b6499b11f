"""Errors that people can act on: what went wrong, where, what was expected, what was found, what to do.

Every error that a user can cause is a :class:`WeftError`. Its fields are data, so that tests and tools read them;
its text is rendered once, here. Verifiers and importers collect all their errors and raise one :class:`ErrorGroup`.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from types import ModuleType
from typing import Any


class WeftError(RuntimeError):
    """The base of every error that Weft raises on purpose; a RuntimeError, as those of TVM's programs are.

    Parameters
    ----------
    what : str
        What went wrong, in one line.
    where : Span, node, str or None
        The place: a source span (``file``, ``line``, ``column``), or words such as ``ONNX node 17 "/encoder/MatMul"``.
    expected, found : str or None
        What would have been right and what was there.
    help : str or None
        What to do about it.
    """

    def __init__(
        self,
        what: str,
        *,
        where: Any = None,
        expected: str | None = None,
        found: str | None = None,
        help: str | None = None,
    ) -> None:
        self.what, self.where, self.expected, self.found, self.help = what, where, expected, found, help
        super().__init__(what)

    def __str__(self) -> str:
        return _render(self)


class InvalidArgument(WeftError, ValueError, TypeError):
    """An argument of a public function has a wrong value, type, shape or count."""


class ShapeMismatch(InvalidArgument):
    """Shapes or dimensions that must agree do not."""


class DTypeMismatch(InvalidArgument):
    """Data types that must agree do not."""


class IndexOutOfRange(InvalidArgument, IndexError):
    """An index, or a tensor of indices, points outside of the tensor that it is for."""


class TypeInferenceError(WeftError, ValueError, TypeError):
    """The type of an expression cannot be inferred: an operand has a wrong type or a wrong value."""


class OpError(WeftError):
    """An operator of a model is not as its importer needs it; converters of one's own raise this and its kinds."""


class OpNotImplemented(OpError, NotImplementedError):
    """An importer has no such operator."""


class OpAttributeUnImplemented(OpNotImplemented):
    """An importer does not know an attribute of an operator."""


class OpAttributeInvalid(OpError, AttributeError):
    """An attribute of a model's operator has a value that the operator does not take."""


class OpAttributeRequired(OpError, AttributeError):
    """A model's operator lacks an attribute."""


class ModelImportError(OpError):
    """A model file is malformed or uses something in a way its format forbids."""


class UnsupportedOperator(ModelImportError, OpNotImplemented):
    """A model uses operators or operator versions that Weft does not have."""


class ParseError(WeftError, SyntaxError):
    """Text in one of Weft's languages does not parse."""

    def __init__(self, what: str, **details: Any) -> None:
        super().__init__(what, **details)
        self.msg = what  # what Python shows of a SyntaxError

    def __str__(self) -> str:
        return _render(self)


class VerifyError(WeftError):
    """An IR does not have the form that a stage asks for."""


class ScheduleError(WeftError):
    """A schedule primitive is refused, because it would change the result or cannot be applied."""


class UnknownHandle(ScheduleError):
    """A schedule primitive is given no block or loop of the function: another thing, or one that is gone.

    It says of the program that schedules, not of the function, that something is wrong: a schedule rule that meets it
    has a defect, where one that meets another ScheduleError does not suit a block.
    """


class ScheduleWarning(UserWarning):
    """A kernel that no schedule rule suits is estimated to take a good part of a model's time."""


class LoweringError(WeftError):
    """A function cannot be lowered to the next form."""


class CodegenError(WeftError):
    """Native code cannot be generated for a function on a target."""


class ExecutableError(WeftError):
    """An executable or library file is damaged, cut short, of another version, or lacks a part."""


class EvaluationError(WeftError):
    """A program that is evaluated cannot go on: no clause matches a value, or calls are nested too deep."""


class OutOfMemory(WeftError, MemoryError):
    """There is not the memory that a result, or the compiler, needs."""


class RPCError(WeftError, RuntimeError):
    """What was asked of another machine failed there, or the connection to it did."""


class RPCSessionTimeoutError(RPCError, TimeoutError):
    """A session with another machine took longer than it was given."""


class NestedTooDeep(WeftError, RecursionError):
    """A program, a model or its calls are nested deeper than can be followed."""


class MissingDependency(WeftError, ImportError):
    """An optional package that a feature needs is not installed."""


class InternalError(WeftError):
    """A defect of Weft itself. Please report it."""

    def __str__(self) -> str:
        return _render(self) + "\n  this is a defect of Weft; please report it with the text above"


class NoDefect(InternalError):
    """What a program did wrong, of which TVM says so by an internal error, so that programs catch it as one."""

    def __str__(self) -> str:
        return _render(self)


def is_defect(e: BaseException | None) -> bool:
    """Whether an error is a defect of Weft itself."""
    return isinstance(e, InternalError) and not isinstance(e, NoDefect)


class UnsupportedForm(LoweringError, NoDefect):
    """A program has a form that a pass does not take."""


class DuplicateSymbol(CodegenError, NoDefect):
    """Two functions of a module are exported by one name."""


class WrongAttribute(InvalidArgument, NoDefect):
    """An attribute of an operator has a value that it cannot have."""


class ErrorGroup(WeftError):
    """Several errors found in one go.

    Parameters
    ----------
    what : str
        The headline.
    errors : sequence of WeftError
        The errors, in the order of the program.
    """

    def __init__(self, what: str, errors: Sequence[WeftError]) -> None:
        super().__init__(what)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join([self.what, *("- " + str(e).replace("\n", "\n  ") for e in self.errors)])


TVMError = DiagnosticError = WeftError
"""TVM's names for the base class; the second is of errors in Relay programs."""


def _render(error: WeftError) -> str:
    """Render `error` as text: a headline, the source line with a caret, then expected, found and help."""
    lines = [error.what]
    lines += render_where(error.where)
    if error.expected is not None:
        found = f", found {error.found}" if error.found is not None else ""
        lines.append(f"  expected {error.expected}{found}")
    elif error.found is not None:
        lines.append(f"  found {error.found}")
    if error.help is not None:
        lines.append(f"  help: {error.help}")
    return "\n".join(lines)


def render_where(where: Any) -> list[str]:
    """Render a place: file, line and column, then the source line with a caret where it can be read."""
    if where is None:
        return []
    span = where if hasattr(where, "line") and hasattr(where, "file") else getattr(where, "span", None)
    if span is None:
        return [f"  --> {where}"]
    lines = [f"  --> {span.file}:{span.line}:{span.column}"]
    source = linecache.getline(span.file, span.line).rstrip("\n")
    if source:
        end_line, end_column = getattr(span, "end_line", None), getattr(span, "end_column", None)
        width = end_column - span.column if end_line == span.line and end_column is not None else 1
        lines += ["   |  " + source, "   |  " + " " * (span.column - 1) + "^" * max(1, width)]
    return lines


_NO_MEMORY = ("Cannot allocate memory", "cannot allocate memory", "failed to map segment", "can't start new thread")
"""What the system's loader and Python say where there is no memory for a library or for a thread's stack."""


def _lacks_memory(e: BaseException | None) -> bool:
    while e is not None and not isinstance(e, MemoryError) and not any(said in str(e) for said in _NO_MEMORY):
        e = e.__cause__ or e.__context__
    return e is not None


class own_errors(AbstractContextManager[Any], ContextDecorator):  # a generator would cost each call two microseconds
    """Raise what memory and nesting ask too much of as Weft's errors.

    Parameters
    ----------
    doing : str
        What is done, for the message: ``"compiling the module"``.

    Raises
    ------
    OutOfMemory
        In place of other kinds of MemoryError, and of what libraries and threads raise for want of memory.
    NestedTooDeep
        In place of other kinds of RecursionError.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __exit__(self, kind: object, e: BaseException | None, trace: object) -> None:
        if isinstance(e, WeftError) or not isinstance(e, (MemoryError, ImportError, OSError, RuntimeError)):
            return
        if _lacks_memory(e):
            limits = "close other programs, or raise the limits of memory and threads (ulimit -v, ulimit -u)"
            raise OutOfMemory(
                f"{self._doing} needs more memory than there is", found=str(e) or None, help=limits
            ) from e
        if isinstance(e, RecursionError):
            raise NestedTooDeep(
                f"{self._doing} follows expressions nested deeper than Python goes",
                found=f"the recursion limit of {sys.getrecursionlimit()}",
                help="give deep expressions names of their own, or raise sys.setrecursionlimit",
            ) from e


_WRONG = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, EOFError)
"""What Python and NumPy raise where something has another form than the code that takes it apart expects."""


@contextmanager
def reading(
    what: str, kind: type[WeftError] = InvalidArgument, also: tuple[type[Exception], ...] = (), **details: Any
) -> Generator[None]:
    """Raise what a file or a text of a wrong form leads to as an error of Weft, of which `what` is the first line.

    `also` are errors that only this form has; ``found`` is what Python said, unless it is among the `details`.
    """
    try:
        yield
    except WeftError:
        raise
    except (*_WRONG, *also) as e:
        told = "it nests too deep" if isinstance(e, RecursionError) else f"{type(e).__name__}: {e}"
        raise kind(what, **{"found": told, **details}) from e


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional package, or say how to install it.

    Parameters
    ----------
    module : str
        The module's import name, for example ``"onnx"``.
    extra : str
        The extra of Weft that brings it.

    Raises
    ------
    MissingDependency
        When the package is not installed; the message has the pip command.
    OutOfMemory
        When there is none for its libraries.
    """
    try:
        with own_errors(f"loading the Python package '{module}'"):
            return importlib.import_module(module)
    except ImportError as e:
        raise MissingDependency(
            f"this feature needs the Python package '{module.split('.')[0]}'",
            found=str(e),
            help=f"pip install 'weft[{extra}]'",
        ) from e


def py_str(x: bytes) -> str:
    """Return text that came from C as bytes; TVM has it where its errors are (``tvm._ffi.base``)."""
    return x.decode()
