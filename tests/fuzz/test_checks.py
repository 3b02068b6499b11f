"""The suites notice what they are for: an answer where there is none, other numbers, damage, errors of other kinds."""

import numpy as np
import onnx
import pytest

from tests import onnx_models
from tests.fuzz import calls, driver, files
from tests.fuzz.driver import GOOD, WEAK, rng_of, shrink
from tests.fuzz.program_checks import Checks, Drawn, RelayChecks
from tests.relay.programs.draw import program
from weft import error, ir, relay


def kinds(subject, count=80):
    return {subject.check(subject.draw(rng_of("x", seed))).kind for seed in range(count)}


def test_calls_of_an_operator_give_values_or_are_refused():
    found = kinds(calls.Calls().open("add:0"))
    assert {"equal", "refused by both"} <= found <= GOOD | WEAK


def test_calls_that_should_be_refused_are_noticed(monkeypatch):
    subject = calls.Calls().open("add:0")
    monkeypatch.setattr(subject, "run", lambda nested, values: [np.zeros((1, 1, 1), np.float32)])
    assert {"ANSWERED", "different"} <= kinds(subject)
    monkeypatch.setattr(subject, "run", lambda nested, values: {}["x"])
    assert kinds(subject) == {"foreign error"}


def test_laxer_references_are_those_of_operators():
    import re

    names = {s.partition(":")[0] for s in calls.Calls().subjects()}
    assert all(any(re.fullmatch(op, n) for n in names) for op in calls.LAXER)


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (lambda data: False, "damage taken for sound"),
        (lambda data: {}["x"], "foreign error"),
        (lambda data: (_ for _ in ()).throw(error.InternalError("x")), "foreign error"),
        (lambda data: (_ for _ in ()).throw(error.ParseError("x")), "rejected"),
        (lambda data: None, "valid"),
    ],
)
def test_readers_of_damaged_files_are_judged(read, kind):
    assert kinds(files.Damaged(files.File(b"0123456789" * 9, read)), 5) == {kind}


def test_damage_is_made_small():
    def read(data):
        if len(data) > 5 and data[5] != ord("5"):
            raise KeyError("5")

    subject = files.Damaged(files.File(b"0123456789", read))
    bad = b"9876543210"
    assert subject.check(bad).kind == "foreign error"
    assert any(data[5] != ord("5") and data != bad for data in subject.smaller(bad))
    assert subject.show(b"0123406789") == "byte 5: 35 -> 30"


def test_models_are_changed_field_by_field():
    data = onnx_models.linear()[0].SerializeToString()
    made = set()
    for seed in range(60):
        model = onnx.load_from_string(data)
        files.mutate_message(model, np.random.default_rng(seed))
        made.add(model.SerializeToString())
    assert len(made) > 30


def test_a_generator_whose_check_fails_is_noticed():
    def check(seed, steps):
        assert steps < 3, "too many"

    subject = Checks(check)
    assert subject.check(Drawn(0, 2)).kind == "equal" and subject.check(Drawn(0, 4)).kind == "failed"
    assert [d.steps for d in subject.smaller(Drawn(0, 4))] == [1, 2, 3]


def test_a_relay_program_that_fails_is_made_small(monkeypatch):
    def judge(mod, args):
        assert not any(isinstance(e, relay.Match) for e in ir.walk(mod["main"])), "a match"

    subject = RelayChecks(judge, 60)
    drawn = [subject.draw(rng_of("x", seed)) for seed in range(20)]
    failing = next(d for d in drawn if d.fuel > 30 and subject.check(d).kind == "failed")
    made = program(failing.source(), failing.fuel)[0]
    monkeypatch.setattr(driver, "SHRINK_SECONDS", 1.5)
    small, outcome = shrink(subject, failing, subject.check(failing), 1.0, forked=False)
    assert outcome.kind == "failed" and small.choices is not None
    assert len(str(program(small.source(), small.fuel)[0])) < len(str(made)) / 2
