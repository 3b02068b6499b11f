"""What a cost model was told, kept in files that anybody may have written."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from weft import auto_scheduler, error, meta_schedule
from weft.tune.boost import Experience


def known() -> Experience:
    told = Experience()
    for i in range(16):
        told.add("a" if i % 2 else "b", np.array([i, 1.0]), float("inf") if i == 3 else 1.0 + i)
    told.learn()
    return told


def test_a_model_is_the_same_after_a_file(tmp_path: Path) -> None:
    told, again = known(), Experience()
    told.save(str(tmp_path / "model"))
    again.load(str(tmp_path / "model"))
    rows = [np.array([i, 1.0]) for i in range(16)]
    np.testing.assert_array_equal(told.scores(rows, 4), again.scores(rows, 4))
    assert told.scores(rows, 4)[0] > told.scores(rows, 4)[15]
    assert told.scores([], 4).shape == (0,) and len(set(told.scores(rows, 17))) == 16  # too little is known: at random


class Runs:
    def __reduce__(self) -> object:
        return (pytest.fail, ("a file was executed",))


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"PK\x03\x04", pickle.dumps(Runs())])
@pytest.mark.parametrize(
    "model", [auto_scheduler.XGBModel, meta_schedule.cost_model.XGBModel, meta_schedule.cost_model.RandomModel]
)
def test_files_that_are_no_models(tmp_path: Path, model: type, text: bytes) -> None:
    (tmp_path / "model").write_bytes(text)
    with pytest.raises(error.InvalidArgument, match="not |is no "):
        model().load(str(tmp_path / "model"))


def test_random_numbers_go_on_after_a_file(tmp_path: Path) -> None:
    model, again = (meta_schedule.cost_model.RandomModel(seed=s) for s in (3, 4))
    model.save(str(tmp_path / "state"))
    again.load(str(tmp_path / "state"))
    np.testing.assert_array_equal(model.predict(None, [0] * 4), again.predict(None, [0] * 4))
