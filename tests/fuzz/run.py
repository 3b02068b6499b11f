"""Runs a suite of random checks: ``python -m tests.fuzz.run SUITE --seconds N --seed S --jobs J``.

Every failure is printed with its subject and seed; ``--subject NAME --seed S --count 1`` runs that check again.
"""

import argparse
import collections
import concurrent.futures
import gc
import importlib
import itertools
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

ENVIRONMENT = {"WEFT_NUM_THREADS": "1", "WEFT_COMPILE_PROCESSES": "1", "WEFT_JIT": "0", "WEFT_GUARD": "1"}
"""One core a job; kernels of a child do not change while it runs; reads outside of tensors are seen."""
if __name__ == "__main__":  # a test that imports this module keeps its own
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k not in os.environ})

import weft  # noqa: E402 - after the environment is set
from tests.fuzz.driver import Report, Suite, group_of, run_subject  # noqa: E402
from tests.runtime.programs import add_twice  # noqa: E402

ROUND = 1_000_000
"""Between the seeds of one round of all subjects and the next."""
SLICE_SECONDS = 1.0
SUITES = {
    "calls": ("tests.fuzz.calls", "Calls"),
    "kernels": ("tests.fuzz.calls", "Kernels"),
    "onnx": ("tests.fuzz.onnx_calls", "OnnxCalls"),
    "answers": ("tests.fuzz.onnx_calls", "FirstAnswers"),
    "nodes": ("tests.fuzz.onnx_nodes", "OnnxNodes"),
    "graphs": ("tests.fuzz.graph_checks", "Graphs"),
    "files": ("tests.fuzz.files", "Files"),
    "programs": ("tests.fuzz.program_checks", "Programs"),
}
"""Where each suite is."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--seconds", type=float, default=60.0, help="for the whole run")
    parser.add_argument("--slice", type=float, help="seconds for a subject before the next has its turn")
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each subject, and the subjects' order")
    parser.add_argument("--count", type=int, help="seeds of each subject, instead of --slice and --seconds")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--subject", action="append", default=[], help="a subject, or the beginning of several")
    parser.add_argument("--without", action="append", default=[], help="the beginning of subjects that are left out")
    parser.add_argument("--most", type=int, help="the first subjects only, so many")
    parser.add_argument("--out", type=Path, help="a file that has the report at any time of the run")
    parser.add_argument("--list", action="store_true", help="print the subjects")
    return parser.parse_args(arguments)


def chosen(suite: Suite, options: argparse.Namespace) -> list[str]:
    """The subjects in the order of the run: one of each group, then a second one, and so on."""
    names = suite.subjects()
    if options.subject:
        names = [n for n in names if n in options.subject] or [n for n in names if n.startswith(tuple(options.subject))]
    names = [n for n in names if not n.startswith(tuple(options.without))]
    random.Random(options.seed).shuffle(names)
    met: collections.Counter[str] = collections.Counter()
    place = {}
    for name in names:
        met[group_of(name)] += 1
        place[name] = met[group_of(name)]
    return sorted(names, key=place.__getitem__)[: options.most]


def run(suite: Suite, options: argparse.Namespace) -> Report:
    """All subjects in turn until the time is over, each round with seeds that follow those of the round before."""
    report, until = Report(collections.Counter(), {}), time.monotonic() + options.seconds
    rounds = ((options.seed + n * ROUND, name) for n in itertools.count() for name in chosen(suite, options))
    if options.count:
        rounds, until = iter([(options.seed, name) for name in chosen(suite, options)]), math.inf
    seconds = math.inf if options.count else options.slice or getattr(suite, "slice_seconds", SLICE_SECONDS)
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        running: set[concurrent.futures.Future[Report]] = set()
        while True:
            while len(running) < options.jobs and time.monotonic() < until and (turn := next(rounds, None)) is not None:
                running.add(pool.submit(run_subject, suite, turn[1], turn[0], options.count, seconds))
            if not running:
                return report
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                report.merge(future.result())
            if options.out:
                options.out.write_text(report.text() + "\n")


def warm_up() -> None:
    """Do once what each child would do again: an error's first backtrace reads the symbols of all libraries."""
    with suppress(TypeError, ValueError):
        weft.runtime.VirtualMachine(add_twice(1), weft.cpu())["main"](1)
    gc.collect()
    gc.freeze()  # a collection in a child would copy all pages of this process


def main() -> int:
    options = parse()
    module, name = SUITES[options.suite]
    chosen_suite = getattr(importlib.import_module(module), name)
    with cache_folder() if getattr(chosen_suite, "own_cache", False) else nullcontext():
        return run_suite(chosen_suite(), options)


@contextmanager
def cache_folder() -> Iterator[None]:
    """Let the kernels of a run be where they are gone after it: they are many, and of no use to anybody else."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-", dir=memory if memory.is_dir() else None) as folder:
        os.environ.setdefault("WEFT_CACHE_DIR", folder)
        yield


def run_suite(suite: Suite, options: argparse.Namespace) -> int:
    if options.list:
        print("\n".join(suite.subjects()))
        return 0
    warm_up()
    report = run(suite, options)
    print(report.text())
    return int(bool(report.failures()))


if __name__ == "__main__":
    sys.exit(main())
