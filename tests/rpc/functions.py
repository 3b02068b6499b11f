"""Functions that the tests' server has."""

import os
import signal
import time
import weakref

import weft


def register():
    for name, function in {
        "tests.rpc.twice": lambda f, x: f(f(x)),
        "tests.rpc.pid": os.getpid,
        "tests.rpc.sleep": time.sleep,
        "tests.rpc.end": lambda: os._exit(3),
        "tests.rpc.crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "tests.rpc.keep": kept.append,
        "tests.rpc.call_kept": lambda x: kept[-1](x),
        "tests.rpc.forget": kept.clear,
        "tests.rpc.kept": lambda: len(kept),
        "tests.rpc.make": make,
        "tests.rpc.made": lambda: len(made),
    }.items():
        weft.register_func(name, function, override=True)


kept = []
made = weakref.WeakSet()


def make():
    """A function that is in `made` until it is freed."""

    def function():
        return len(made)

    made.add(function)
    return function
