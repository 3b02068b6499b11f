"""The part of an ONNX file that a baseline program is made of, read without the ``onnx`` package.

A message becomes a dict of its fields that :data:`_MODEL` names; weights are views of the content. What a file has
besides, such as functions of its own, is refused, not overlooked.
Source: the field numbers of ``onnx.proto``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any

import numpy as np

from weft.baseline.refusal import NotInBaseline
from weft.runtime import open_regular
from weft.runtime.protobuf import BYTES, FIXED32, FIXED64, VARINT, read_varint
from weft.runtime.protobuf import fields as message_fields
from weft.runtime.regular_file import read_parts

_NUMBERS = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 10: "float16"}
ELEMENT_TYPES = {number: np.dtype(name) for number, name in _NUMBERS.items()}
"""The element types that baseline operators compute with, by ONNX's numbers."""

_TENSOR = {
    1: "dims*i",
    2: "data_type:i",
    4: "float_data*f",
    5: "int32_data*i",
    7: "int64_data*i",
    8: "name:s",
    9: "raw_data:b",
    13: ("external_data*", {1: "key:s", 2: "value:s"}),
    14: "data_location:i",
}
_ATTRIBUTE: dict[int, Any] = {
    1: "name:s",
    2: "f:f",
    3: "i:i",
    4: "s:s",
    5: ("t:", _TENSOR),
    7: "floats*f",
    8: "ints*i",
    9: "!strings",
    10: "!tensors",
    11: "!graphs",
    20: "type:i",
    21: "!reference",
    22: "!sparse tensor",
    23: "!sparse tensors",
}
_NODE = {1: "input*s", 2: "output*s", 4: "op_type:s", 5: ("attribute*", _ATTRIBUTE), 7: "?domain", 8: "!overload"}
_DOMAINS = ("", "ai.onnx", "com.microsoft")
_DIM = {1: "dim_value:i", 2: "dim_param:s"}
_TYPE = {1: ("tensor:", {1: "elem_type:i", 2: ("shape:", {1: ("dim*", _DIM)})})}
_VALUE = {1: "name:s", 2: ("type:", _TYPE)}
_GRAPH = {
    1: ("node*", _NODE),
    5: ("initializer*", _TENSOR),
    11: ("input*", _VALUE),
    12: ("output*", _VALUE),
    15: "!sparse weights",
}
_ATTRIBUTE[6] = ("g:", _GRAPH)
_MODEL = {7: ("graph:", _GRAPH), 8: ("opset_import*", {1: "domain:s", 2: "version:i"}), 25: "!functions"}


def read_onnx(path: Path) -> tuple[dict[str, Any], Any]:
    """Return a model as nested dicts, and the file's content, in which ``raw_data`` gives places.

    Raises
    ------
    NotInBaseline
        When it is no well-formed model, or has what baseline programs do not.
    """
    try:
        with open_regular(path) as file:
            data = _bytes_of(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        return _message(data, 0, len(data), _MODEL), data
    except (OSError, IndexError, TypeError, ValueError, struct.error) as e:
        raise NotInBaseline(f"the file cannot be read: {e}") from e


def tensor_values(tensor: dict[str, Any], data: memoryview, folder: Path) -> np.ndarray:
    """Return a tensor's values; views where they are bytes in the model's file or in one beside it."""
    dtype, dims = ELEMENT_TYPES.get(tensor.get("data_type", 0)), tuple(tensor["dims"])
    if dtype is None or any(d < 0 for d in dims):
        raise NotInBaseline(f"a tensor of element type {tensor.get('data_type')}")
    if tensor.get("data_location"):
        return _beside(tensor, dtype, folder).reshape(dims)
    if "raw_data" in tensor:
        return _in_place(tensor, data, dtype).reshape(dims)
    field = {"float32": "float_data", "int64": "int64_data"}.get(dtype.name, "int32_data")
    if dtype == np.float16:  # as the integers that their bits are
        return np.array(tensor[field], np.uint16).view(dtype).reshape(dims)
    return np.array(tensor[field], dtype).reshape(dims)


def _beside(tensor: Mapping[str, Any], dtype: np.dtype[Any], folder: Path) -> np.ndarray:
    """Read values in a file of the model's folder; one in another folder is for the importer to judge."""
    info = {e.get("key"): e.get("value", "") for e in tensor["external_data"]}
    location, offset = str(info.get("location", "")), int(info.get("offset", 0))
    path = folder / location
    if location in ("", ".", "..") or Path(location).name != location or path.is_symlink():
        raise NotInBaseline("weights in another folder")
    length = int(np.prod(tensor["dims"], dtype=np.int64)) * dtype.itemsize
    with open_regular(path) as file:  # of which other tensors are, too
        if offset < 0 or int(info.get("length", length)) != length or offset + length > os.fstat(file.fileno()).st_size:
            raise NotInBaseline("weights that are not all in their file")
        return np.frombuffer(_bytes_of(file.fileno(), offset, length), dtype)


def _bytes_of(file: int, offset: int, size: int) -> memoryview:
    """Read a part of a file; into pages of the usual size, as memory that is used once is not worth larger ones."""
    data = memoryview(mmap(-1, max(1, size), flags=MAP_PRIVATE | MAP_ANONYMOUS))[:size]
    read_parts(file, data, offset)
    return data


def _in_place(tensor: dict[str, Any], data: memoryview, dtype: np.dtype[Any]) -> np.ndarray:
    """View a tensor's bytes as elements, where no element lies across the bounds of two: products of these are slow.

    They are moved there by up to three bytes, onto what is read: before them lie at least a tag and a length, and in
    front of these the tensor's own. Longer elements, which are indices more often than weights, are copied.
    """
    first, last = tensor["raw_data"]
    across = first % dtype.itemsize
    if 0 < across < 4:
        data[first - across : last - across] = data[first:last]
        first, last = tensor["raw_data"] = first - across, last - across
    values = np.frombuffer(data[first:last].toreadonly(), dtype)
    return values if values.flags.aligned else values.copy()


def _message(data: Any, at: int, end: int, fields: Mapping[int, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields.values():
        text = field if isinstance(field, str) else field[0]
        if "*" in text:
            out[text.partition("*")[0]] = []
    inside: list[tuple[Any, int, Any]] = []  # messages, which may be long: what refuses this one comes first
    for number, wire, _, found in message_fields(data, at, end):
        value: Any = found
        if wire == VARINT:
            value = found - (1 << 64) if found >> 63 else found
        elif wire == FIXED32:
            value = struct.unpack_from("<f", data, found[0])[0]
        elif wire == FIXED64:
            value = None
        field = fields.get(number)
        if isinstance(field, tuple):
            inside.append((field, wire, value))
        elif field is not None:
            _enter(out, field, wire, value, data)
    for field, wire, value in inside:
        _enter(out, field, wire, value, data)
    return out


def _enter(out: dict[str, Any], field: Any, wire: int, value: Any, data: Any) -> None:
    """Put a value where it belongs: ``name:kind``, ``name*kind`` repeats, ``!what`` refuses, ``?what`` some texts."""
    text, inner = (field, None) if isinstance(field, str) else field
    if text[0] == "!":
        raise NotInBaseline(text[1:])
    if text[0] == "?":
        out[text[1:]] = name = str(data[value[0] : value[1]], "utf-8")
        if name not in _DOMAINS:
            raise NotInBaseline(f"the {text[1:]} {name}")
        return
    repeated = "*" in text
    name, _, kind = text.partition("*" if repeated else ":")
    if inner is not None:
        value = _message(data, value[0], value[1], inner)
    elif kind == "s":
        value = str(data[value[0] : value[1]], "utf-8")
    elif wire == BYTES and kind != "b":
        out[name] += _packed(data, value[0], value[1], kind)
        return
    if repeated:
        out[name].append(value)
    else:
        out[name] = value


def _packed(data: Any, at: int, end: int, kind: str) -> list[Any]:
    if kind == "f":
        return list(struct.unpack(f"<{(end - at) // 4}f", data[at:end]))
    values: list[int] = []
    while at < end:
        value, at = read_varint(data, at)
        values.append(value - (1 << 64) if value >> 63 else value)
    return values
