"""The constants of an executable: equal ones once, those of a device together."""

import hashlib
from typing import Any

from weft.runtime import Tensor
from weft.runtime.relay_vm import Instruction

_FIELDS = {"LoadConst": "const_index", "Fatal": "message"}


class ConstantPool:
    """Constants by number, in the order in which code asks for them until :meth:`layout`."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.devices: list[int] = []
        self._numbers: dict[Any, int] = {}
        self._known: dict[tuple[Any, int], int] = {}  # tensors by identity, which spares looking at the data again

    def add(self, value: Any, device: int = 0) -> int:
        """Return the number of a constant, a tensor or a text, on a device."""
        known = self._known.get((value, device))
        if known is not None:
            return known
        key = (device, _content(value))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
            self.devices.append(device)
            self._known[value, device] = number
        return number

    def layout(self) -> list[int]:
        """Sort the constants by device (texts last), and return the new place of each number."""
        order = sorted(range(len(self.values)), key=lambda i: (isinstance(self.values[i], str), self.devices[i], i))
        self.values = [self.values[i] for i in order]
        self.devices = [self.devices[i] for i in order]
        places = [0] * len(order)
        for place, number in enumerate(order):
            places[number] = place
        return places


def placed(instruction: Instruction, places: list[int]) -> Instruction:
    """Let an instruction refer to constants by place instead of number."""
    field = _FIELDS.get(instruction.name)
    if field is None or instruction.fields[field] < 0:
        return instruction
    return Instruction(instruction.name, **{**instruction.fields, field: places[instruction.fields[field]]})


def _content(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    array = value.numpy()
    return (value.dtype, tuple(value.shape), hashlib.sha256(array.tobytes()).digest())
