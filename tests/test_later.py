"""What threads make side by side."""

import os
import threading
import weakref
from contextlib import suppress

import pytest

from weft.later import Later, side_by_side


def test_functions_run_side_by_side_and_keep_their_order():
    met = threading.Barrier(3, timeout=60)
    assert side_by_side([lambda i=i: (met.wait(), i)[1] for i in range(3)]) == [0, 1, 2]
    assert side_by_side([]) == []


def test_what_a_function_held_is_freed_when_it_has_run():
    held = threading.Event()
    freed = weakref.ref(held)
    later = Later(held.is_set)
    del held
    assert later.result() is False
    later._thread.join()
    assert freed() is None


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_all_have_ended_when_an_error_is_raised(failing):
    go, ended = threading.Event(), []

    def make(i):
        if i == failing:
            go.set()
            raise ValueError(i)
        assert go.wait(60)
        ended.append(i)

    with pytest.raises(ValueError, match=str(failing)):
        side_by_side([lambda i=i: make(i) for i in ((failing, *{0, 1, 2} - {failing}) if failing else (0, 1, 2))])
    assert len(ended) == 2


def test_a_forked_process_makes_what_its_parent_was_making():
    """The thread that was at it is not there: the child begins its own instead of waiting for nobody."""
    go, parent = threading.Event(), os.getpid()
    later = Later(lambda: os.getpid() if os.getpid() != parent or go.wait(60) else 0)
    if (child := os.fork()) == 0:
        with suppress(BaseException):
            os._exit(0 if later.result() == os.getpid() and later.is_done else 1)
        os._exit(2)
    status = os.waitpid(child, 0)[1]
    go.set()
    assert (os.waitstatus_to_exitcode(status), later.result()) == (0, parent)
