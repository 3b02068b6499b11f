"""These tests run where they are asked for: compilers, emulators and browsers take minutes."""

from pathlib import Path

import pytest

from weft import environment

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not environment.DEVICES.read():
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="make test-devices runs it (WEFT_DEVICES=1)"))
