"""What must be refused, and what may be, in one statement."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

Error = TypeVar("Error", bound=BaseException)


def refuses(
    kind: type[Error] | tuple[type[Error], ...], pattern: str, call: Callable[..., Any], /, *args: Any, **named: Any
) -> Error:
    """Expect `call` to raise an error of `kind` whose text has `pattern` in it, any with "", and return it.

    Nothing but the call may raise it: what it is given exists before.
    """
    with pytest.raises(kind, match=pattern or None) as caught:
        call(*args, **named)
    return caught.value


def refusals(
    kind: type[BaseException] | tuple[type[BaseException], ...], call: Callable[..., Any], values: Iterable[Any]
) -> int:
    """Count the values that `call` refuses by an error of `kind` that has a text; it may take the others."""
    refused = 0
    for value in values:
        try:
            call(value)
        except kind as e:
            assert str(e)
            refused += 1
    return refused


def flipped(data: bytes, times: int) -> Iterator[bytes]:
    """Copies of `data`, in each of which one bit is another."""
    rng = np.random.default_rng(0)
    for _ in range(times):
        bad = bytearray(data)
        bad[rng.integers(len(bad))] ^= 1 << int(rng.integers(8))
        yield bytes(bad)
