"""The one packed function through which a program calls operators of the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from weft import error, ffi
from weft.runtime.host import image as image  # importing a family registers it
from weft.runtime.host import lapack as lapack
from weft.runtime.host import ml as ml
from weft.runtime.host import numbers as numbers
from weft.runtime.host import random as random
from weft.runtime.host import reference as reference
from weft.runtime.host import sequences as sequences
from weft.runtime.host import strings as strings
from weft.runtime.host.kind import numbers_of, texts_of
from weft.runtime.host.registry import OPERATORS
from weft.runtime.tensor import Tensor, from_dlpack, tensor


def host_operators() -> list[str]:
    """List the operators of the host."""
    return sorted(OPERATORS)


@lru_cache(maxsize=4096)
def _described(text: str) -> tuple[Callable[..., Any], list[bool], list[bool]]:
    """The operator of a description, and which operands and results are texts."""
    about = json.loads(text)
    fn, name = OPERATORS.get(about["op"]), about["op"]
    if fn is None:
        raise error.InvalidArgument(f"the host has no operator '{name}'", help="the model is of another version")
    guarded = error.own_errors(f"the operator '{name}'")(partial(fn, **about["attrs"]))
    return guarded, [dtype == "string" for dtype in about["in"]], [dtype == "string" for dtype in about["out"]]


def call_host(text: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Call an operator on arrays, lists and dicts in the machine's form."""
    fn, texts, made = _described(text)
    found = fn(*[texts_of(a) if is_text else a for a, is_text in zip(args, texts, strict=True)])
    results = found if isinstance(found, tuple) else (found,)
    return tuple([numbers_of(r) if is_text else r for r, is_text in zip(results, made, strict=True)])


def host(text: str, *args: Any) -> Any:
    """What programs call as the function ``HOST_FUNCTION``, with tensors and objects."""
    found = call_host(text, [a.numpy() if isinstance(a, Tensor) else a for a in args])
    results = [ffi.as_opaque(r) if isinstance(r, (list, dict)) else _tensor(r) for r in found]
    return results[0] if len(results) == 1 else tuple(results)


def _tensor(x: Any) -> Tensor:
    """The memory of an array that is its own; of one that an operator was given, a copy."""
    array = x if type(x) is np.ndarray and x.flags.carray else np.ascontiguousarray(x).reshape(np.shape(x))
    root: Any = array if array.base is None else array.base
    return from_dlpack(array) if isinstance(root, np.ndarray) and root.flags.owndata else tensor(array)
