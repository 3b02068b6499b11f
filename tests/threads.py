"""Work on several threads at once."""

import threading
from collections.abc import Callable
from typing import Any


def at_once(work: Callable[[int], Any], count: int) -> None:
    """Call ``work(0)`` to ``work(count - 1)``, each on a thread of its own, and wait for all."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
