"""What must be refused, in one statement."""

from collections.abc import Callable
from typing import Any, TypeVar

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
