"""Of combinations those in which every two values meet."""

import itertools
from collections.abc import Iterable

import pytest

from tests.pairs import meeting
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
