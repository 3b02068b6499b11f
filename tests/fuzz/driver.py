"""Runs a suite of random checks in child processes, so that a crash or a hang is an outcome, and makes failures small.

A suite names its subjects (an operator's case, a model, a program); opening one compiles it. A check is a function of
(suite, subject, seed) alone. A child opens a subject and counts seeds up; before each check it writes the seed into
memory that it shares with the driver, which therefore knows what a child did that died or stands still. Children are
forked from a process that has imported everything and run nothing.
"""

from __future__ import annotations

import collections
import json
import mmap
import os
import re
import resource
import select
import signal
import struct
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

MOST_RATES = 12
"""Groups whose rates are printed."""
MOST_CRASHES, EXPLAINED = 8, 2
"""Children that one turn of a subject may cost, and how many of them are looked into."""
SUITE_FAILED = 3
"""The exit status of a child whose suite raised; it has said so. Memory that Weft wrote over shows in this way, too."""
OPEN_SECONDS, SHRINK_SECONDS = 120.0, 3.0
"""What compiling may take; what making a failure small takes, or so many checks as are at least that long."""
MEMORY_BYTES = 4 << 30
GOOD = frozenset(
    {
        "equal",
        "left to the compiled program",
        "refused by both",
        "valid",
        "rejected",
        "skipped",
        "refused as documented",
        "overflow",
        "answered as documented",
    }
)
"""How a check may end. `overflow`: numbers differ, of sums and products near the greatest float. `refused by Weft only`
is reported but is no failure: the oracle may be laxer than Weft."""
WEAK = frozenset({"refused by Weft only", "refused when compiled"})


class Outcome(Exception):
    """How a check ended: a kind, which findings are grouped by, and words."""

    def __init__(self, kind: str, words: str = "") -> None:
        super().__init__(kind, words)
        self.kind, self.words = kind, words


class Subject(Protocol):
    """What checks are about, compiled; `complaints` are failures that compiling it showed."""

    complaints: list[Outcome]

    def draw(self, rng: np.random.Generator) -> Any:
        """Make the input of a check."""
        ...

    def check(self, drawn: Any) -> Outcome:
        """Run one check."""
        ...

    def smaller(self, drawn: Any) -> Iterable[Any]:
        """Inputs a little smaller, the smallest first."""
        ...

    def show(self, drawn: Any) -> str:
        """An input in one line, or as a program that shows the failure."""
        ...


class Suite(Protocol):
    """Subjects by name; subjects of one group share their findings. A check that takes longer than the limit hangs."""

    check_seconds: float

    def subjects(self) -> list[str]:
        """Names of all subjects."""
        ...

    def open(self, subject: str) -> Subject:
        """Compile a subject. A WeftError says that it is refused."""
        ...


@dataclass
class Finding:
    """Failures of one group that look alike, with the first of them made small."""

    group: str
    kind: str
    words: str
    subject: str
    seed: int
    shown: str
    count: int = 1


def group_of(subject: str) -> str:
    """The part of a subject's name before the colon."""
    return subject.partition(":")[0]


def alike(kind: str, words: str) -> tuple[str, str]:
    """What is equal for failures that have one cause: words without numbers."""
    return kind, re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?|\bnan\b|\binf\b", "#", words)[:60]


def rng_of(subject: str, seed: int) -> np.random.Generator:
    """The random numbers of a check."""
    return np.random.default_rng([seed, zlib.crc32(subject.encode())])


def seed_of(rng: np.random.Generator) -> int:
    """The seed of a check, from its random numbers: checks whose seeds are neighbours may share what they draw."""
    return int(rng.bit_generator.seed_seq.entropy[0])  # type: ignore[attr-defined]


def probe(check: Callable[[Any], Outcome], drawn: Any, seconds: float) -> Outcome:
    """Run a check in a fork of this process."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(int(seconds))
        note("")
        outcome = check(drawn)
        os.write(writable, json.dumps([outcome.kind, outcome.words[:1000]]).encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return Outcome(*json.loads(text)) if text else Outcome(*ending(status))


def ending(status: int) -> tuple[str, str]:
    """The kind of outcome that the end of a process is."""
    if Board.current.read()[3].startswith(b"oracle"):
        return "skipped", "the oracle ended the process"
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    return ("timeout", "") if name in ("SIGALRM", "SIGKILL") else ("crash", name)


def shrink(subject: Subject, drawn: Any, outcome: Outcome, seconds: float, forked: bool) -> tuple[Any, Outcome]:
    """Take the first smaller input that ends in the same way, again and again."""
    check = (lambda d: probe(subject.check, d, seconds)) if forked else subject.check
    until, kept = time.monotonic() + max(SHRINK_SECONDS, seconds / 2), (drawn, outcome)
    progress = True
    while progress:
        progress = False
        for smaller in subject.smaller(kept[0]):
            if time.monotonic() > until:
                break
            again = check(smaller)
            if alike(again.kind, again.words) == alike(outcome.kind, outcome.words):
                kept, progress = (smaller, again), True
                break
    return kept


class Board:
    """What a child shows to the driver: the seed it is at (-1 while it compiles), since when, and how many are done."""

    form = struct.Struct("<qdq8s")
    current: Board

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, self.form.size)
        Board.current = self

    def write(self, seed: int, done: int) -> None:
        self.form.pack_into(self.memory, 0, seed, time.monotonic(), done, b"")

    def note(self, word: str) -> None:
        self.memory[self.form.size - 8 :] = word.encode().ljust(8, b"\0")

    def read(self) -> tuple[int, float, int, bytes]:
        return self.form.unpack_from(self.memory, 0)


def note(word: str) -> None:
    """Say what this process is at, for the case that it ends there: an oracle's crash is none of Weft's."""
    Board.current.note(word)


Send = Callable[..., None]


def work(suite: Suite, name: str, seeds: Iterable[int], seconds: float, board: Board, send: Send) -> None:
    """Open a subject and check seeds: the body of a child. Times that are sent are processor time."""
    seen: set[tuple[str, str]] = set()
    counts: collections.Counter[str] = collections.Counter()
    board.write(-1, 0)
    began = time.process_time()
    try:
        subject = suite.open(name)
    except Outcome as e:
        send("finding", e.kind, e.words, -1, "")
        return
    for complaint in subject.complaints:
        send("finding", complaint.kind, complaint.words, -1, "")
    opening, checking = time.process_time() - began, 0.0
    until = time.monotonic() + seconds
    for done, seed in enumerate(seeds):
        board.write(seed, done)
        began = time.process_time()
        drawn = subject.draw(rng_of(name, seed))
        outcome = subject.check(drawn)
        checking += time.process_time() - began
        counts[outcome.kind] += 1
        if outcome.kind not in GOOD:
            key = alike(outcome.kind, outcome.words)
            shown = ""
            if key not in seen:
                found = time.monotonic()
                board.write(seed, -1)
                drawn, outcome = shrink(subject, drawn, outcome, suite.check_seconds, forked=False)
                shown = subject.show(drawn)
                until += time.monotonic() - found
            send("finding", outcome.kind, outcome.words, seed, shown)
            seen.add(key)
        if time.monotonic() > until:
            break
    send("end", dict(counts), opening, checking)


def explain(suite: Suite, name: str, seed: int, kind: str, board: Board, send: Send) -> None:
    """Make the seed that ended a child small, in forks. What was only slow, on a machine with much to do, is let go."""
    board.write(-1, 0)
    subject = suite.open(name)
    board.write(seed, -1)
    drawn = subject.draw(rng_of(name, seed))
    outcome = probe(subject.check, drawn, suite.check_seconds)
    if outcome.kind in GOOD:
        words = f"only after other calls: alone it is {outcome.kind}"
        send("finding", "skipped" if kind == "timeout" else kind, words, seed, subject.show(drawn))
    else:
        drawn, outcome = shrink(subject, drawn, outcome, suite.check_seconds, forked=True)
        send("finding", outcome.kind, outcome.words, seed, subject.show(drawn))
    send("end", {}, 0.0, 0.0)


class Child:
    """A forked process at work on one subject."""

    def __init__(self, suite: Suite, name: str, body: Callable[[Board, Send], None]) -> None:
        self.name, self.board, self.buffer = name, Board(), b""
        self.limit = suite.check_seconds
        self.board.write(-1, 0)
        self.readable, writable = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            code = SUITE_FAILED

            def send(*message: Any) -> None:
                os.write(writable, json.dumps(message).encode() + b"\n")

            try:
                os.close(self.readable)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # traces of crashes, by the hundred
                body(self.board, send)
                code = 0
            except BaseException:  # a defect of the suite, which is reported as such
                last = traceback.format_exc().splitlines()
                send("finding", "the suite fails", f"{last[-1]} {last[-4:-1]}", self.board.read()[0], "")
            finally:
                os._exit(code)
        os.close(writable)

    def messages(self, timeout: float) -> Iterator[list[Any]]:
        """What the child sent, until it ends; kills it when it stands still."""
        open_ = True
        while open_:
            if select.select([self.readable], [], [], timeout)[0]:
                data = os.read(self.readable, 1 << 16)
                self.buffer += data
                open_ = bool(data)
            *lines, self.buffer = self.buffer.split(b"\n")
            yield from map(json.loads, lines)
            seed, since, done, _ = self.board.read()
            limit = OPEN_SECONDS if seed < 0 else self.limit + (max(5 * SHRINK_SECONDS, self.limit) if done < 0 else 0)
            if time.monotonic() - since > limit:
                os.kill(self.process, signal.SIGKILL)
        os.close(self.readable)


@dataclass
class Report:
    """What a run found, and how fast it was."""

    counts: collections.Counter[str]
    findings: dict[tuple[str, str, str], Finding]
    open_seconds: float = 0.0
    check_seconds: float = 0.0
    subjects: int = 0
    rates: dict[str, list[float]] = field(default_factory=dict)
    """Checks and seconds of each group."""
    finished: int = 0
    """Checks of children that came to their end, which `check_seconds` is of."""

    def add(self, subject: str, kind: str, words: str, seed: int, shown: str) -> None:
        key = (group_of(subject), *alike(kind, words))
        if kind in GOOD:
            self.counts[kind] += 1
        elif key in self.findings:
            self.findings[key].count += 1
        else:
            self.findings[key] = Finding(key[0], kind, words, subject, seed, shown)

    def failures(self) -> list[Finding]:
        return [f for f in self.findings.values() if f.kind not in GOOD | WEAK]

    def merge(self, other: Report) -> None:
        self.counts += other.counts
        self.open_seconds += other.open_seconds
        self.check_seconds += other.check_seconds
        self.subjects += other.subjects
        self.finished += other.finished
        for group, rate in other.rates.items():
            self.rates[group] = [a + b for a, b in zip(self.rates.get(group, (0, 0)), rate, strict=True)]
        for key, finding in other.findings.items():
            self.findings.setdefault(key, Finding(**{**asdict(finding), "count": 0})).count += finding.count

    def text(self) -> str:
        """Counts, rates, then a line or more for each finding."""
        total = sum(self.counts.values())
        rate = self.finished / max(self.check_seconds, 1e-9)
        lines = [
            f"{total} checks of {self.subjects} subjects, {rate:.3g} a second of one core, "
            f"and {self.open_seconds:.1f} s of compiling: "
            + ", ".join(f"{k} {n}" for k, n in sorted(self.counts.items()))
        ]
        if 1 < len(self.rates) <= MOST_RATES:
            each = (f"{group} {n / max(s, 1e-9):.3g}" for group, (n, s) in sorted(self.rates.items()))
            lines.append("checks a second of one core: " + ", ".join(each))
        for f in sorted(self.findings.values(), key=lambda f: (f.kind in WEAK, f.group, f.kind)):
            words = " ".join(f.words.split())[:240]
            lines.append(f"{f.kind} | {f.subject} | seed {f.seed} | {f.count}x | {f.shown} | {words}")
        return "\n".join(lines)


def run_subject(suite: Suite, name: str, first: int, count: int | None, seconds: float) -> Report:
    """Check one subject: from a seed on, so many of them or for so long, in as many children as it takes."""
    report = Report(collections.Counter(), {}, subjects=1)
    end = 1 << 62 if count is None else first + count
    for attempt in range(MOST_CRASHES):
        child = Child(suite, name, lambda board, send, s=range(first, end): work(suite, name, s, seconds, board, send))
        finished = collect(child, report)
        _, status = os.waitpid(child.process, 0)
        seed, _, done, _ = child.board.read()
        if finished or status == 0 or first >= end:
            break
        kind, words = ending(status)
        report.counts.update({kind: 1, "before that": max(done, 0)})
        first = seed + 1
        if words == f"exit {SUITE_FAILED}":
            if seed < 0:
                break
            continue
        if seed < 0 or kind in GOOD or attempt >= EXPLAINED:
            report.add(name, kind, words, seed, "while it is compiled" if seed < 0 else "")
        else:
            told = Child(suite, name, lambda board, send, s=seed, k=kind: explain(suite, name, s, k, board, send))
            if not collect(told, report):
                report.add(name, kind, words, seed, "")
            os.waitpid(told.process, 0)
        if seed < 0 or first >= end:
            break
    return report


def collect(child: Child, report: Report) -> bool:
    """Put a child's messages into the report; returns whether it came to its end."""
    finished = False
    for kind, *content in child.messages(timeout=0.5):
        if kind == "finding":
            words = content
            report.add(child.name, *words)
        else:
            finished = True
            report.counts.update(content[0])
            report.finished += sum(content[0].values())
            report.rates[group_of(child.name)] = [sum(content[0].values()), content[2]]
            report.open_seconds += content[1]
            report.check_seconds += content[2]
    return finished
