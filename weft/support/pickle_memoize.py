"""Results of functions, kept by their arguments (``tvm.contrib.pickle_memoize``); none are read from files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, cast

from weft.error import InvalidArgument

R = TypeVar("R")
_RESULTS: dict[str, dict[str, object]] = {}


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a decorator that calls a function once for the same arguments, and the same values around the function.

    Functions of one key and name share results, until the process ends: `save_at_exit` is TVM's. Arguments are
    strings, numbers and tuples of them, or the call is refused (``InvalidArgument``).
    """

    def decorator(function: Callable[..., R]) -> Callable[..., R]:
        around = tuple(cell.cell_contents for cell in function.__closure__ or ())
        results = cast("dict[str, R]", _RESULTS.setdefault(f"{key}.{function.__name__}", {}))

        @functools.wraps(function)
        def kept(*args: object, **kwargs: object) -> R:
            asked = repr((around, args))  # 1, 1.0 and True are not one question
            if kwargs or not _is_plain((around, args)):
                raise InvalidArgument(
                    f"{function.__name__} is memoized",
                    found=f"{asked} {kwargs or ''}",
                    expected="strings, numbers and tuples of them, by position",
                )
            if asked not in results:
                results[asked] = function(*args)
            return results[asked]

        return kept

    return decorator


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, str | int | float)
