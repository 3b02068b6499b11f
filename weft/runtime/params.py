"""Parameters as bytes: names and tensors, in the layout that Apache TVM writes."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm_ffi

from weft.error import InvalidArgument
from weft.runtime.regular_file import open_regular, write_file
from weft.runtime.tensor import Tensor, tensor

_save = tvm_ffi.get_global_func("weft.save_params")
_load = tvm_ffi.get_global_func("weft.load_params")
_load_at = tvm_ffi.get_global_func("weft.load_params_at")


def parameter_rows(params: Mapping[Any, Any] | None) -> list[list[Any]]:
    """Names and tensors as the native side takes them."""
    rows: list[list[Any]] = []
    for name, value in (params or {}).items():
        if not isinstance(name, str):
            raise InvalidArgument("parameters are named by strings", found=repr(name))
        rows.append([name, (value if isinstance(value, Tensor) else tensor(value)).handle])
    return rows


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """Return parameters as bytes.

    Parameters
    ----------
    params : mapping of str to tensor
        Tensors or NumPy arrays.
    """
    return bytearray(_save(parameter_rows(params)))


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Tensor]:
    """Read what :func:`save_param_dict`, Weft's or Apache TVM's, returned.

    Raises
    ------
    ExecutableError
        When the bytes are cut short or altered; it says in which section and at which offset.
    """
    return {str(name): Tensor(value) for name, value in _load(_as_bytes(param_bytes)).items()}


def _as_bytes(data: Any) -> bytes:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidArgument(
            "parameters are read from bytes", found=type(data).__name__, help="save_param_dict makes them"
        )
    return bytes(data)


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write parameters to a file, which stays as it was where that fails."""
    write_file(path, save_param_dict(params))


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read parameters from a file, which is mapped: it takes no memory besides that of the tensors."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size == 0:  # nothing to map
            return load_param_dict(b"")
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    found = _load_at(ctypes.c_void_p(data.ctypes.data), data.nbytes)
    return {str(name): Tensor(value) for name, value in found.items()}
