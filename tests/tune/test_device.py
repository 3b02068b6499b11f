"""Kernels are measured on devices of a tracker, here servers of this machine; what they lose is replaced."""

from __future__ import annotations

import os
import signal

import pytest

from tests.tune.test_measure import CASES, crashes, doubled, good, hangs, outcome
from weft import rpc, tune
from weft.error import InvalidArgument
from weft.rpc.tracker import Tracker
from weft.runtime.worker import WorkerError
from weft.target import Target
from weft.tir.schedule import default_schedule
from weft.tune.measure import Measurer


@pytest.fixture(scope="module")
def tracker():
    tracker = Tracker("127.0.0.1", port=0, silent=True)
    servers = [
        rpc.Server("127.0.0.1", port=0, key="board", tracker_addr=("127.0.0.1", tracker.port), silent=True)
        for _ in "ab"
    ]
    yield f"127.0.0.1:{tracker.port}"
    for server in servers:
        server.terminate()
    tracker.terminate()


@pytest.fixture(scope="module")
def measurer(tracker):
    device = tune.TrackerDevice(tracker, "board")
    with Measurer(device.target(), 2, builders=1, runner=device) as made:
        yield made


@pytest.fixture
def ready(measurer):
    measurer.prepare(default_schedule(doubled(), Target(measurer.target)), CASES)
    return measurer


def test_candidates_are_compared_there(ready):
    good(ready)
    assert outcome(ready, default_schedule(doubled(3.0), Target(ready.target))).state == "wrong"
    good(ready)


def test_a_kernel_that_crashes_ends_its_session_alone(ready):
    found = outcome(ready, crashes)
    assert found.state == "crashed", found
    good(ready)


def test_a_kernel_that_hangs_is_given_up(ready, monkeypatch):
    monkeypatch.setattr(tune.measure, "_RUN_SECONDS", 1.0)
    found = outcome(ready, hangs)
    assert found.state == "hung" and "no answer in" in found.why, found
    good(ready)  # by the other server: that one is busy until the session's time is over


def test_a_device_that_is_lost_is_replaced(ready):
    (code,) = ready.compile([default_schedule(doubled(), Target(ready.target))])
    assert ready.measure(code).state == "measured"
    lost = ready.runner.session
    os.kill(pid_of(lost), signal.SIGKILL)
    assert ready.measure(code).state == "measured" and ready.runner.session is not lost


def test_what_cannot_be_reached_is_said(tracker, monkeypatch):
    for address, key, words in (("nowhere", "board", "HOST:PORT"), (tracker, "", "needs its key")):
        with pytest.raises(InvalidArgument, match=words):
            tune.TrackerDevice(address, key)
    monkeypatch.setattr(tune.device, "_FREE_SECONDS", 0.2)
    with pytest.raises(WorkerError, match="no device 'other' of .* is free"):
        tune.TrackerDevice(tracker, "other").ask({"do": "time"}, 1.0)


def pid_of(session):
    """The process of a session: its folder is open there."""
    folder = session.get_function("tvm.rpc.server.workpath")("")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == folder:
                return int(pid)
        except OSError:
            continue
    pytest.fail(f"no process works in {folder}")
