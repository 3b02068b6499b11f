"""Hybrid script: loops in Python's words that run on arrays, and become a tensor's operation on tensors.

``script`` makes one of a function; ``build`` writes a schedule as one. Read in this order: ``runtime`` (what the words
mean), ``tracing`` (how statements come of them), ``source`` (how they become text again).
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from weft import ir, tir
from weft.error import InvalidArgument, ParseError
from weft.runtime import write_file
from weft.te.compute import extern
from weft.te.hybrid.runtime import HYBRID_GLOBALS
from weft.te.hybrid.source import write
from weft.te.hybrid.tracing import Constants, Handle, Tracer, traced
from weft.te.schedule_ops import schedule_to_prim_func
from weft.te.stages import Schedule
from weft.te.tensor import Tensor

__all__ = ["HYBRID_GLOBALS", "HybridModule", "build", "script"]


def script(pyfunc: Callable[..., Any]) -> Callable[..., Any]:
    """Make a hybrid script of a function.

    On arrays and numbers the result runs as Python and returns arrays. If an argument is a tensor, a variable or an
    expression, it returns the tensors that the function made by ``output_tensor(shape, dtype)``. Words: loops over
    ``range``, ``serial``, ``parallel``, ``vectorize``, ``unroll``, ``bind(thread, extent)``, and ``const_range``, whose
    iterations are written out; ``allocate(shape, dtype, scope)``; data types as casts; ``sqrt``, ``exp`` and the like;
    other hybrid scripts.

    Raises
    ------
    ParseError
        When the source cannot be read, or has statements that hybrid script lacks.
    """
    try:
        source = textwrap.dedent(inspect.getsource(pyfunc))
    except OSError as e:
        raise ParseError("the source of a hybrid script cannot be read", help="define it in a file") from e
    return _script(pyfunc, source)


def _script(fn: Any, source: str) -> Callable[..., Any]:
    tree = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef))

    @functools.wraps(fn)
    def run(*args: Any) -> Any:
        given = [_plain(a) for a in args]
        if not any(_is_traced(a) for a in given):
            words = {**fn.__globals__, **HYBRID_GLOBALS}
            return FunctionType(fn.__code__, words, fn.__name__, fn.__defaults__, fn.__closure__)(*args)
        captured = dict(zip(fn.__code__.co_freevars, (c.cell_contents for c in fn.__closure__ or ()), strict=True))
        scope = {**fn.__globals__, **{n: _plain(v) for n, v in captured.items()}}
        return _traced_call(tree, scope, fn.__code__.co_filename, given)

    return run


def _traced_call(tree: ast.FunctionDef, scope: dict[str, Any], filename: str, args: list[Any]) -> Any:
    caller = next((a.tracer for a in args if isinstance(a, Handle)), None)
    tracer = caller or Tracer()
    buffers: dict[Tensor, tir.Buffer] = {}

    def handle(a: Any) -> Any:
        if isinstance(a, Constants):
            return Constants(handle(v) for v in a)
        if not isinstance(a, Tensor):
            return a
        if a not in buffers:
            buffers[a] = tir.decl_buffer(a.shape, a.dtype, a.op.name)
        return Handle(tracer, buffers[a])

    tracer.depth += 1
    result = traced(tree, scope, filename, tracer)(*map(handle, args))
    tracer.depth -= 1
    if caller is not None:
        return result
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    outs = [r.buffer for r in results if isinstance(r, Handle)]
    if not outs or len(outs) != len(results) or set(outs) != set(tracer.outputs):
        raise InvalidArgument(
            f"hybrid script '{tree.name}' returns other things than output_tensor made",
            expected=", ".join(b.name for b in tracer.outputs),
            found=repr(result),
        )
    return extern(
        [b.shape for b in outs],
        list(buffers),
        lambda *_: tracer.builder.get(),
        name=outs[0].name,
        in_buffers=list(buffers.values()),
        out_buffers=outs,
        dtype=[b.dtype for b in outs],
    )


def _plain(value: Any) -> Any:
    """Make lists that any index may come to, and Python's numbers, of arrays of constants."""
    if isinstance(value, (ir.IntImm, ir.FloatImm)):
        return value.value
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return Constants(_plain(v) for v in value)


def _is_traced(value: Any) -> bool:
    return any(map(_is_traced, value)) if isinstance(value, Constants) else isinstance(value, _OF_PROGRAMS)


_OF_PROGRAMS = (Tensor, Handle, ir.PrimExpr)


class HybridModule:
    """A hybrid script as text, which can be saved, loaded and called.

    Parameters
    ----------
    src : str, optional
        The text of one function.
    name : str, optional
        What the function is called; the name that it is defined by.
    """

    def __init__(self, src: str | None = None, name: str | None = None) -> None:
        self.name = name
        if src is not None:
            self._read(src, "<hybrid script>")

    def _read(self, src: str, filename: str) -> None:
        space: dict[str, Any] = {}
        exec(compile(src, filename, "exec"), space)
        self.src_, self.name = src, next(n for n, f in space.items() if isinstance(f, FunctionType))
        self.func_ = _script(space[self.name], src)

    def __call__(self, *args: Any) -> Any:
        """Run the script."""
        return self.func_(*args)

    def get_source(self) -> str:
        """Return the text."""
        return self.src_

    def save(self, path: Any) -> None:
        """Write the text to a file, whose name gets ``.py``."""
        write_file(path if str(path).endswith(".py") else f"{path}.py", self.src_)

    def load(self, path: Any) -> None:
        """Read the text of a file."""
        self._read(Path(path).read_text(), str(path))


def build(sch: Schedule, inputs: Sequence[Any], outputs: Sequence[Any], name: str = "hybrid_func") -> HybridModule:
    """Write a schedule as a hybrid script that takes `inputs` and returns `outputs`.

    Raises
    ------
    InvalidArgument
        When the schedule has statements or expressions that hybrid script lacks.
    """
    results = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    func = schedule_to_prim_func(sch, [*inputs, *results], name)
    return HybridModule(write(func, len(inputs), name), name)
