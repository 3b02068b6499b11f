"""``weft tune``: what it writes, what it prints, and what it does with bad input."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests import onnx_models
from weft.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "m.onnx"
    path.write_bytes(onnx_models.linear()[0].SerializeToString())
    return path


@pytest.fixture(scope="module")
def tuned(model):
    """The model's database, after some candidates."""
    output = model.with_name("t.json")
    assert main(["tune", str(model), "--budget", "60s", "--trials", "3", "-o", str(output), "--shape", "x=64,8"]) == 0
    return output


def test_a_database_is_written_and_used(model, tuned, tmp_path, capsys):
    (record,) = weft.tune.JSONDatabase(tuned).get_all_tuning_records()
    assert 0 < len([t for t in record.trials if t.ratio is not None]) <= 3 and record.default_us > 0
    library = tmp_path / "m.so"
    assert main(["compile", str(model), "-o", str(library), "--tuned", str(tuned)]) == 0
    assert main(["run", str(model), "--tuned", str(tuned), "--repeat", "2"]) == 0
    assert main(["profile", str(model), "--tuned", str(tuned), "--repeat", "1"]) == 0
    x = np.random.default_rng(0).standard_normal((5, 8), np.float32)
    plain = weft.Session(model).run({"x": x})[0].numpy()
    for session in (weft.Session(model, tuned=tuned), weft.Session(library)):
        np.testing.assert_allclose(session.run({"x": x})[0].numpy(), plain, rtol=1e-4, atol=1e-5)


def test_tuning_goes_on_where_it_ended(model, tuned, capsys):
    def measured():
        (record,) = weft.tune.JSONDatabase(tuned).get_all_tuning_records()
        return {str(t.decisions): t.ratio for t in record.trials if t.ratio is not None}

    before = measured()
    words = ["tune", str(model), "--budget", "60s", "--trials", "2", "-o", str(tuned), "--shape", "x=64,8"]
    assert main(words) == 0
    assert "measured 2 candidates" in capsys.readouterr().out
    after = measured()
    assert len(after) == len(before) + 2 and after.items() >= before.items()


def test_the_output_says_what_was_done(model, tmp_path, capsys):
    words = ["tune", str(model), "--budget", "1m", "--trials", "1", "-o", str(tmp_path / "t.json")]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "tuning m.onnx, 60 s" in printed.err
    for words in ("measured 1 candidates", "us untuned", f"wrote {tmp_path / 't.json'}"):
        assert words in printed.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--budget", "soon"], "malformed --budget"),
        (["--budget", "0s"], "malformed --budget"),
        (["--budget", "nan"], "malformed --budget"),
        (["--threads", "-1"], "--threads counts threads"),
        (["-o", "no/such/folder/t.json"], "folder does not exist"),
        (["--target", "cuda"], "cannot be tuned"),
        (["--shape", "x=4,8,9"], "wrong rank"),
        (["--shape", "image=4,8"], "names no input"),
    ],
)
def test_bad_words_are_told(model, tmp_path, capsys, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", str(model), *words]) == 1
    assert told in capsys.readouterr().err
    assert os.listdir(tmp_path) == [] and sorted(p.name for p in model.parent.iterdir()) in (
        ["m.onnx"],
        ["m.onnx", "t.json"],
        ["m.onnx", "m.tune.json", "t.json"],
        ["m.onnx", "m.tune.json"],
    )


def test_a_budget_that_is_too_short_is_told(model, tmp_path, capsys):
    assert main(["tune", str(model), "--budget", "0.01s", "-o", str(tmp_path / "t.json")]) == 1
    printed = capsys.readouterr().err
    assert "before one candidate was measured" in printed and "give at least" in printed


def test_a_foreign_file_is_left_as_it_is(model, tmp_path, capsys):
    path = tmp_path / "t.json"
    path.write_text('{"format": "weft-tune", "version": 7}\n')
    with pytest.warns(RuntimeWarning, match="version 7"):
        assert main(["tune", str(model), "-o", str(path)]) == 1
    assert "left as it is" in capsys.readouterr().err
    assert path.read_text() == '{"format": "weft-tune", "version": 7}\n'


def test_a_missing_database_is_told(model, tmp_path, capsys):
    assert main(["run", str(model), "--tuned", str(tmp_path / "no.json")]) == 1
    assert "no such tuning database" in capsys.readouterr().err


def test_an_interrupt_keeps_what_was_found(model, tmp_path):
    path = tmp_path / "t.json"
    words = [sys.executable, "-m", "weft", "tune", str(model), "--budget", "10m", "-o", str(path), "--shape", "x=64,8"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if " 1 measured, " in line:
            break
    else:
        pytest.fail("ended before it said that a candidate was measured")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: what was found until then is kept" in out
    (record,) = weft.tune.JSONDatabase(path).get_all_tuning_records()
    assert record.trials
