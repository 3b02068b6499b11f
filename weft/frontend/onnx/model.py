"""ONNX files: loading them, and tensors inside or beside them as NumPy arrays, copied only where they must be."""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from weft.error import ModelImportError, reading, require
from weft.frontend.onnx.wire import OWN_FILE, Content, without_weights
from weft.runtime import file_identity, map_file, open_regular, read_regular
from weft.runtime.host import STORED

if TYPE_CHECKING:
    import onnx
else:
    onnx = require("onnx", extra="onnx")

Model = onnx.ModelProto | bytes | str | os.PathLike[str]
"""What a model is given as: itself, its serialized form, or a file's path."""

_T = onnx.TensorProto
_NUMPY: dict[int, np.dtype[Any]] = {
    _T.FLOAT: np.dtype("float32"),
    _T.UINT8: np.dtype("uint8"),
    _T.INT8: np.dtype("int8"),
    _T.UINT16: np.dtype("uint16"),
    _T.INT16: np.dtype("int16"),
    _T.INT32: np.dtype("int32"),
    _T.INT64: np.dtype("int64"),
    _T.BOOL: np.dtype("bool"),
    _T.FLOAT16: np.dtype("float16"),
    _T.DOUBLE: np.dtype("float64"),
    _T.UINT32: np.dtype("uint32"),
    _T.UINT64: np.dtype("uint64"),
    _T.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    _T.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    _T.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    _T.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    _T.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
_STORED = {
    getattr(_T, onnx_name): name
    for name, onnx_name in (
        *((name, name.upper()) for name in ("string", "int4", "uint4", "int2", "uint2")),
        ("float4_e2m1fn", "FLOAT4E2M1"),
        ("float8_e8m0fnu", "FLOAT8E8M0"),
        ("float6_e2m3fn", "FLOAT6E2M3"),
        ("float6_e3m2fn", "FLOAT6E3M2"),
    )
    if hasattr(_T, onnx_name)
}
"""Element types that the machine stores as others, where the onnx package has them."""
ELEMENT_TYPES = {elem_type: dtype.name for elem_type, dtype in _NUMPY.items()} | _STORED
"""Weft's names of the element types, by ONNX's numbers."""
ONNX_TYPES = {name: _T.DataType.Name(elem_type).lower() for elem_type, name in ELEMENT_TYPES.items()}
"""What ONNX's schemas call the element types, by Weft's names."""
_FIELD = {
    _T.FLOAT: "float_data",
    _T.DOUBLE: "double_data",
    _T.INT64: "int64_data",
    _T.UINT32: "uint64_data",
    _T.UINT64: "uint64_data",
}
_BITS_IN_INT32 = {
    **dict.fromkeys((_T.FLOAT16, _T.BFLOAT16), "uint16"),
    **dict.fromkeys((_T.FLOAT8E4M3FN, _T.FLOAT8E5M2, _T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2FNUZ), "uint8"),
}


def load_model(model: Model) -> tuple[Any, TensorReader]:
    """Return the model proto and what reads its tensors.

    Parameters
    ----------
    model : onnx.ModelProto, bytes, str or os.PathLike
        The model, its serialized form, or a file's path.

    Raises
    ------
    ModelImportError
        When the file cannot be read or is no ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        return model, TensorReader(())
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parse(bytes(model), "the bytes given", ())
    if not isinstance(model, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ModelImportError(
            "cannot import this object", expected="an onnx.ModelProto, bytes or a path", found=type(model).__name__
        )
    path = Path(model)
    try:
        data = map_file(path) or read_regular(path)
        home = path.resolve().parent
    except OSError as e:
        raise ModelImportError(f"cannot read the model file '{path}'", found=e.strerror or str(e)) from e
    return _parse(data, f"'{path}'", (path.parent, home))


def _parse(data: Content, origin: str, folders: Sequence[Path]) -> tuple[Any, TensorReader]:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(without_weights(data))
    except Exception as e:
        raise ModelImportError(
            f"{origin} is not a complete ONNX model",
            found=f"{len(data)} bytes; {e}",
            help="the file may be cut short or damaged; export or download it again",
        ) from e
    if not proto.HasField("graph"):
        raise ModelImportError(
            f"{origin} is not a complete ONNX model", expected="a graph", found=f"{len(data)} bytes without one"
        )
    return proto, TensorReader(folders, data)


def dtype_name(elem_type: int, what: str) -> str:
    """Return Weft's name of an ONNX element type.

    Raises
    ------
    ModelImportError
        When Weft has no such type; `what` names the value.
    """
    name = ELEMENT_TYPES.get(elem_type)
    if name is None:
        raise ModelImportError(
            f"{what} has an element type that Weft does not have",
            expected="a number type, bool or string",
            found=_type_name(elem_type),
        )
    return name


def numpy_type(elem_type: int, what: str) -> np.dtype[Any]:
    """Return NumPy's dtype of an ONNX element type, as :func:`dtype_name` does its name."""
    name = dtype_name(elem_type, what)
    if elem_type not in _NUMPY:
        raise ModelImportError(f"{what} cannot have this element type here", found=name)
    return _NUMPY[elem_type]


def _type_name(elem_type: int) -> str:
    known = {v: k for k, v in _T.DataType.items()}
    return known.get(elem_type, f"number {elem_type}")


MAX_RANK = 64
MAX_DENSE = 1 << 31
"""Bytes of a sparse tensor as a dense one."""


def check_rank(rank: int, what: str, where: str | None = None) -> None:
    """Refuse a tensor of more dimensions than there may be."""
    if rank > MAX_RANK:
        raise ModelImportError(
            f"{what} has too many dimensions", where=where, expected=f"at most {MAX_RANK}", found=str(rank)
        )


class TensorReader:
    """Reads tensor protos; external files are mapped once each.

    Parameters
    ----------
    folders : sequence of Path
        Where external data is named from; and where else it may lie, as behind links: the folder of the file itself.
    data : bytes
        The model's own bytes, in which weights lie.
    """

    def __init__(self, folders: Sequence[Path], data: Content = b"") -> None:
        self.folders = folders
        self._files: dict[str, Any] = {OWN_FILE: data}
        self.files: dict[str, str] = {}
        """The files beside the model that were read: by name, what they were, as of `weft.runtime.file_identity`."""

    def read(self, proto: Any, what: str | None = None) -> np.ndarray[Any, Any]:
        """Return a tensor's values.

        Raises
        ------
        ModelImportError
            When type, dimensions and data disagree, or external data is missing.
        """
        what = what or f"tensor '{proto.name}'"
        dtype = numpy_type(proto.data_type, what) if proto.data_type not in _STORED else None
        dims = tuple(proto.dims)
        check_rank(len(dims), what)
        if any(d < 0 for d in dims):
            raise ModelImportError(f"{what} has a negative dimension", found=str(dims))
        if dtype is None:
            return self._stored(proto, what)
        count = math.prod(dims)
        if proto.data_location == _T.EXTERNAL:
            raw: Any = self._external(proto, count * dtype.itemsize, what)
        elif proto.HasField("raw_data"):
            raw = proto.raw_data
        else:
            return self._typed(proto, dtype, dims, count, what)
        if len(raw) != count * dtype.itemsize:
            raise ModelImportError(
                f"{what} has too {'little' if len(raw) < count * dtype.itemsize else 'much'} data",
                expected=f"{count * dtype.itemsize} bytes for {dtype.name} {dims}",
                found=f"{len(raw)}",
            )
        return np.frombuffer(raw, dtype).reshape(dims)

    def _stored(self, proto: onnx.TensorProto, what: str) -> np.ndarray[Any, Any]:
        """Return the values of a type that the machine stores as another one; texts as objects."""
        with reading(f"{what} does not have the data of its dimensions", ModelImportError):
            if proto.data_location == _T.EXTERNAL:
                bits = int(re.findall(r"\d+", _STORED[proto.data_type])[0])
                raw = self._external(proto, (math.prod(proto.dims) * bits + 7) // 8, what)
                proto = _T(data_type=proto.data_type, dims=proto.dims, raw_data=bytes(raw))
            array = onnx.numpy_helper.to_array(proto)
        name = _STORED[proto.data_type]
        if name == "string":
            return np.asarray(array, object)
        return array.astype(np.dtype(getattr(ml_dtypes, STORED[name], STORED[name])))

    @staticmethod
    def _typed(proto: Any, dtype: np.dtype[Any], dims: tuple[int, ...], count: int, what: str) -> np.ndarray[Any, Any]:
        data = getattr(proto, _FIELD.get(proto.data_type, "int32_data"))
        if len(data) != count:
            raise ModelImportError(
                f"{what} has a wrong number of values",
                expected=f"{count} for {dtype.name} {dims}",
                found=str(len(data)),
            )
        bits = _BITS_IN_INT32.get(proto.data_type)
        if bits is not None:
            return (np.asarray(data, np.int64) & np.iinfo(bits).max).astype(bits).view(dtype).reshape(dims)
        return np.asarray(data).astype(dtype).reshape(dims)

    def _external(self, proto: onnx.TensorProto, size: int, what: str) -> Any:
        info = {e.key: e.value for e in proto.external_data}
        location = info.get("location", "")
        numbers = [info.get("offset", "0"), info.get("length", str(size))]
        if not all(re.fullmatch(r"-?[0-9]{1,30}", n) for n in numbers):
            raise ModelImportError(
                f"{what}: its external data has a malformed offset or length",
                expected="numbers of bytes",
                found=" and ".join(repr(n[:40]) for n in numbers),
            )
        offset, length = map(int, numbers)
        data = self._open(location, what)
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ModelImportError(
                f"{what}: its external data is not all inside of the file '{location}'",
                expected=f"{size} bytes in a file of {len(data)}",
                found=f"{length} bytes at offset {offset}",
            )
        return memoryview(data)[offset : offset + length]

    def _open(self, location: str, what: str) -> Any:
        if location in self._files:
            return self._files[location]
        if not self.folders:
            raise ModelImportError(
                f"{what} lies in the file '{location}'", help="pass the model's path, so that files beside it are found"
            )
        outside = ModelImportError(
            f"{what}: external data must lie in the model's folder",
            found=f"'{location}'",
            help="links are followed first; put the file itself beside the model",
        )
        if not location or "\0" in location or Path(location).is_absolute() or os.path.normpath(location)[:2] == "..":
            raise outside
        try:
            path = (self.folders[0] / location).resolve(strict=True)
            if not any(path.is_relative_to(folder.resolve()) for folder in self.folders):
                raise outside
            found = file_identity(path)
            data: Any = map_file(path)
            if data is None:
                with open_regular(path) as f:
                    empty = os.fstat(f.fileno()).st_size == 0
                    data = b"" if empty else mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, RuntimeError) as e:  # the latter for links that go round
            raise ModelImportError(
                f"{what}: cannot read the external file '{location}'", found=getattr(e, "strerror", None) or str(e)
            ) from e
        self._files[location], self.files[location] = data, found
        return data

    def read_sparse(self, proto: onnx.SparseTensorProto, what: str) -> np.ndarray[Any, Any]:
        """Return a sparse tensor's values as a dense array."""
        values, indices = self.read(proto.values, what), self.read(proto.indices, what + " (indices)")
        check_rank(len(proto.dims), what)
        size = math.prod(proto.dims) * values.itemsize
        if not 0 <= size <= MAX_DENSE or min(proto.dims, default=0) < 0:
            raise ModelImportError(
                f"{what} is too large to be written out", expected=f"0 to {MAX_DENSE:,} bytes", found=f"{size:,}"
            )
        dense = np.zeros(tuple(proto.dims), values.dtype)
        with reading(f"{what}: its sparse indices do not fit its dimensions", ModelImportError):
            if indices.ndim == 1:
                dense.reshape(-1)[indices] = values
            else:
                dense[tuple(indices.T)] = values
        return dense
