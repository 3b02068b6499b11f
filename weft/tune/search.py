"""Which candidate to measure next: the neighbours of the best so far, then combinations drawn at random."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from weft.error import ScheduleError
from weft.tir.schedule import Knob
from weft.tune.database import TuningRecord
from weft.tune.space import DrawnSpace, RuleSpace, mark_of

_RANDOM = 64
"""Combinations drawn at random behind all neighbours."""

_DRAWS = 512
"""Candidates drawn of a space of the user's."""


class Search:
    """Proposes candidates of one kernel, none of them twice.

    Choices are varied one at a time around the best that is known, the first candidates of each first; where that is
    exhausted, several at a time. What a record has measured already is not proposed, so that a search goes on where
    another one ended.

    Parameters
    ----------
    space : RuleSpace
        Makes functions of decisions.
    record : TuningRecord
        What is known; the owner adds the trials, and to ``marks`` the fingerprints of the functions that were made.
    seed : int
        Of the combinations.
    """

    def __init__(self, space: RuleSpace, record: TuningRecord, seed: int = 0) -> None:
        self.space, self.record = space, record
        self.default, knobs = space.schedule({})
        if record.signature != knobs.signature():  # other rules: what was measured means nothing
            record.signature, record.trials = knobs.signature(), []
        self._asked = {name: knob for name, knob in knobs.asked.items() if len(knob.candidates) > 1}
        self._random = random.Random(seed)
        self._drawn = 0
        self._known = {_text({}), *(_text(t.decisions) for t in record.trials)}
        self.marks = {mark_of(self.default), *(t.mark for t in record.trials if t.mark)}
        self._center: dict[str, Any] | None = None
        self._neighbours: Iterator[dict[str, Any]] = iter(())
        self.finished = not self._asked

    def propose(self, count: int) -> list[dict[str, Any]]:
        """Return decisions of up to `count` candidates; fewer, and `finished`, where there are no more."""
        found: list[dict[str, Any]] = []
        while len(found) < count and not self.finished:
            decisions = self._next()
            if decisions is None:
                self.finished = True
            elif (text := _text(decisions)) not in self._known:
                self._known.add(text)
                found.append(decisions)
        return found

    def _next(self) -> dict[str, Any] | None:
        best = self.record.best
        center = dict(best.decisions) if best is not None else {}
        if center != self._center:
            self._center = center
            self._neighbours = self._around(center)
        found = next(self._neighbours, None)
        if found is None and self._drawn < _RANDOM:
            self._drawn += 1
            found = self._draw(center)
        return found

    def _around(self, center: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Vary one choice at a time."""
        try:
            _, knobs = self.space.schedule(center)
        except ScheduleError:
            return
        self._asked = {name: knob for name, knob in knobs.asked.items() if len(knob.candidates) > 1}
        columns = [
            [_with(center, name, knob, c) for c in knob.candidates if c != knob.chosen]
            for name, knob in self._asked.items()
        ]
        for row in itertools.zip_longest(*columns):
            yield from (d for d in row if d is not None)

    def _draw(self, center: dict[str, Any]) -> dict[str, Any]:
        names = list(self._asked)
        decisions = center
        for name in self._random.sample(names, min(len(names), self._random.choice((2, 2, 3)))):
            knob = self._asked[name]
            decisions = _with(decisions, name, knob, self._random.choice(knob.candidates))
        return decisions


class DrawnSearch:
    """Proposes candidates of a space of the user's: drawn one after another, none of them twice.

    Parameters are those of :class:`Search`.
    """

    def __init__(self, space: DrawnSpace, record: TuningRecord, seed: int = 0) -> None:
        self.space, self.record = space, record
        self.default = space.default()
        if record.signature != space.signature:
            record.signature, record.trials = space.signature, []
        self._seed = seed
        self.marks = {mark_of(self.default), *(t.mark for t in record.trials if t.mark)}
        self._known = {_text(t.decisions) for t in record.trials}
        self.finished = False

    def propose(self, count: int) -> list[dict[str, Any]]:
        """Return decisions of up to `count` candidates; fewer, and `finished`, where no more are found."""
        found: list[dict[str, Any]] = []
        for _ in range(_DRAWS):
            self._seed += 1
            drawn = self.space.draw(self._seed)
            if drawn is not None and _text(drawn) not in self._known:
                self._known.add(_text(drawn))
                found.append(drawn)
            if len(found) == count:
                return found
        self.finished = True
        return found


def _with(decisions: Mapping[str, Any], name: str, knob: Knob, value: Any) -> dict[str, Any]:
    """Decide one more choice; what is the default is not said."""
    rest = {k: v for k, v in decisions.items() if k != name}
    return rest if value == knob.default else {**rest, name: value}


def _text(decisions: Mapping[str, Any]) -> str:
    return json.dumps(decisions, sort_keys=True)
