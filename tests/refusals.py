"""What must be refused, in one statement."""

from collections.abc import Callable
from typing import Any

import pytest

Kinds = type[BaseException] | tuple[type[BaseException], ...]


def refuses(kind: Kinds, pattern: str, call: Callable[..., Any], /, *args: Any, **named: Any) -> None:
    """Expect `call` to raise an error of `kind` whose text has `pattern` in it.

    Nothing but the call may raise it: what it is given exists before.
    """
    with pytest.raises(kind, match=pattern):
        call(*args, **named)
