"""A service for test_worker.py."""

import os
import time


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
