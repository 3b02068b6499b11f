"""Fixtures that tests are written with: values, groups of values, and results that are made once.

pytest is imported only when one of them is used.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft.error import InvalidArgument, require

_COUNT = itertools.count()


def _pytest() -> Any:
    return require("pytest", extra="test")


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: dict[str, Any] | None = None) -> Any:
    """Make a fixture that takes each of some values; assign it to the name that tests ask for."""
    if by_dict is not None:
        if values or ids is not None:
            raise InvalidArgument("values are given by a dictionary, or one by one", help="leave the others out")
        ids, values = list(by_dict), tuple(by_dict.values())

    def value(*_owner: Any, request: Any) -> Any:
        return request.param

    return _pytest().fixture(params=list(values), ids=ids)(value)


def parameters(
    *value_sets: Sequence[Any], ids: Sequence[str] | None = None, by_dict: dict[str, Any] | None = None
) -> tuple[Any, ...]:
    """Make several fixtures that change together; assign them to as many names.

    Parameters
    ----------
    *value_sets : sequence
        For each case the value of each fixture.
    ids : sequence of str, optional
        Names of the cases.
    by_dict : mapping, optional
        The cases by name, instead of both.
    """
    if by_dict is not None:
        ids, value_sets = list(by_dict), tuple(by_dict.values())
    lengths = {len(values) for values in value_sets}
    if len(lengths) != 1:
        raise InvalidArgument("each case has a value for each fixture", found=", ".join(map(str, sorted(lengths))))
    group = f"_weft_cases_{next(_COUNT)}"
    cases = _pytest().fixture(params=list(value_sets), ids=ids)(_case)
    sys._getframe(1).f_locals[group] = cases  # the namespace in which the names are assigned
    return tuple(_member(group, i) for i in range(lengths.pop()))


def _case(*_owner: Any, request: Any) -> Any:
    return request.param


def _member(group: str, index: int) -> Any:
    def value(*_owner: Any, **cases: Any) -> Any:
        return cases[group][index]

    kinds = inspect.Parameter
    value.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [kinds("_owner", kinds.VAR_POSITIONAL), kinds(group, kinds.KEYWORD_ONLY)]
    )
    return _pytest().fixture(value)


def fixture(func: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """Make a fixture of a function.

    Parameters
    ----------
    cache_return_value : bool
        Whether the result for equal arguments is made once; each test gets a copy of its own.
    """

    def decorate(make: Callable[..., Any]) -> Any:
        return _pytest().fixture(_made_once(make) if cache_return_value else make)

    return decorate if func is None else decorate(func)


def _made_once(make: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[bytes, Any] = {}

    @functools.wraps(make)
    def cached(*args: Any, **kwargs: Any) -> Any:
        key = pickle.dumps([(k, _key_of(v)) for k, v in [*enumerate(args), *sorted(kwargs.items())]])
        if key not in known:
            known[key] = make(*args, **kwargs)
        return copy.deepcopy(known[key])

    return cached


def _key_of(value: Any) -> Any:
    try:
        pickle.dumps(value)
    except (
        pickle.PicklingError,
        TypeError,
        AttributeError,
        ValueError,
    ):  # what does not pickle is told apart by its text
        return repr(value)
    return value


def xfail_parameterizations(*params: str, reason: str) -> Callable[[Any], Any]:
    """Expect a test to fail with some cases, given by their ids."""
    return _marked(params, lambda: _pytest().mark.xfail(reason=reason))


def skip_parameterizations(*params: str, reason: str) -> Callable[[Any], Any]:
    """Leave some cases of a test out, given by their ids."""
    return _marked(params, lambda: _pytest().mark.skip(reason=reason))


def _marked(params: Sequence[str], mark: Callable[[], Any]) -> Callable[[Any], Any]:
    def decorate(test: Callable[..., Any]) -> Any:
        @functools.wraps(test)
        def wrapped(*args: Any, request: Any, **kwargs: Any) -> Any:
            if getattr(request.node, "callspec", None) is not None and request.node.callspec.id in params:
                chosen = mark()
                if chosen.name == "skip":
                    _pytest().skip(chosen.kwargs["reason"])
                request.node.add_marker(chosen)
            if "request" in inspect.signature(test).parameters:
                kwargs["request"] = request
            return test(*args, **kwargs)

        signature = inspect.signature(test)
        given = list(signature.parameters.values())
        if "request" not in signature.parameters:
            given.append(inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY))
        wrapped.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return wrapped

    return decorate
