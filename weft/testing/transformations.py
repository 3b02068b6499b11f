"""Tests of transformations as classes: what goes in, what is done, what has to come out (``tvm.testing``)."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, cast

from weft import error, ir
from weft.ir.text.parser import from_source


class CompareBeforeAfter:
    """Base of test classes with ``before``, ``transform`` and ``expected``; pytest finds ``test_compare`` in them.

    ``before`` and ``expected`` are functions or modules, TVMScript functions without their decorator, classes of such
    (``Before``, ``Expected``), methods that return one, or fixtures. ``expected`` may be a class of exceptions, which
    the transformation has to raise. ``transform`` is a pass, a method that returns one, or a fixture.
    """

    check_well_formed: bool = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, others, convert in (
            ("before", ("before", "Before"), _program),
            ("expected", ("expected", "Expected"), _program),
            ("transform", ("transform",), _transformation),
        ):
            given = [n for n in others if n in vars(cls)]
            if len(given) > 1:
                raise TypeError(f"{cls.__name__} has {' and '.join(given)}; one is expected")
            if given and not _is_fixture(vars(cls)[given[0]]):
                setattr(cls, name, error.require("pytest", extra="test").fixture(convert(vars(cls)[given[0]])))

    def test_compare(self, before: Any, expected: Any, transform: Any) -> None:
        """Transform what is there before and compare with what is expected."""
        apply = _applied(transform)
        if inspect.isclass(expected) and issubclass(expected, BaseException):
            with error.require("pytest", extra="test").raises(expected):
                apply(before)
            return
        after = apply(before)
        if isinstance(before, ir.BaseFunc):
            after, expected = (f.with_attr("global_symbol", "main") for f in (after, cast(ir.BaseFunc, expected)))
        ir.assert_structural_equal(after, expected)


def _is_fixture(value: Any) -> bool:
    return hasattr(value, "_pytestfixturefunction") or type(value).__name__ == "FixtureFunctionDefinition"


def _takes_self(value: Any) -> bool:
    return inspect.isfunction(value) and list(inspect.signature(value).parameters)[:1] == ["self"]


def _transformation(value: Any) -> Callable[[Any], Any]:
    """Make the fixture's function of a pass, or of a method that returns one."""
    return value if _takes_self(value) else lambda self: value


def _program(value: Any) -> Callable[[Any], Any]:
    """Make the fixture's function of whatever stands for a program, or for an exception."""
    if _takes_self(value):
        return value
    if isinstance(value, (ir.BaseFunc, ir.IRModule)) or (inspect.isclass(value) and issubclass(value, BaseException)):
        return lambda self: value
    if inspect.isclass(value):
        return lambda self: ir.IRModule({n: _named(f, n) for n, f in vars(value).items() if not n.startswith("_")})
    return lambda self: _parsed(value)


def _named(value: Any, name: str) -> ir.BaseFunc:
    func: Any = value if isinstance(value, ir.BaseFunc) else _parsed(value)
    return func.with_attr("global_symbol", name)


def _parsed(function: Any) -> Any:
    return from_source("@T.prim_func\n" + textwrap.dedent(inspect.getsource(function)))


def _applied(transform: Any) -> Callable[[Any], Any]:
    """Return what a transformation of modules makes of a function or a module."""

    def apply(program: Any) -> Any:
        if isinstance(program, ir.IRModule):
            return transform(program)
        return transform(ir.IRModule({"main": program}))["main"]

    return apply


def check_error(func: Callable[..., Any], rel_lineno: int) -> None:
    """Check that a function's text is no TIR program, because of one of its lines.

    Parameters
    ----------
    func : function
        What ``T.prim_func`` would decorate.
    rel_lineno : int
        The line, where that of the ``def`` is 1. What follows ``# check_error:`` there is in the message.

    Raises
    ------
    AssertionError
        When the text is a program, or another line or message is wrong.
    """
    with error.require("pytest", extra="test").raises(error.WeftError) as refused:
        _parsed(func)
    line = getattr(refused.value.where, "line", None)
    assert line == rel_lineno + 1, f"line {rel_lineno} is wrong; found: {refused.value}"
    _, _, message = inspect.getsource(func).splitlines()[rel_lineno - 1].partition("# check_error:")
    assert message.strip() in str(refused.value), f"the message lacks '{message.strip()}': {refused.value}"
