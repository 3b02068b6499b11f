"""The one key of compiled code: everything that decides what it becomes, for every cache of it.

A key has a part for each ingredient, so that tests can change one at a time: what is compiled, for which target on
which machine, the pass context, types of numbers that a program brought, tuning answers, the compiler's sources, the
versions of what it compiles with, and the environment. What is code of the user's own (a lowering function, a pass, a
rule) has no name that would be another one for other code, so there is no key then, and nothing is cached.

What is dumped (``WEFT_DUMP_DIR``) has no key either, because what comes from a cache passes through nothing.

Nothing here loads the compiler: a model that was compiled before is found without it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from weft import environment, ffi, machine
from weft.runtime import cache

KERNEL_SOURCES = tuple(
    (
        "arith compile_key.py environment.py ir machine.py reach.py relax/kernel_builder.py "
        "relax/transform/schedule_tir.py relax/vm_build.py spelling.py target tir tune"
    ).split()
)
"""Where the code is that makes kernels of TIR functions; whole models depend on all of Weft."""
_OWN_PARTS = frozenset(("tune.database", "tir.instrument_bound_checkers", "tir.add_lower_pass"))
"""Options that are an ingredient themselves; whose messages name buffers, which fingerprints do not; that are code."""
SETTLED_NS = 2_000_000_000
"""How long ago a file's last change has to be for any later one to show: two within a tick of the clock look alike."""


def compile_key(kind: str, what: Sequence[str], target: Any, answers: Sequence[str] = ()) -> str | None:
    """Return the key of compiled code; None where something takes part that a key cannot hold.

    Parameters
    ----------
    kind : str
        ``"model"``, or of kernels how they are linked.
    what : sequence of str
        What is compiled: fingerprints, digests, names, options.
    target : Target or plain data
        What it is compiled for.
    answers : sequence of str
        What tuning decided.
    """
    parts = ingredients(kind, what, target, answers)
    return None if parts is None else json.dumps(parts, sort_keys=True)


def ingredients(kind: str, what: Sequence[str], target: Any, answers: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the parts of a key by name; arguments as for :func:`compile_key`."""
    context = _context()
    if context is None or _brings_code() or environment.DUMP_DIR.read() is not None or _is_foreign(target):
        return None
    return {
        "kind": kind,
        "what": list(what),
        "target": _target(target),
        "answers": list(answers),
        "context": context,
        "datatypes": _datatypes(),
        "sources": _sources(() if kind == "model" else KERNEL_SOURCES),
        "versions": _versions(),
        "runtime": _runtime(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "environment": environment.decides_code(),
    }


def is_plain() -> bool:
    """Whether this process compiles kernels as a new one would: no settings of passes, nothing that users brought."""
    return _context() == _DEFAULT_CONTEXT and not _brings_code() and not _datatypes()


def is_watched() -> bool:
    """Whether somebody watches passes run, which those of another process, or none at all, would not show."""
    passes = sys.modules.get("weft.ir.passes")
    return passes is not None and bool(passes.PassContext.current().instruments)


# ---- ingredients -----------------------------------------------------------------------------------------------------

_DEFAULT_CONTEXT = {"opt_level": 2, "required": [], "disabled": [], "config": {}}


def _context() -> dict[str, Any] | None:
    """Describe the current pass context; None where it holds what is no plain data."""
    passes = sys.modules.get("weft.ir.passes")
    if passes is None:
        return _DEFAULT_CONTEXT
    now = passes.PassContext.current()
    config = {k: v for k, v in now.config.items() if k != "tune.database"}
    if any(config.get(k) for k in _OWN_PARTS):
        return None
    try:
        json.dumps(config)
    except (TypeError, ValueError):
        return None
    return {
        "opt_level": now.opt_level,
        "required": sorted(now.required_pass),
        "disabled": sorted(now.disabled_pass),
        "config": config,
    }


def _datatypes() -> list[tuple[str, int]]:
    """List the types of numbers that were registered, with their codes."""
    types = sys.modules.get("weft.tir.custom_datatype")
    return [] if types is None else types.registered_types()


def _brings_code() -> bool:
    """Whether a function of the user's takes part in making kernels."""
    rules, types = sys.modules.get("weft.ir.intrin_rules"), sys.modules.get("weft.tir.custom_datatype")
    return (rules is not None and rules.has_own_rules()) or (types is not None and types.has_lowerings())


def _is_foreign(target: Any) -> bool:
    """Whether the kind of a target, or decisions that it may ask for, are the user's."""
    kinds = sys.modules.get("weft.target.kind")
    plain = target.get("kind", "llvm") if isinstance(target, Mapping) else target if isinstance(target, str) else None
    name = plain.partition(" ")[0] if plain is not None else str(getattr(target, "kind", "llvm"))
    return kinds is not None and kinds.is_foreign(name)


def brings_models() -> bool:
    """Whether something of the user's takes part in making models: converters, pipelines, an open database."""
    tuned = sys.modules.get("weft.tune.tuned")
    tables = [
        getattr(sys.modules[module], table)
        for module, table in (("weft.frontend.onnx.registry", "_CONVERTERS"), ("weft.relax.pipeline", "_PIPELINES"))
        if module in sys.modules
    ]
    own = any(not getattr(f, "__module__", "").startswith("weft.") for table in tables for f in table.values())
    return own or (tuned is not None and tuned.current_database() is not None)


def _target(target: Any) -> Any:
    """Describe a target by all that compilation asks it; plain data as it is."""
    if not hasattr(target, "machine"):
        return target
    host = [] if target.host is None else [_target(target.host)]
    return [target.identity, target.triple, target.cpu, target.attribute_string, target.machine.described(), host]


@lru_cache(maxsize=2)
def _sources(parts: tuple[str, ...]) -> str:
    """Hash sources of Weft: those of some packages and files, or all; the cache has the hash until a file changes."""
    root = os.path.dirname(__file__)
    paths = sorted(_python_files([f"{root}/{p}" for p in parts] or [root]))
    memo = None if parts else _memo(root, paths)  # a warm start of a model waits for it
    known = None if memo is None else cache.get(memo)
    if known is not None:
        return known.decode()
    digest = hashlib.blake2b(digest_size=32)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            text = file.read()
        digest.update(f"{path[len(root) :]} {len(text)}\n".encode() + text)
    if memo is not None and _memo(root, paths) == memo:
        cache.put(memo, digest.hexdigest().encode())
    return digest.hexdigest()


def _memo(root: str, paths: Sequence[str]) -> str | None:
    """Name the state of files by what changes when one does; None while a later change might not show."""
    found, newest = hashlib.blake2b(root.encode(), digest_size=32), 0
    for path in paths:
        s = os.stat(path)  # noqa: PTH116 - of 1,200 files, a third of a path's time
        newest = max(newest, s.st_mtime_ns, s.st_ctime_ns)
        found.update(f"{path} {s.st_dev} {s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}\n".encode())
    return f"sources\n{found.hexdigest()}" if time.time_ns() - newest > SETTLED_NS else None


def _python_files(places: Iterable[Path | str]) -> list[str]:
    found: list[str] = []
    stack = [str(p) for p in places]
    while stack:
        place = stack.pop()
        if place.endswith(".py"):
            found.append(place)
            continue
        with os.scandir(place) as entries:
            stack += [e.path for e in entries if e.name.endswith(".py") or e.is_dir()]
    return found


@lru_cache(maxsize=1)
def _versions() -> list[str]:
    """Name what Weft compiles with; LLVM by the size of its library, too, as builds of one version differ."""
    found = {"": f"python {platform.python_version()}"}
    wanted = {**{name: name for name in ("llvmlite", "onnx", "numpy", "ml_dtypes")}, "apache_tvm_ffi": "tvm_ffi"}
    for place in sys.path:  # as importlib.metadata finds them, whose import and parser take 20 ms
        with suppress(OSError):
            for entry in os.listdir(place or "."):  # noqa: PTH208 - a path of each takes longer
                if entry.endswith((".dist-info", ".egg-info")) and (name := entry.partition("-")[0].lower()) in wanted:
                    found.setdefault(name, entry)
    for name, module in wanted.items():
        if name not in found and importlib.util.find_spec(module) is not None:
            installed = importlib.import_module("importlib.metadata")
            with suppress(installed.PackageNotFoundError):
                found[name] = f"{name} {installed.version(name)}"
    spec = importlib.util.find_spec("llvmlite")
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    llvm = [f"{f.name} {f.stat().st_size}" for p in places for f in sorted(Path(p, "binding").glob("*llvmlite*.*"))]
    return [found[name] for name in sorted(found)] + llvm


@lru_cache(maxsize=1)
def _runtime() -> str:
    """Hash the native library, which kernels and executables call."""
    return hashlib.blake2b(ffi.find_library().read_bytes(), digest_size=32).hexdigest()


@lru_cache(maxsize=1)
def _processor() -> str:
    """What the compiler may ask about this machine, and :func:`weft.machine.host_facts` of it."""
    lines: set[str] = set()
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(errors="replace")
        lines = {x for x in text.splitlines() if x.startswith(("model name", "flags", "Features", "CPU part", "cache"))}
    known_by = lines or {platform.processor()}  # which may ask another process
    return " ".join([platform.system(), platform.machine(), str(machine.host_facts()), *sorted(known_by)])
