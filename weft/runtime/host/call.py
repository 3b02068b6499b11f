"""The one packed function through which a program calls operators of the host."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
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
def _described(text: str) -> dict[str, Any]:
    return json.loads(text)


def call_host(text: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Call an operator on arrays, lists and dicts in the machine's form."""
    about = _described(text)
    fn = OPERATORS.get(about["op"])
    if fn is None:
        raise error.InvalidArgument(f"the host has no operator '{about['op']}'", help="the model is of another version")
    given = [texts_of(a) if dtype == "string" else a for a, dtype in zip(args, about["in"], strict=True)]
    with error.own_errors(f"the operator '{about['op']}'"):
        found = fn(*given, **about["attrs"])
    results = found if isinstance(found, tuple) else (found,)
    return tuple([numbers_of(r) if dtype == "string" else r for r, dtype in zip(results, about["out"], strict=True)])


def host(text: str, *args: Any) -> Any:
    """What programs call as the function ``HOST_FUNCTION``, with tensors and objects."""
    found = call_host(text, [a.numpy() if isinstance(a, Tensor) else a for a in args])
    results = [ffi.as_opaque(r) if isinstance(r, (list, dict)) else _tensor(r) for r in found]
    return results[0] if len(results) == 1 else tuple(results)


def _tensor(x: Any) -> Tensor:
    """The memory of an array that is its own; of one that an operator was given, a copy."""
    array = np.ascontiguousarray(x).reshape(np.shape(x))
    root: Any = array if array.base is None else array.base
    return from_dlpack(array) if isinstance(root, np.ndarray) and root.flags.owndata else tensor(array)
