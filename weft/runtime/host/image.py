"""Pictures in files' formats: those without compression here, all others with Pillow.

Source: the Netpbm format `P6`; Microsoft's BITMAPINFOHEADER.
"""

import io
import re
import struct
from typing import Any

import numpy as np

from weft.error import InvalidArgument, require
from weft.runtime.host.registry import host_operator


@host_operator("ImageDecoder")
@np.errstate(all="ignore")
def _decode(data: Any, *, pixel_format: str) -> Any:
    raw = np.asarray(data).tobytes()
    pixels = _pnm(raw) if raw[:2] == b"P6" else _bmp(raw) if raw[:2] == b"BM" else None
    if pixels is None or pixel_format == "Grayscale":
        pixels = _with_pillow(raw, "L" if pixel_format == "Grayscale" else "RGB")
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels


def _with_pillow(raw: bytes, mode: str) -> Any:
    image = require("PIL.Image", extra="image")
    try:
        pixels = np.asarray(image.open(io.BytesIO(raw)).convert(mode))
    except OSError as e:
        raise InvalidArgument("ImageDecoder: these bytes are no picture", found=str(e)) from e
    return pixels[:, :, None] if mode == "L" else pixels


def _pnm(raw: bytes) -> Any:
    """Read bytes of red, green and blue behind a header of text; None where samples are wider."""
    header = re.match(rb"P6(?:\s+|#.*\n)+(\d+)(?:\s+|#.*\n)+(\d+)(?:\s+|#.*\n)+(\d+)\s", raw)
    if header is None or int(header[3]) != 255:
        return None
    return _shaped(raw[header.end() :], int(header[2]), int(header[1]), 0)


def _bmp(raw: bytes) -> Any:
    """Read rows of blue, green and red, the last one first; None for other forms."""
    if len(raw) < 54:
        return None
    start, _, width, height, _, bits, compression = struct.unpack("<IIiiHHI", raw[10:34])
    if bits != 24 or compression or width <= 0:
        return None
    rows = _shaped(raw[start:], abs(height), width, -3 * width % 4)
    return np.ascontiguousarray((rows[::-1] if height > 0 else rows)[:, :, ::-1])


def _shaped(raw: bytes, height: int, width: int, padding: int) -> np.ndarray:
    """Return (height, width, 3) of rows with some bytes between them."""
    line = 3 * width + padding
    if len(raw) < line * height:
        raise InvalidArgument(
            "ImageDecoder: the picture is cut off", expected=f"{line * height} bytes", found=str(len(raw))
        )
    rows = np.frombuffer(raw, np.uint8, line * height).reshape(height, line)
    return rows[:, : 3 * width].reshape(height, width, 3)
