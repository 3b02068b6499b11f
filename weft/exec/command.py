"""What the programs share: addresses on a command line, and running a function as a program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import cyclopts

from weft.error import InvalidArgument, WeftError


def address(text: str | None) -> tuple[str, int] | None:
    """The host and port of ``"10.77.1.234:9190"``.

    Raises
    ------
    InvalidArgument
        When it is no address.
    """
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidArgument("this is no address", expected="host:port", found=text)
    return host, int(port)


def run(function: Callable[..., Any]) -> int:
    """Run a function whose parameters are the options of a program; returns the exit code."""
    app = cyclopts.App(result_action="return_value")
    app.default(function)
    try:
        app(sys.argv[1:], exit_on_error=False)
    except cyclopts.CycloptsError:
        return 2  # what is wrong has been printed
    except WeftError as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
