"""What commands print: tables and a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


@contextmanager
def compiling(what: str) -> Generator[Callable[[str, int, int], None]]:
    """Show how far a compilation is, on standard error; yields the callback that compilers take."""
    console = Console(stderr=True)
    start = time.perf_counter()
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(f"compiling {what}", total=None)
            yield lambda _name, done, total: bar.update(task, completed=done, total=total)
    else:
        print(f"compiling {what}", file=sys.stderr, flush=True)
        yield _Lines()
    print(f"compiled {what} in {time.perf_counter() - start:.2f} s", file=sys.stderr, flush=True)


class _Lines:
    """A line at every quarter of the way."""

    def __init__(self) -> None:
        self.shown = 0

    def __call__(self, _name: str, done: int, total: int) -> None:
        quarter = 4 * done // max(1, total)
        if quarter > self.shown:
            self.shown = quarter
            print(f"  {done} of {total} kernels", file=sys.stderr, flush=True)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table on a terminal, and tab-separated lines elsewhere."""
    console = Console()
    if not console.is_terminal:
        print(f"{title}:")
        for row in rows:
            print("  " + "\t".join(str(cell) for cell in row))
        return
    table = Table(title=title, title_justify="left", show_header=any(header))
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def size_text(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
