"""JSON that is damaged by its structure, and the files of JSON, lines of it, and weights that Weft reads."""

import copy
import json
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import auto_scheduler, autotvm, ir, meta_schedule, te, tir, tune
from weft.frontend.weights import load_safetensors
from weft.runtime import tensor_cache
from weft.runtime.profiler import ProfileCall, Report

ODD = (
    *(None, True, -1, 0, 2**31, 2**63, -(2**63), 10**30, 1.5, float("inf"), float("nan"), "", "é\0", "float32"),
    *([], [[]], {}, {"n": -1}, {"n": 10**9}, {"x": ["adt", [0]]}, [0] * 50),
)
Document = tuple[bytes, Callable[[bytes], Any], Callable[[np.random.Generator], bytes]]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*at, key)
        yield from places(below, (*at, key))


def mutated(value: Any, rng: np.random.Generator) -> Any:
    """Another value, of a wrong type or from elsewhere in the document, in one or two places; or none, or too deep."""
    value = copy.deepcopy(value)
    for _ in range(int(rng.integers(1, 3))):
        ways = list(places(value))
        if not ways:
            return ODD[int(rng.integers(len(ODD)))]
        way, other = (ways[int(rng.integers(len(ways)))] for _ in range(2))
        parent, kind = reduce(getitem, way[:-1], value), rng.random()
        if kind < 0.5:
            parent[way[-1]] = copy.deepcopy(ODD[int(rng.integers(len(ODD)))])
        elif kind < 0.7:
            parent[way[-1]] = copy.deepcopy(reduce(getitem, other, value))
        elif kind < 0.85:
            del parent[way[-1]]
        elif kind < 0.9:
            for _ in range(int(rng.choice([3, 200]))):
                parent[way[-1]] = [parent[way[-1]]]
        elif type(parent[way[-1]]) in (int, float):
            parent[way[-1]] += int(rng.choice([-3, -1, 1, 2, 1000]))
    return value


def lines(data: str, read: Callable[[str], Any]) -> Document:
    def change(rng: np.random.Generator) -> bytes:
        rows = data.splitlines()
        at = int(rng.integers(len(rows)))
        rows[at] = json.dumps(mutated(json.loads(rows[at]), rng))
        return "\n".join(rows).encode()

    def reader(bad: bytes) -> Any:
        with warnings.catch_warnings(action="ignore"):
            return read(bad.decode(errors="replace"))

    return data.encode(), reader, change


def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="weft-fuzz-"))


def product(n: int) -> list[te.Tensor]:
    a, b, k = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B"), te.reduce_axis((0, n), "k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def traces() -> Document:
    work_dir, mod = folder(), weft.IRModule({"main": te.create_prim_func(product(16))})
    sch = tir.Schedule(mod)
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.split(i, sch.sample_perfect_tile(i, n=2))
    database, llvm = meta_schedule.database.JSONDatabase(work_dir=work_dir), weft.target.Target("llvm")
    args = meta_schedule.arg_info.ArgInfo.from_entry_func(mod)
    workload = database.commit_workload(mod)
    database.commit_tuning_record(meta_schedule.database.TuningRecord(sch.trace, workload, [1.0], llvm, args))
    path = work_dir / "database_tuning_record.json"

    def read(text: str) -> None:
        path.write_text(text)
        meta_schedule.database.JSONDatabase(work_dir=work_dir).query_ir_module(mod, llvm)

    return lines(path.read_text(), read)


def knobs() -> Document:
    entity = [["tile_y", "sp", [-1, 4]], ["unroll", "ot", 1]]
    row = {"input": ["llvm", "mm", [["TENSOR", [16, 16], "float32"], 3], {}], "result": [[0.1], 0, 1.0, 12.0]}
    config = {"index": 3, "code_hash": None, "entity": entity}
    path = folder() / "log"

    def read(text: str) -> None:
        path.write_text(text)
        autotvm.apply_history_best(str(path))

    return lines(json.dumps({**row, "config": config, "version": 0.2, "tvm_version": "x"}), read)


def steps() -> Document:
    auto_scheduler.register_workload("fuzz.product", product, override=True)
    task, path = auto_scheduler.SearchTask(func="fuzz.product", args=(16,), target="llvm"), folder() / "log"
    state = task.compute_dag.get_init_state()
    made = state.split(2, state[2].iters[0], [4])
    state.vectorize(2, made[1])
    measured = auto_scheduler.MeasureInput(task, state), auto_scheduler.MeasureResult([0.1], 0, "", 0.2, 1)

    def read(text: str) -> None:
        path.write_text(text)
        auto_scheduler.ApplyHistoryBest(str(path))
        task.apply_best(str(path))

    return lines(auto_scheduler.measure_record.dump_record_to_string(*measured), read)


def tensors() -> Document:
    path = folder()
    tensor_cache.dump_tensor_cache({"a": np.ones((3, 4), "float32"), "b": np.arange(5)}, path)
    file = path / "tensor-cache.json"

    def read(text: str) -> None:
        file.write_text(text)
        tensor_cache.load_tensor_cache(path, weft.cpu())

    return lines(json.dumps(json.loads(file.read_text())), read)


def safetensors() -> Document:
    header = {"w": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}}
    path = folder() / "weights"

    def packed(description: Any) -> bytes:
        text = json.dumps(description).encode()
        return struct.pack("<Q", len(text)) + text + bytes(48)

    def read(data: bytes) -> None:
        path.unlink(missing_ok=True)  # the last one may be mapped still
        path.write_bytes(data)
        for stored in load_safetensors(path).values():
            stored.numpy()

    return packed(header), read, lambda rng: packed(mutated(header, rng))


def tuned() -> Document:
    record = {"workload": "w", "name": "n", "signature": "s", "default_us": 1.5, "trials": [[{"t": 1}, 0.5, "x", "m"]]}
    record["hardware"], path = tune.Hardware.of(weft.target.Target("llvm"))._asdict(), folder() / "tuned.json"

    def signed(entry: Any) -> bytes:
        check = zlib.crc32(json.dumps(entry, sort_keys=True).encode())
        return f'{{"format": "weft-tune", "version": 1}}\n{json.dumps({**entry, "check": check})}'.encode()

    def read(text: str) -> bool:
        path.write_text(text)
        return all(r.best is None or r.best.ratio > 0 for r in tune.JSONDatabase(path).get_all_tuning_records())

    data, quiet, _ = lines(signed(record).decode(), read)
    return data, quiet, lambda rng: signed(mutated(record, rng))


DOCUMENTS: dict[str, Callable[[], Document]] = {
    **{f.__name__: f for f in (traces, knobs, steps, tensors, tuned, safetensors)},
    "nodes": lambda: lines(ir.save_json(te.create_prim_func(product(8))), ir.load_json),
    "report": lambda: lines(Report([ProfileCall("a", 1.0, 2.0, "s", 0)], 3.0).json(), Report.from_json),
}
