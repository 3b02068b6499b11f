"""What threads make side by side."""

import threading

import pytest

from weft.later import side_by_side


def test_functions_run_side_by_side_and_keep_their_order():
    met = threading.Barrier(3, timeout=60)
    assert side_by_side([lambda i=i: (met.wait(), i)[1] for i in range(3)]) == [0, 1, 2]
    assert side_by_side([]) == []


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
