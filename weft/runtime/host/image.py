"""Pictures in files' formats, read with Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from weft.error import InvalidArgument, require
from weft.runtime.host.call import host_operator

__all__: list[str] = []


@host_operator("ImageDecoder")
def _decode(data: Any, *, pixel_format: str) -> Any:
    image = require("PIL.Image", extra="image")
    try:
        picture = image.open(io.BytesIO(np.asarray(data).tobytes()))
        if pixel_format == "Grayscale":
            return np.asarray(picture.convert("L"))[:, :, None]
        pixels = np.asarray(picture.convert("RGB"))
    except OSError as e:
        raise InvalidArgument("ImageDecoder: these bytes are no picture", found=str(e)) from e
    return pixels if pixel_format == "RGB" else pixels[:, :, ::-1]
