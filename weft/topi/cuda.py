"""``topi.cuda``: the named schedules with a GPU's threads, whatever the current target is."""

from functools import partial
from typing import Any

from weft.topi import schedules


def _infer_tile_size(data: Any, kernel: Any) -> int:  # pyright: ignore[reportUnusedFunction] - TVM's tests import it
    """Say how many outputs an axis of a Winograd tile has, for data (N, C, D, H, W)."""
    return 2 if int(data.shape[3]) % 8 else 4


def __getattr__(name: str) -> Any:
    found = getattr(schedules, name)
    return partial(found, gpu=True) if name.startswith("schedule_") else found
