"""Functions that the tests' server has."""

import os
import signal
import socket
import time
import weakref
from contextlib import contextmanager

import numpy as np

import weft
from weft.rpc import base, loop


def travels(session, *shape):
    """Assert that numbers come back from a session as they were sent."""
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    np.testing.assert_array_equal(weft.runtime.tensor(data, session.cpu()).numpy(), data)


@contextmanager
def tracker_link(port):
    """A connection to a tracker, which has greeted it."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(base.number(base.RPC_TRACKER_MAGIC))
        assert base.recvall(sock, 4) == base.number(base.RPC_TRACKER_MAGIC)
        yield sock


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


def impatient():
    loop.HANDSHAKE_SECONDS = 0.2


kept = []
made = weakref.WeakSet()


def make():
    """A function that is in `made` until it is freed."""

    def function():
        return len(made)

    made.add(function)
    return function
