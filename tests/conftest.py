"""Settings of the whole suite, before any test imports Weft.

Compiled kernels go to a cache of the suite's own, so that tests never see a user's; programs that tests start find the
package as the tests do. Drawn examples are the same in every run, so that a verdict is of the code and not of luck;
``WEFT_RANDOM_TESTS=1`` draws new ones. Tests that `VALUES_ONLY` names ask what a program computes and not how its
machine code looks: they compile without LLVM's optimiser, which is a third of a compilation; whole networks, targets,
the second case of each operator and ``make sweep`` have it, and so has a test that uses the fixture `optimised`.
A test that is parametrized three times or more has the combinations in which every two values meet; ``WEFT_SWEEP=1``
and a test that is named with its values have all.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.pairs import meeting
from weft import environment

gc.disable()  # until all tests are collected: nothing of what they are ever becomes free
ROOT = Path(__file__).resolve().parent.parent
VALUES_ONLY = {
    *(f"e2e/test_{name}.py" for name in ("bad_input", "determinism", "light_models", "onnx_suite")),
    *("auto_scheduler", "check", "examples", "exec", "frontend", "fuzz", "op", "quantize", "relax", "relay", "te"),
    *("target/test_out_of_tree.py", "test_docs.py", "test_gallery.py", "dlight", "tir", "topi"),
}

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the suite runs in the background; its programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("WEFT_VERIFY", "1")  # the form that each pass promises is checked after it
os.environ.setdefault("WEFT_MODEL_CACHE", "0")  # sessions compile what they are given, but in tests of that cache
os.environ.setdefault("WEFT_COMPILE_PROCESSES", "1")  # pytest keeps all cores busy
os.environ.setdefault("WEFT_CACHE_DIR", str(ROOT / "build" / "test-cache"))
_paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(_paths))

settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False)
settings.load_profile("new" if environment.RANDOM_TESTS.read() else "same")


def _settings() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith("WEFT_")}


_BEFORE = _settings()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test that is parametrized three times or more take the rows in which every two of its values meet."""
    if environment.SWEEP.read() or any("[" in named for named in config.args):
        return
    tests: dict[str, dict[tuple[tuple[int, ...], ...], pytest.Item]] = {}
    for item in items:
        given = [mark.args[0] for mark in item.iter_markers("parametrize")]
        if len(given) > 2 and isinstance(item, pytest.Function):
            names = [[n.strip() for n in g.split(",")] if isinstance(g, str) else g for g in given]
            row = tuple(tuple(id(item.callspec.params[name]) for name in group) for group in names)
            tests.setdefault(item.nodeid.partition("[")[0], {})[row] = item
    left_out = {rows[row] for rows in tests.values() for row in rows.keys() - set(meeting(rows))}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Refuse test modules that change Weft's settings for every test after them."""
    assert _settings() == _BEFORE, f"a module that was collected changed {_settings().items() ^ _BEFORE.items()}"
    gc.freeze()  # or each full collection would go through thirty thousand tests
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _effort(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        path = request.path.relative_to(ROOT / "tests")
        if {path.parts[0], path.as_posix()} & VALUES_ONLY and not environment.OPT_LEVEL.text:
            patch.setenv("WEFT_OPT_LEVEL", "0")
        yield


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile with LLVM's optimiser: for tests of machine code, of time, and of how often something is compiled."""
    monkeypatch.delenv("WEFT_OPT_LEVEL", raising=False)
