"""``topi.cuda``: the named schedules with a GPU's threads, whatever the current target is."""

from functools import partial
from typing import Any

from weft.topi import schedules


def __getattr__(name: str) -> Any:
    found = getattr(schedules, name)
    return partial(found, gpu=True) if name.startswith("schedule_") else found
