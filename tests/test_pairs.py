"""Of combinations those in which every two values meet."""

import itertools
from collections.abc import Iterable

import pytest

from tests.pairs import meeting, part, share
from weft import environment


def together(rows: Iterable[tuple[object, ...]]) -> set[object]:
    return {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}


@pytest.mark.parametrize("sizes", [(3, 3, 3), (5, 3, 2), (2, 2, 2, 5), (4, 4)])
def test_every_two_values_meet(sizes: tuple[int, ...]) -> None:
    rows = list(itertools.product(*map(range, sizes)))
    for given in (rows, rows[::2]):
        chosen = meeting(given)
        assert together(chosen) == together(given)
        assert set(chosen) <= set(given)
        assert chosen == meeting(given)
    assert (len(meeting(rows)) < len(rows)) == (len(sizes) > 2)


def test_a_share_meets_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {f"{a}-{b}": (a, b) for a, b in itertools.product(range(7), range(9))}
    monkeypatch.delenv("WEFT_SWEEP", raising=False)
    few, more = share(rows, 0), share(rows, 4)
    assert len(few) == 9 and {rows[n][0] for n in few} == {*range(7)} and {rows[n][1] for n in few} == {*range(9)}
    assert {*few} < {*more} and len(more) < len(rows) / 2 and more == share(rows, 4)
    assert not share(dict.fromkeys(rows, ()), 0) and part(10) == 4
    monkeypatch.setenv("WEFT_SWEEP", "1")
    assert share(rows, 4) == [*rows] and part(10) == 10


@pytest.mark.share(1000, "a")
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(4))
def test_the_suite_has_a_share(a: int, b: int, request: pytest.FixtureRequest) -> None:
    rows = [i.callspec.params for i in request.session.items if getattr(i, "function", None) is request.function]
    assert {row["a"] for row in rows} == {0, 1, 2}
    assert len(rows) == 3 or environment.SWEEP.read() or any("[" in named for named in request.config.args)


@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(4))
@pytest.mark.parametrize("c", range(4))
def test_the_suite_has_them(a: int, b: int, c: int, request: pytest.FixtureRequest) -> None:
    tests = [i for i in request.session.items if isinstance(i, pytest.Function) and i.function is request.function]
    rows = [tuple(i.callspec.params[name] for name in "abc") for i in tests]
    assert (a, b, c) in rows
    if not any("[" in named for named in request.config.args):
        assert together(rows) == together(itertools.product(range(3), range(4), range(4)))
        assert len(rows) == (48 if environment.SWEEP.read() else 16)
