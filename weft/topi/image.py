"""The names of ``tvm.topi.image``."""

from __future__ import annotations

from typing import Any

from weft.topi.resize import resize2d as _resize2d
from weft.topi.sample import grid_sample

__all__ = ["grid_sample", "resize2d"]


def resize2d(
    data: Any, roi: Any, size: Any, layout: str = "NCHW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None, output_shape: Any = None,
) -> Any:  # fmt: skip
    """Resize the two spatial axes."""
    method = {"nearest_neighbor": "nearest", "bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    return _resize2d(
        data, output_shape or size, None, roi, layout, method=method,
        coordinate_transformation_mode=coordinate_transformation_mode, rounding_method=rounding_method,
        cubic_alpha=bicubic_alpha, cubic_exclude=bool(bicubic_exclude), extrapolation_value=extrapolation_value,
    )  # fmt: skip
