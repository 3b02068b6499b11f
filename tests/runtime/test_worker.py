"""The protocol between a process and those that work for it."""

import subprocess
import sys

import pytest

from tests.clock import eventually, runs
from tests.refusals import refuses
from weft.runtime.worker import Process, WorkerCrashed, WorkerError

SECONDS = 120.0


@pytest.fixture
def process():
    made = Process("tests.runtime.worker_service")
    yield made
    made.stop()


def test_requests_are_answered_in_order_by_one_service(process):
    for by in (1, 2, 3):
        process.tell({"do": "count", "by": by})
    assert [process.reply(SECONDS)["calls"] for _ in range(3)] == [1, 3, 6]


def test_progress_comes_before_the_answer(process):
    seen = []
    assert process.ask({"do": "steps", "n": 3}, None, lambda *now: seen.append(now)) == {}
    assert seen == [("step", i, 3) for i in range(3)]


def test_a_request_that_fails_leaves_the_process(process):
    process.ask({"do": "count", "by": 1}, SECONDS)
    for wrong, why in (
        ({"do": "fail"}, "ValueError: on purpose"),
        ({"do": "nothing"}, "AttributeError"),
        ({"do": "count"}, "TypeError"),
    ):
        refuses(WorkerError, why, process.ask, wrong, SECONDS)
    assert process.ask({"do": "count", "by": 1}, SECONDS) == {"calls": 2}


def test_a_process_that_ends_is_told_and_started_again(process):
    refuses(WorkerCrashed, "exit code 3", process.ask, {"do": "end", "code": 3}, SECONDS)
    assert not process.is_alive
    assert process.ask({"do": "count", "by": 1}, SECONDS) == {"calls": 1}


def test_a_request_that_takes_too_long_ends_the_process(process):
    refuses(WorkerCrashed, "signal 14", process.ask, {"do": "sleep", "seconds": 60}, SECONDS)


def test_a_process_without_work_ends_by_itself_but_not_at_work(process):
    process.ask({"do": "sleep", "seconds": 1.2}, SECONDS)
    eventually(lambda: not process.is_alive)


def test_a_copy_answers_as_the_process_does_and_ends_with_it(process):
    """It has a service of its own, its end is told, and it does not outlive the process that it is a copy of."""
    process.ask({"do": "count", "by": 100}, SECONDS)
    said = process.ask({"do": "copy"}, SECONDS)
    assert (said["forked"], said["counts"]) == (True, [2, 4])
    assert said["ended"].endswith("exit code 3")
    process.stop()
    eventually(lambda: not runs(said["left"]))


def test_nothing_of_the_compiler_is_loaded_by_the_process_that_asks():
    program = (
        "import sys, weft.runtime.worker; print([m for m in ('llvmlite', 'weft.ir', 'weft.tune') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
