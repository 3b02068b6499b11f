"""What is slow because others have the processors is waited for; what hangs or never ends is told."""

import sys
import time
from pathlib import Path

import pytest

from tests import clock
from tests.refusals import refuses


def test_time_that_others_take_counts_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    refuses(AssertionError, "within 0.6 s", clock.run, [sys.executable, "-c", "import time; time.sleep(3600)"], 0.6)
    monkeypatch.setattr(clock, "queued", lambda: {Path("thread"): int((time.monotonic() - start) * 1e9)})
    done = clock.run([sys.executable, "-c", "import sys, time; time.sleep(2.5); print(1); sys.exit('2')"], 2)
    assert (done.returncode, done.stdout, done.stderr) == (1, "1\n", "2\n")
    refuses(AssertionError, "within 0.1 s", clock.eventually, lambda: False, 0.1)
