"""Packets as bytes: a length, a code, and values behind their type indices; TVM's protocol 0.8.0 over tvm-ffi's types.

```
packet   := u64 length of the rest · i32 code · body
values   := i32 count · (i32 type index · value)*
value    := nothing (None) · i64 (int, bool) · f64 · u64 (pointer, function, module) · dtype, i32 0 · device
          | tensor · u64 length, bytes (text, bytes) · u32 type index, u64 handle (other objects)
device   := i32 type · i32 index
tensor   := u64 data · device · i32 rank · dtype · i64 dimension* · u64 byte offset
dtype    := u8 code · u8 bits · u16 lanes
```

Handles are names that the other side gave to what it keeps; nobody takes them for addresses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import tvm_ffi

from weft.error import InvalidArgument, RPCError

T = TypeVar("T")
PROTOCOL_VERSION = b"0.8.0"
CALLBACK = 1 << 63
"""The bit that a function's handle has when it lies with who sends it: Weft's own, for functions of the client."""
DEVICE_ATTRIBUTES = tuple(
    (
        "exist max_threads_per_block warp_size max_shared_memory_per_block compute_version device_name max_clock_rate "
        "multi_processor_count"
    ).split()
)
"""What a device can be asked for, in the order of the protocol's numbers."""


class RPCCode:
    """What a packet is: plain numbers, as reading a member of an enumeration takes as long as packing it."""

    NONE = 0
    SHUTDOWN = 1
    INIT_SERVER = 2
    CALL_FUNC = 3
    RETURN = 4
    EXCEPTION = 5
    COPY_FROM_REMOTE = 6
    COPY_TO_REMOTE = 7
    COPY_ACK = 8
    GET_GLOBAL_FUNC = 9
    FREE_HANDLE = 10
    DEV_SET_DEVICE = 11
    DEV_GET_ATTR = 12
    DEV_ALLOC_DATA = 13
    DEV_FREE_DATA = 14
    DEV_STREAM_SYNC = 15
    COPY_AMONG_REMOTE = 16
    DEV_ALLOC_DATA_WITH_SCOPE = 17
    DEV_CREATE_STREAM = 18
    DEV_FREE_STREAM = 19
    DEV_SET_STREAM = 20
    DEV_GET_CURRENT_STREAM = 21


class TypeIndex:
    """tvm-ffi's numbers of types."""

    NONE = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    OPAQUE = 4
    DTYPE = 5
    DEVICE = 6
    DLTENSOR = 7
    RAW_STR = 8
    BYTE_ARRAY = 9
    SMALL_STR = 11
    SMALL_BYTES = 12
    OBJECT = 64
    STR = 65
    BYTES = 66
    FUNCTION = 68
    TENSOR = 70
    MODULE = 73
    RPC_OBJECT = 115


class Opaque(int):
    """A pointer, or a handle that nothing else is known of."""


class FunctionHandle(int):
    """The handle of a function."""


class ModuleHandle(int):
    """The handle of a module."""


class ObjectHandle(int):
    """The handle of any other object."""


class WireDevice(NamedTuple):
    """A device of the serving side."""

    kind: int
    number: int


class WireTensor(NamedTuple):
    """A tensor of the serving side: the handle of its memory, and how it lies there."""

    data: int
    device: WireDevice
    dtype: str
    shape: tuple[int, ...]
    byte_offset: int = 0


_I32 = struct.Struct("<i")
_U64 = struct.Struct("<Q")
_TAG_I64 = struct.Struct("<iq")
_TAG_F64 = struct.Struct("<id")
_TAG_U64 = struct.Struct("<iQ")
_TAG_OBJECT = struct.Struct("<iIQ")
_HEAD = struct.Struct("<Qi")
_MESSAGE = struct.Struct("<Qii")
_CALL = struct.Struct("<QiQi")
_TENSOR = struct.Struct("<Qiii4s")  # data, device, rank, dtype
_I64 = struct.Struct("<q")
_F64 = struct.Struct("<d")
_MAX_RANK = 64

_DTYPE_BYTES: dict[str, bytes] = {}
_DTYPE_NAMES: dict[bytes, str] = {}


class Malformed(RPCError):
    """Bytes of the other side are no packet; what follows them cannot be read either."""


def malformed(why: str) -> Malformed:
    """The error of bytes that are no packet."""
    return Malformed("a message of the other side cannot be read", found=why)


def answered(value: object, kind: type[T]) -> T:
    """What the other side answered where it has to be of a kind; Malformed where it is of another."""
    if not isinstance(value, kind):
        raise malformed(f"{type(value).__name__} {value!r} in place of {kind.__name__}")
    return value


def handle(value: object) -> int:
    """A handle that the other side has to answer with; Malformed where it is none."""
    found = int(answered(value, int))
    if not 0 <= found < 1 << 64:
        raise malformed(f"{found} in place of a handle")
    return found


def dtype_bytes(name: str) -> bytes:
    """A dtype as DLPack has it."""
    found = _DTYPE_BYTES.get(name)
    if found is None:
        dtype = tvm_ffi.dtype(name)
        raw: Any = dtype._tvm_ffi_dtype
        found = struct.pack("<BBH", int(dtype.type_code), int(dtype.bits), int(raw.lanes))
        _DTYPE_BYTES[str(name)] = found
    return found


def _dtype_name(data: bytes) -> str:
    found = _DTYPE_NAMES.get(data)
    if found is None:
        code, bits, lanes = struct.unpack("<BBH", data)
        try:
            found = str(tvm_ffi.dtype.from_dlpack_data_type((code, bits, lanes)))
        except (ValueError, OverflowError) as e:
            raise malformed(f"dtype code {code}, {bits} bits, {lanes} lanes") from e
        _DTYPE_NAMES[data] = found
    return found


def element_bytes(name: str, count: int) -> int:
    """Bytes of `count` elements of a dtype; elements of less than a byte are packed."""
    _, bits, lanes = struct.unpack("<BBH", dtype_bytes(name))
    return (count * bits * lanes + 7) // 8


# ---- writing ---------------------------------------------------------------------------------------------------------


def _int(value: int) -> bytes:
    try:
        return _TAG_I64.pack(1, value)
    except struct.error:
        raise InvalidArgument("a number for another machine has at most 64 bits", found=str(value)) from None


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:  # a C string would end there
        return struct.pack("<iIQ", TypeIndex.STR, TypeIndex.STR, len(data)) + data
    return _TAG_U64.pack(8, len(data)) + data


def _bytes(value: bytes | bytearray | memoryview) -> bytes:
    size = value.nbytes if isinstance(value, memoryview) else len(value)
    return b"".join((_TAG_U64.pack(9, size), value))


def encode_tensor(value: WireTensor) -> bytes:
    """A tensor without its type index, as copies have it."""
    rank = len(value.shape)
    return (
        _TENSOR.pack(value.data, *value.device, rank, dtype_bytes(value.dtype))
        + struct.pack(f"<{rank}q", *value.shape)
        + _U64.pack(value.byte_offset)
    )


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"\0\0\0\0",
    int: _int,
    bool: lambda v: _TAG_I64.pack(2, v),
    float: lambda v: _TAG_F64.pack(3, v),
    str: _text,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    Opaque: lambda v: _TAG_U64.pack(4, v),
    FunctionHandle: lambda v: _TAG_U64.pack(68, v),
    ModuleHandle: lambda v: _TAG_U64.pack(73, v),
    ObjectHandle: lambda v: _TAG_OBJECT.pack(115, 115, v),
    WireDevice: lambda v: struct.pack("<iii", 6, *v),
    WireTensor: lambda v: _I32.pack(7) + encode_tensor(v),
    tvm_ffi.dtype: lambda v: struct.pack("<i4si", 5, dtype_bytes(v), 0),
}


def encode(values: Sequence[Any]) -> bytes:
    """Values as bytes; each is one of the types above."""
    return b"".join([_I32.pack(len(values)), *[_ENCODERS[type(v)](v) for v in values]])


def packet(code: int, *parts: bytes | memoryview, more: int = 0) -> bytes:
    """A packet of a code and parts, its length in front; `more` bytes are sent after it."""
    size = 4 + more
    for part in parts:
        size += len(part)
    return b"".join((_HEAD.pack(size, code), *parts))


def message(code: int, values: Sequence[Any], handle: int | None = None) -> bytes:
    """A packet of a code and values; of a call, behind the function's handle."""
    body = b"".join([_ENCODERS[type(v)](v) for v in values])
    if handle is None:
        return _MESSAGE.pack(8 + len(body), code, len(values)) + body
    return _CALL.pack(16 + len(body), code, handle, len(values)) + body


# ---- reading ---------------------------------------------------------------------------------------------------------

Bytes = bytes | bytearray | memoryview


def read_text(body: Bytes, at: int) -> tuple[bytes, int]:
    """Read bytes behind their length; returns them and the place after them."""
    (size,) = _U64.unpack_from(body, at)
    at += 8
    if size > len(body) - at:
        raise malformed(f"{size} bytes where {len(body) - at} follow")
    return bytes(body[at : at + size]), at + size


def read_tensor(body: Bytes, at: int) -> tuple[WireTensor, int]:
    """Read a tensor."""
    data, kind, index, rank, dtype = _TENSOR.unpack_from(body, at)
    at += _TENSOR.size
    if not 0 <= rank <= _MAX_RANK:
        raise malformed(f"a tensor of rank {rank}")
    shape = struct.unpack_from(f"<{rank}q", body, at)
    if rank and min(shape) < 0:
        raise malformed(f"a tensor of shape {shape}")
    at += 8 * rank
    (offset,) = _U64.unpack_from(body, at)
    return WireTensor(data, WireDevice(kind, index), _dtype_name(dtype), shape, offset), at + 8


def _read_str(body: Bytes, at: int) -> tuple[str, int]:
    data, at = read_text(body, at)
    return data.decode("utf-8", "surrogateescape"), at


def _read_dtype(body: Bytes, at: int) -> tuple[Any, int]:
    (data,) = struct.unpack_from("<4s", body, at)
    return tvm_ffi.dtype(_dtype_name(data)), at + 8


def _read_object(body: Bytes, at: int) -> tuple[Any, int]:
    (kind,) = _I32.unpack_from(body, at)
    if kind == TypeIndex.RPC_OBJECT:
        return ObjectHandle(_U64.unpack_from(body, at + 4)[0]), at + 12
    if kind == TypeIndex.STR:
        return _read_str(body, at + 4)
    if kind == TypeIndex.BYTES:
        return read_text(body, at + 4)
    raise malformed(f"an object of type {kind}")


_DECODERS: dict[int, Callable[[Bytes, int], tuple[Any, int]]] = {
    TypeIndex.NONE: lambda body, at: (None, at),
    TypeIndex.INT: lambda body, at: (_I64.unpack_from(body, at)[0], at + 8),
    TypeIndex.BOOL: lambda body, at: (_I64.unpack_from(body, at)[0] != 0, at + 8),
    TypeIndex.FLOAT: lambda body, at: (_F64.unpack_from(body, at)[0], at + 8),
    TypeIndex.OPAQUE: lambda body, at: (Opaque(_U64.unpack_from(body, at)[0]), at + 8),
    TypeIndex.FUNCTION: lambda body, at: (FunctionHandle(_U64.unpack_from(body, at)[0]), at + 8),
    TypeIndex.MODULE: lambda body, at: (ModuleHandle(_U64.unpack_from(body, at)[0]), at + 8),
    TypeIndex.DTYPE: _read_dtype,
    TypeIndex.DEVICE: lambda body, at: (WireDevice(*struct.unpack_from("<ii", body, at)), at + 8),
    TypeIndex.DLTENSOR: read_tensor,
    TypeIndex.RAW_STR: _read_str,
    TypeIndex.BYTE_ARRAY: read_text,
}


def decode(body: Bytes, at: int) -> list[Any]:
    """Read values, which end where the packet does; an RPCError where they do not, or one of them is none."""
    values: list[Any] = []
    try:
        (count,) = _I32.unpack_from(body, at)
        at += 4
        if not 0 <= count <= (len(body) - at) // 4:
            raise malformed(f"{count} values in {len(body) - at} bytes")
        for _ in range(count):
            (kind,) = _I32.unpack_from(body, at)
            if kind == 1:  # most values
                values.append(_I64.unpack_from(body, at + 4)[0])
                at += 12
                continue
            read = _DECODERS.get(kind)
            if read is None:
                if not (kind >= TypeIndex.OBJECT or kind in (TypeIndex.SMALL_STR, TypeIndex.SMALL_BYTES)):
                    raise malformed(f"a value of type {kind}")
                read = _read_object
            value, at = read(body, at + 4)
            values.append(value)
    except struct.error as e:
        raise malformed(f"it ends too early: {e}") from None
    if at != len(body):
        raise malformed(f"{len(body) - at} bytes too many")
    return values
