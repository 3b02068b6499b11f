"""Tests on hosts and devices that a machine may lack; ``make test-devices`` asks for all of them."""

from typing import NoReturn

import pytest

from weft import environment


def missing(what: str) -> NoReturn:
    """Skip a test for what is not here; fail where all devices are asked for."""
    (pytest.fail if environment.DEVICES.read() == "1" else pytest.skip)(f"not here: {what}")
    raise AssertionError
