"""Programs that run against the stand-in for CUDA's driver, each in a process of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.target.cuda import stand_in


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in.build_stub(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def program(driver: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Run a text behind its file's ``HEAD``; with the name of no library there is no driver."""

    def run(text: str, name: str = driver.name) -> None:
        stand_in.run(request.module.HEAD + text, driver.with_name(name), tmp_path)

    return run
