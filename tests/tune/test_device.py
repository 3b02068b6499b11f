"""Kernels are measured on devices of a tracker, here servers of this machine; what they lose is replaced."""

import os
import signal
import time

import pytest

from tests import onnx_models
from tests.refusals import refuses
from tests.tune.test_measure import CASES, crashes, doubled, good, hangs, outcome
from weft import auto_scheduler, autotvm, error, rpc, target, te, tune
from weft import meta_schedule as ms
from weft.cli import main
from weft.rpc.tracker import Tracker
from weft.runtime.worker import WorkerError
from weft.testing.auto_scheduler import matmul_auto_scheduler_test
from weft.tir.schedule import default_schedule


@pytest.fixture(scope="module")
def tracker():
    tracker = Tracker("127.0.0.1", port=0, silent=True)
    servers = [
        rpc.Server("127.0.0.1", port=0, key="board", tracker_addr=("127.0.0.1", tracker.port), silent=True)
        for _ in range(4)
    ]
    yield f"127.0.0.1:{tracker.port}"
    for server in servers:
        server.terminate()
    tracker.terminate()


@pytest.fixture(scope="module")
def measurer(tracker):
    with pytest.MonkeyPatch.context() as patch:  # a server is busy with a kernel that hangs until its session is over
        patch.setattr(tune.device, "_SESSION_SECONDS", 12.0)
        yield from measuring(tracker)


def measuring(tracker):
    device = tune.TrackerDevice(tracker, "board")
    with tune.Measurer(device.target(), 2, builders=1, runner=device) as made:
        yield made


@pytest.fixture
def ready(measurer):
    measurer.prepare(default_schedule(doubled(), target.Target(measurer.target)), CASES)
    return measurer


def test_candidates_are_compared_there(ready):
    good(ready)
    assert outcome(ready, default_schedule(doubled(3.0), target.Target(ready.target))).state == "wrong"
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
    (code,) = ready.compile([default_schedule(doubled(), target.Target(ready.target))])
    assert ready.measure(code).state == "measured"
    lost = ready.runner.session
    os.kill(pid_of(lost), signal.SIGKILL)
    assert ready.measure(code).state == "measured" and ready.runner.session is not lost


def test_what_cannot_be_reached_is_said(tracker, monkeypatch):
    for address, key, words in (("nowhere", "board", "HOST:PORT"), (tracker, "", "needs its key")):
        refuses(error.InvalidArgument, words, tune.TrackerDevice, address, key)
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


def test_a_model_is_tuned_for_what_the_device_says_of_itself(tracker, tmp_path, capsys):
    model, output = tmp_path / "m.onnx", tmp_path / "t.json"
    model.write_bytes(onnx_models.linear()[0].SerializeToString())
    options = ["--rpc", tracker, "--key", "board", "--trials", "2", "--shape", "x=64,8", "-o", str(output)]
    for trials in (2, 4):  # a second run goes on where the first ended
        assert main(["tune", str(model), *options]) == 0
        told = capsys.readouterr()
        assert "measured 2 candidates" in told.out and "times as fast" in told.out and "-mtriple" in told.err
        (record,) = tune.JSONDatabase(output).get_all_tuning_records()
        assert len([t for t in record.trials if t.ratio is not None]) == trials
        assert record.hardware.threads == target.Target(record.hardware.target).machine.cores
    assert main(["tune", str(model), "--rpc", "tracker", "--key", "board"]) == 1
    assert "HOST:PORT" in capsys.readouterr().err


# --- the interfaces of other programs ---------------------------------------------------------------------------------


def test_templates(tracker):
    host, port = tracker.split(":")
    task = autotvm.task.create("tests/device/scale", args=(512,), target="llvm")
    inputs = [autotvm.MeasureInput(task.target, task, task.config_space.get(i)) for i in range(3)]
    asked = rpc.connect_tracker(host, int(port))
    free = lambda: asked.summary()["queue_info"]["board"]["free"]  # noqa: E731
    before = free()
    runner = autotvm.RPCRunner("board", host, int(port), n_parallel=2, number=1, repeat=2, cooldown_interval=0.0)
    results = runner.run(inputs, autotvm.LocalBuilder().build(inputs))
    assert [r.error_no for r in results] == [0, 0, 0], results
    assert all(len(r.costs) == 2 and min(r.costs) > 0 for r in results)
    end = time.monotonic() + 30  # others may have the devices between two batches
    while free() < before and time.monotonic() < end:
        time.sleep(0.05)
    assert free() >= before
    with autotvm.measure.request_remote("board", host, int(port)) as session:
        assert session.cpu().exist


@autotvm.template("tests/device/scale")
def scale(n):
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    autotvm.get_config().define_split("tile", s[b].op.axis[0], num_outputs=2)
    autotvm.get_config()["tile"].apply(s, b, s[b].op.axis[0])
    return s, [a, b]


def test_sketches(tracker):
    host, port = tracker.split(":")
    task = auto_scheduler.SearchTask(func=matmul_auto_scheduler_test, args=(16, 16, 16), target="llvm")
    inputs = [auto_scheduler.MeasureInput(task, task.compute_dag.get_init_state())] * 2
    runner = auto_scheduler.RPCRunner("board", host, int(port), number=1, min_repeat_ms=0)
    results = runner.run(inputs, auto_scheduler.LocalBuilder().build(inputs))
    assert all(r.error_no == 0 and r.costs[0] > 0 for r in results), results


def test_traces(tracker, monkeypatch, tmp_path):
    host, port = tracker.split(":")
    monkeypatch.setenv("TVM_TRACKER_KEY", "board")
    monkeypatch.setenv("TVM_TRACKER_HOST", host)
    runner = ms.runner.RPCRunner(
        ms.runner.RPCConfig(tracker_port=port), ms.runner.EvaluatorConfig(1, 2, 0), max_workers=2
    )
    database = ms.tune_tir(doubled(), "llvm", str(tmp_path), max_trials_global=2, runner=runner)
    records = database.get_all_tuning_records()
    assert records and all(len(r.run_secs) == 2 and min(r.run_secs) > 0 for r in records)
    monkeypatch.delenv("TVM_TRACKER_HOST")
    refuses(error.InvalidArgument, "where is the tracker", ms.runner.create, "rpc")
