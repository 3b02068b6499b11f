"""Weights stay in a model file's bytes: what protobuf parses is the file without them, with their places instead.

Only the path from the model over its graph to the initializers' ``raw_data`` is looked at; all else is passed on
unread. Source: the field numbers of ``onnx.proto``.
"""

from mmap import mmap

from weft.runtime.protobuf import BYTES, VARINT, fields

Content = bytes | mmap  # of a file, read or mapped

OWN_FILE = "\0"  # the external file that stands for the model's own bytes
_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 7, 5, 9, 13, 14
_LEAST = 1024  # bytes that are worth leaving out


def without_weights(data: Content) -> bytes:
    """Return a serialized model whose weights refer to places in `data`, as external data in :data:`OWN_FILE`.

    What is no well-formed model is returned as it is: parsing it gives the error.
    """
    try:
        return b"".join(_replaced(data, 0, len(data), (_GRAPH, _INITIALIZER)))
    except (IndexError, ValueError):
        return data[:]


def _replaced(data: Content, at: int, end: int, path: tuple[int, ...]) -> list[bytes]:
    """The pieces of a message in which fields along `path` are replaced."""
    if not path:
        return _tensor(data, at, end)
    out: list[bytes] = []
    kept = at
    for number, kind, start, place in fields(data, at, end):
        if number == path[0] and kind == BYTES:
            first, last = place
            inner = _replaced(data, first, last, path[1:])
            out += [data[kept:start], _key(number, BYTES), _varint(sum(map(len, inner))), *inner]
            kept = last
    return [*out, data[kept:end]]


def _tensor(data: Content, at: int, end: int) -> list[bytes]:
    """The pieces of a tensor without its raw data."""
    for number, kind, start, where in fields(data, at, end):
        if number == _RAW_DATA and kind == BYTES and where[1] - where[0] >= _LEAST:
            first, last = where
            entries = (("location", OWN_FILE), ("offset", str(first)), ("length", str(last - first)))
            place = b"".join(
                _message(_EXTERNAL_DATA, _message(1, k.encode()) + _message(2, v.encode())) for k, v in entries
            )
            return [data[at:start], data[last:end], place, _key(_DATA_LOCATION, VARINT), b"\1"]
    return [data[at:end]]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _message(number: int, content: bytes) -> bytes:
    return _key(number, BYTES) + _varint(len(content)) + content
