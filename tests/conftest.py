"""Settings of the whole suite, before any test imports Weft.

Compiled kernels go to a cache of the suite's own, so that tests never see a user's; programs that tests start find the
package as the tests do. Drawn examples are the same in every run, so that a verdict is of the code and not of luck;
``WEFT_RANDOM_TESTS=1`` draws new ones.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hypothesis import settings

from weft import environment

ROOT = Path(__file__).resolve().parent.parent

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


def pytest_collection_finish() -> None:
    """Refuse test modules that change Weft's settings for every test after them."""
    assert _settings() == _BEFORE, f"a module that was collected changed {_settings().items() ^ _BEFORE.items()}"
