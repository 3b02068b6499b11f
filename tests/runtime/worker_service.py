"""A service for test_worker.py."""

import os
import time

from weft.runtime.worker import Process, WorkerCrashed


class Service:
    patience = 0.5
    longest = 2

    def __init__(self, progress):
        self.progress, self.calls = progress, 0

    def count(self, by):
        self.calls += by
        print("what is printed is no reply")
        return {"calls": self.calls}

    def steps(self, n):
        for i in range(n):
            self.progress("step", i, n)
        return {}

    def fail(self):
        raise ValueError("on purpose")

    def end(self, code):
        os._exit(code)

    def sleep(self, seconds):
        time.sleep(seconds)
        return {}

    def copy(self):
        """What a copy of this process answers, how it ends, and what comes after that."""
        made = Process("tests.runtime.worker_service")
        made.start_copy()
        first, own = made.process.pid, made.ask({"do": "pid"}, 60)["pid"]
        counts = [made.ask({"do": "count", "by": 2}, 60)["calls"] for _ in range(2)]
        try:
            made.ask({"do": "end", "code": 3}, 60)
        except WorkerCrashed as e:
            ended = str(e)
        made.start_copy()
        return {"forked": first == own != os.getpid(), "counts": counts, "ended": ended, "left": made.process.pid}

    def pid(self):
        return {"pid": os.getpid()}
