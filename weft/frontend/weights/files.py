"""Reading GGUF and safetensors: headers are checked, tensors stay in the mapped file until they are asked for."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from weft.error import InvalidArgument, reading
from weft.frontend.common import pairs
from weft.frontend.weights.blocks import FORMATS, Format


def _types(text: str) -> dict[str, Any]:
    """Element types by their names in files."""
    return {key: np.dtype(getattr(ml_dtypes, name, name)) for key, name in pairs(text).items()}


_PLAIN = {
    int(key): dtype
    for key, dtype in _types("0:float32 1:float16 24:int8 25:int16 26:int32 27:int64 28:float64 30:bfloat16").items()
}
_SAFE = _types("""F64:float64 F32:float32 F16:float16 BF16:bfloat16 I64:int64 I32:int32 I16:int16 I8:int8 U64:uint64
    U32:uint32 U16:uint16 U8:uint8 BOOL:bool C64:complex64 F8_E4M3:float8_e4m3fn F8_E5M2:float8_e5m2
    F8_E4M3FNUZ:float8_e4m3fnuz F8_E5M2FNUZ:float8_e5m2fnuz F8_E8M0:float8_e8m0fnu""")
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MOST_DIMS, _MOST_HEADER = 8, 1 << 30


class Groups(NamedTuple):
    """Small integers (rows, columns), with scales and zero points (rows, columns / group): ``(q - zero) * scale``."""

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    group: int


@dataclass(frozen=True)
class Stored:
    """A tensor in a mapped file: its shape, the name of its type, and its bytes."""

    shape: tuple[int, ...]
    type: str
    data: np.ndarray
    kind: Any

    @property
    def is_quantized(self) -> bool:
        """Whether it is stored in blocks."""
        return isinstance(self.kind, Format)

    def numpy(self) -> np.ndarray:
        """Return the values: a view of the file, or float32 numbers of blocks."""
        if not self.is_quantized:
            return self.data.view(self.kind).reshape(self.shape)
        q, scale, minimum = self._decoded()
        parts = q.reshape(*scale.shape, self.kind.group).astype(np.float32)
        return (parts * scale[..., None] + minimum[..., None]).reshape(self.shape)

    def groups(self) -> Groups:
        """Return a matrix that is stored in blocks as integers in groups.

        Raises
        ------
        InvalidArgument
            When it is no matrix, or not stored in blocks.
        """
        if not self.is_quantized or len(self.shape) != 2:
            raise InvalidArgument("only matrices in blocks have groups", found=f"{self.type} of shape {self.shape}")
        q, scale, minimum = self._decoded()
        flat = (minimum != 0) & (scale == 0)  # all weights are the minimum
        q = np.where(np.repeat(flat, self.kind.group, 1), 0, q).astype(q.dtype)
        scale = np.where(flat, -minimum, scale)
        zero = np.divide(-minimum, scale, out=np.zeros_like(scale), where=scale != 0)
        rows = self.shape[0]
        return Groups(q.reshape(self.shape), scale.reshape(rows, -1), zero.reshape(rows, -1), self.kind.group)

    def _decoded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.kind.decode(self.data.reshape(-1, self.kind.size))


class GGUF(Mapping[str, Stored]):
    """The tensors of a GGUF file by name, and its metadata."""

    def __init__(self, metadata: dict[str, Any], tensors: dict[str, Stored]) -> None:
        self.metadata, self._tensors = metadata, tensors

    def __getitem__(self, name: str) -> Stored:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class _Reader:
    """A mapped file and a place in it."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.at = Path(path), 0
        if not self.path.is_file():
            raise InvalidArgument("there is no such file", found=str(path))
        size = self.path.stat().st_size
        self.data = np.memmap(self.path, np.uint8, "r") if size else np.zeros(0, np.uint8)

    def refuse(self, what: str, **more: Any) -> None:
        """Raise an error that names the file."""
        raise InvalidArgument(f"{self.path.name}: {what}", **more)

    def take(self, count: int) -> bytes:
        """Read bytes."""
        if count < 0 or self.at + count > len(self.data):
            self.refuse(
                "the file ends in its header",
                expected=f"{count} bytes at {self.at}",
                found=f"{len(self.data) - self.at}",
            )
        self.at += count
        return self.data[self.at - count : self.at].tobytes()

    def number(self, form: str) -> Any:
        """Read a number."""
        return struct.unpack("<" + form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        """Read a string behind its length."""
        data = self.take(self.number("Q"))
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.refuse("a name is not UTF-8", found=repr(data[:40]))
            raise AssertionError from None

    def size(self, name: str, shape: tuple[int, ...], item: int) -> int:
        """Return how many bytes a tensor of items has, if arrays can be of its shape."""
        if prod(max(d, 1) for d in shape) * item >= 1 << 63:
            self.refuse(f"tensor '{name}' has a shape that no array has", found=str(shape))
        return prod(shape) * item

    def part(self, name: str, begin: int, count: int) -> np.ndarray:
        """Return the bytes of a tensor."""
        if begin < 0 or begin + count > len(self.data):
            self.refuse(
                f"tensor '{name}' lies outside of the file",
                expected=f"an end up to {len(self.data)}",
                found=f"{begin} + {count}",
            )
        return self.data[begin : begin + count]


def load_gguf(path: str | Path) -> GGUF:
    """Open a GGUF file of version 2 or 3.

    Raises
    ------
    InvalidArgument
        For damaged files, and types of blocks that are not read.
    """
    r = _Reader(path)
    if r.take(4) != b"GGUF":
        r.refuse("this is no GGUF file", expected="'GGUF' at its beginning")
    version = r.number("I")
    if version not in (2, 3):
        r.refuse("an unknown version of GGUF", expected="2 or 3, little-endian", found=str(version))
    count, entries = r.number("Q"), r.number("Q")
    metadata = {}
    for _ in range(entries):
        name = r.text()
        metadata[name] = _value(r, r.number("I"))
    infos = [_info(r) for _ in range(count)]
    alignment = int(metadata.get("general.alignment", 32))
    if alignment < 1:
        r.refuse("a wrong alignment", expected="at least 1", found=str(alignment))
    start = -(-r.at // alignment) * alignment
    kinds, of_types = {**_PLAIN, **FORMATS}, dict[int, list[str]]()
    for name, _, number, _ in infos:
        of_types.setdefault(number, []).append(name)
    if of_types.keys() - kinds:
        r.refuse(
            "tensors have types that are not read",
            found=", ".join(f"type {n} ('{x[0]}', {len(x)}x)" for n, x in sorted(of_types.items()) if n not in kinds),
            expected=", ".join(f.name for f in FORMATS.values()) + ", floats and integers",
        )
    tensors = {}
    for name, shape, number, offset in infos:
        kind = kinds[number]
        if isinstance(kind, Format):
            if not shape or shape[-1] % kind.elements:
                r.refuse(
                    f"tensor '{name}' has rows of parts of blocks",
                    expected=f"a multiple of {kind.elements}",
                    found=str(shape),
                )
            size, label = r.size(name, shape, kind.size) // kind.elements, kind.name
        else:
            size, label = r.size(name, shape, np.dtype(kind).itemsize), np.dtype(kind).name
        tensors[name] = Stored(shape, label, r.part(name, start + offset, size), kind)
    return GGUF(metadata, tensors)


def _value(r: _Reader, kind: int, depth: int = 0) -> Any:
    if kind in _SCALARS:
        return r.number(_SCALARS[kind])
    if kind == 8:
        return r.text()
    if kind != 9 or depth > 3:
        r.refuse("an entry of the metadata has an unknown type", found=str(kind))
    inner, count = r.number("I"), r.number("Q")
    if inner in _SCALARS:
        return np.frombuffer(r.take(count * struct.calcsize(_SCALARS[inner])), "<" + _SCALARS[inner]).tolist()
    return [_value(r, inner, depth + 1) for _ in range(count)]


def _info(r: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """Read the description of a tensor; the file has the fastest dimension first."""
    name, rank = r.text(), r.number("I")
    if rank > _MOST_DIMS:
        r.refuse(f"tensor '{name}' has too many dimensions", expected=f"at most {_MOST_DIMS}", found=str(rank))
    dims = tuple(r.number("Q") for _ in range(rank))
    return name, dims[::-1], r.number("I"), r.number("Q")


def load_safetensors(path: str | Path) -> dict[str, Stored]:
    """Open a safetensors file.

    Raises
    ------
    InvalidArgument
        For damaged files and unknown types.
    """
    r = _Reader(path)
    length = r.number("Q")
    if length > _MOST_HEADER:
        r.refuse("the header is too long", found=f"{length} bytes", help="is this a safetensors file?")
    with reading(f"{r.path.name}: the header cannot be read"):
        header = json.loads(r.take(length))
        entries = []
        for name, e in header.items():
            if name != "__metadata__":
                begin, end = map(index, e["data_offsets"])
                entries.append((name, str(e["dtype"]), tuple(map(index, e["shape"])), begin, end))
    tensors = {}
    for name, dtype, shape, begin, end in entries:
        kind = _SAFE.get(dtype)
        if kind is None:
            r.refuse(f"tensor '{name}' has an unknown type", expected=", ".join(_SAFE), found=dtype)
        size = r.size(name, shape, np.dtype(kind).itemsize)
        if min(shape, default=0) < 0 or begin < 0 or end - begin != size:
            r.refuse(
                f"tensor '{name}' has another size than its shape", expected=f"{size} bytes", found=f"{begin} .. {end}"
            )
        tensors[name] = Stored(shape, dtype, r.part(name, r.at + begin, size), kind)
    return tensors
