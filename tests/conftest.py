"""Settings of the whole suite, before any test imports Weft.

Compiled kernels go to a cache of the suite's own, so that tests never see a user's; programs that tests start find the
package as the tests do.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("WEFT_VERIFY", "1")  # the form that each pass promises is checked after it
os.environ.setdefault("WEFT_CACHE_DIR", str(ROOT / "build" / "test-cache"))
_paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(_paths))
