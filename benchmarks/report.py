"""What every benchmark writes: rows on the screen and, where asked, JSON with what the numbers depend on."""

import argparse
import datetime
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from rich.console import Console
from rich.table import Table

PEERS = ("weft", "onnxruntime", "onnx", "numpy", "llvmlite", "apache-tvm-ffi", "torch")


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    return parser


def environment() -> dict[str, Any]:
    """Versions, CPU and thread settings."""
    versions = {}
    for name in PEERS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    features = [name for name, on in sorted(llvm.get_host_cpu_features().items()) if on]
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("WEFT_NUM_THREADS"),
        "cpu_features": features,
        "versions": versions,
    }


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table; columns are the keys of the first."""
    table = Table(title=title)
    for key in rows[0] if rows else ():
        table.add_column(key, justify="left" if isinstance(rows[0][key], str) else "right")
    for row in rows:
        table.add_row(*(_text(v) for v in row.values()))
    Console(width=None if os.isatty(1) else 400).print(table)  # a file takes the table as wide as it is


def save(path: Path | None, benchmark: str, rows: list[dict[str, Any]], **more: Any) -> None:
    """Write rows and the environment as JSON, if a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"benchmark": benchmark, "environment": environment(), "rows": rows, **more}
        path.write_text(json.dumps(content, indent=1) + "\n")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2e}" if value and abs(value) < 1e-3 else f"{value:.{3 if abs(value) < 100 else 1}f}"
    return str(value)
