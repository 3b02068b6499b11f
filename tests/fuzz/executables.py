"""Mutates executable files, blindly and field by field, and runs what still loads: ``-m tests.fuzz.executables N``.

A run happens in a process of its own with little memory to ask for, so that a crash or a greedy allocation is seen.
"""

from __future__ import annotations

import json
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterator

import numpy as np

import weft
from tests.fuzz.programs import bases

INTERESTING = (-(2**63), -(2**55), -(2**31), -2, -1, 0, 1, 2, 3, 4, 7, 255, 2**31, 2**32, 2**54, 2**54 + 1, 2**62)
TENSOR, SHAPE, TEXT, SMALL_TEXT = 70, 69, 65, 11
EXPECTED = (weft.WeftError, TypeError, ValueError, RuntimeError, AttributeError, MemoryError, IndexError)
CALL_SECONDS = 2.0
EXTRA_BYTES = 1 << 30


class CallTooLong(BaseException):
    """A call of a mutated program ran into the time limit: a loop without end, which an interrupt could stop."""


def fields(data: bytes) -> Iterator[tuple[str, int, str]]:  # noqa: C901  (one rule a record)
    """Yield what each number of an executable file is: its group, its offset and its struct format."""
    at = 0

    def number(group: str, form: str) -> Iterator[tuple[str, int, str]]:
        nonlocal at
        yield group, at, form
        at += struct.calcsize("<" + form)

    def value(form: str) -> int:
        return struct.unpack_from("<" + form, data, at)[0]

    def text() -> Iterator[tuple[str, int, str]]:
        nonlocal at
        size = value("Q")
        yield from number("count", "Q")
        at += size

    def counted(item: Callable[[], Iterator[tuple[str, int, str]]]) -> Iterator[tuple[str, int, str]]:
        n = value("Q")
        yield from number("count", "Q")
        for _ in range(n):
            yield from item()

    def function() -> Iterator[tuple[str, int, str]]:
        yield from number("function", "i")
        yield from text()
        for _ in range(4):
            yield from number("function", "q")
        yield from counted(text)

    def scope() -> Iterator[tuple[str, int, str]]:
        yield from number("scope", "q")
        yield from text()

    def constant() -> Iterator[tuple[str, int, str]]:
        nonlocal at
        tag = value("i")
        yield from number("tag", "i")
        if tag == TENSOR:
            for form in ("Q", "Q", "i", "i"):
                yield from number("tensor", form)
            ndim = value("i")
            for form in ("i", "B", "B", "H", *("q" * ndim)):
                yield from number("tensor", form)
            size = value("q")
            yield from number("tensor", "q")
            at += size
        elif tag == SHAPE:
            yield from counted(lambda: number("shape", "q"))
        elif tag in (TEXT, SMALL_TEXT):
            yield from text()
        else:
            yield from number("constant", "q" if tag in (1, 2, 3) else "I")

    yield from number("header", "Q")
    yield from text()
    yield from counted(function)
    yield from counted(scope)
    yield from counted(constant)
    yield from counted(lambda: number("offset", "q"))
    yield from counted(lambda: number("word", "q"))


def mutate_fields(data: bytes, table: list[tuple[str, int, str]], rng: np.random.Generator) -> bytes:
    """Overwrite one to three numbers, each group of fields as often as the next."""
    out = bytearray(data)
    groups = sorted({group for group, _, _ in table})
    for _ in range(int(rng.integers(1, 4))):
        group = groups[int(rng.integers(len(groups)))]
        members = [f for f in table if f[0] == group]
        _, at, form = members[int(rng.integers(len(members)))]
        size = struct.calcsize("<" + form)
        old = int.from_bytes(out[at : at + size], "little")
        kind = int(rng.integers(4))
        if kind == 0:
            new = INTERESTING[int(rng.integers(len(INTERESTING)))]
        elif kind == 1:
            new = old + int(rng.integers(-3, 4))
        elif kind == 2:
            new = old ^ 1 << int(rng.integers(8 * size))
        else:  # what stands in another field of the group: a register for a register, a jump for a jump
            _, other, form = members[int(rng.integers(len(members)))]
            new = int.from_bytes(out[other : other + struct.calcsize("<" + form)], "little")
        out[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(out)


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, cut, insert or repeat, one to four times; at times keep only the beginning."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, kind = int(rng.integers(len(out))), int(rng.integers(9))
        if kind < 5:
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 5:
            del out[at + 1 : at + int(rng.integers(2, 40))]
        elif kind == 6:
            out[at:at] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 7:
            out[at:at] = out[at : at + int(rng.integers(1, 40))]
        else:
            del out[at + 1 :]
    return bytes(out)


def limit_memory() -> None:
    """Let this process ask for at most a gigabyte more than it has."""
    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + EXTRA_BYTES, now + EXTRA_BYTES))


def run(first: int, count: int) -> dict[str, int]:
    """Mutate, load and call `count` files; a seed whose error is not of the expected classes raises."""
    programs = [(base, list(fields(base.data))) for base in bases()]
    result = {"rejected": 0, "failed": 0, "ran": 0, "stopped": 0}

    def stop(*_: object) -> None:
        raise CallTooLong

    signal.signal(signal.SIGALRM, stop)
    limit_memory()
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        (data, imports, args), table = programs[int(rng.integers(len(programs)))]
        bad = mutate_fields(data, table, rng) if rng.integers(4) else damage(data, rng)
        stage = "rejected"
        print(seed, file=sys.stderr, flush=True)
        signal.setitimer(signal.ITIMER_REAL, CALL_SECONDS)
        try:
            executable = weft.runtime.VMExecutable.from_bytes(bad, imports)
            stage = "failed"
            weft.relax.VirtualMachine(executable, weft.cpu())["main"](*args)
            stage = "ran"
        except EXPECTED as e:
            assert str(e), f"seed {seed}"
        except CallTooLong:
            stage = "stopped"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        result[stage] += 1
    return result


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[2]) if len(sys.argv) > 2 else 0, int(sys.argv[1]))))
