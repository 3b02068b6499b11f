"""Functions that tests of remote calls ask a server for, under TVM's names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm_ffi import Shape

from weft.error import InvalidArgument
from weft.ffi import get_global_func, register_global_func
from weft.runtime import tensor

__all__: list[str] = []


def _register(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for tests, unless another package of the process has."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if get_global_func(name, allow_missing=True) is None:
            register_global_func(name, function)
        return function

    return register


@_register("rpc.test.addone")
def _add_one(x: Any) -> Any:
    return x + 1


@_register("rpc.test.strcat")
def _join_text(name: str, x: Any) -> str:
    return f"{name}:{x}"


@_register("rpc.test.runtime_str_concat")
def _concatenate(x: str, y: str) -> str:
    return x + y


@_register("rpc.test.except")
def _fail(name: str) -> None:
    raise ValueError(name)


@_register("rpc.test.remote_tensor_func")
def _expect_ones(y: Any) -> None:
    np.testing.assert_equal(y.numpy(), np.ones((3, 4)))


@_register("rpc.test.add_to_lhs")
def _add_to(x: Any) -> Callable[[Any], Any]:
    return lambda y: x + y


@_register("rpc.test.remote_return_nd")
def _zeros(name: str) -> Callable[..., Any]:
    """Functions of one tensor, which lives as long as they do."""
    kept = tensor(np.zeros(10, "float32"))
    functions: dict[str, Callable[..., Any]] = {
        "get_arr": lambda: kept,
        "ref_count": lambda: sys.getrefcount(kept) - 1,
        "get_elem": lambda index: kept.numpy()[index].item(),
        "get_arr_elem": lambda array, index: array.numpy()[index].item(),
    }
    if name not in functions:
        raise InvalidArgument("unknown name", expected=", ".join(functions), found=name)
    return functions[name]


@_register("rpc.testing.GetShapeSize")
def _shape_size(shape: Shape) -> int:
    return len(shape)


@_register("rpc.testing.GetShapeElem")
def _shape_element(shape: Shape, index: int) -> int:
    return int(shape[index])
