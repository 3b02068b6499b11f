"""The machine that code is made for, as data: what it has, what that costs, and every size that rules compare with.

A :class:`Machine` is a plain description. Its fields say what a machine is; a field's default stands for what nobody
knows. Its properties are the thresholds that schedule rules and graph passes ask for, each with its derivation. Counts
that belong to an algorithm, not to a machine, stay with it, and so do the rough rates of the estimates in
``tir/schedule/explain.py``. ``Target.machine`` makes a description of a target's features and options; a rule takes a
target or a description (:func:`machine_of`). It is on a floor below the compiler, since all of that reads it.

Where a derivation says "measured", that was on a server core with 512-bit vectors, 48 KiB and 2 MiB of caches of its
own, and factors are such that this machine, whose numbers are the defaults, gets what was best there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine; sizes of caches count for one core, but the last level's, which all share."""

    features: frozenset[str] = frozenset()
    """Its instruction sets, by LLVM's names."""
    vector_bits: int = 128
    """Width of a vector register: where it is not known, what every 64-bit machine has."""
    vector_registers: int = 16
    matrix_tiles: bool = True
    """Whether its matrix tiles, if it has some, are to be used."""
    fma_per_cycle: int = 2
    """Vectors of multiply-adds that begin in a cycle."""
    fma_latency: int = 4
    """Cycles from the beginning of one to its result; an addition takes as long."""
    loads_per_cycle: int = 2
    """Vectors."""
    tile_product_cycles: int = 16
    """Cycles of a product of two matrix tiles."""
    tile_load_cycles: int = 24
    """Cycles of loading a tile from the second cache, which hide behind no product: measured."""

    l1_cache_bytes: int = 48 << 10
    """Of data."""
    l1_cache_ways: int = 12
    l2_cache_bytes: int = 2 << 20
    l3_cache_bytes: int = 32 << 20
    """What a process may count on: shared with other processes and, on hosted machines, other guests. Hosts with a
    last level of hundreds of MB were measured to keep no more than this."""
    cache_line_bytes: int = 64
    page_bytes: int = 4096
    l3_balance: int = 2
    """Multiply-adds of a core in the time in which it reads a byte from the last cache, measured."""
    memory_balance: int = 9
    """The same for a byte from memory. Bandwidth enters decisions only through this ratio."""

    cores: int = 8
    """Cores that a process may use."""
    wake_ns: int = 2048
    """Time that a task must take to be worth waking a thread, measured."""
    handover_ns: int = 384
    """Time that a task must take to be worth giving to a thread that is awake, measured."""
    work_per_ns: int = 8
    """What a core does in a nanosecond, in units of ``element_cost``."""
    stack_buffer_bytes: int = 16384
    """Size of one buffer that may lie on a thread's stack; deep recursion and small stacks of threads set it."""

    @property
    def machine(self) -> Machine:
        """The machine itself: a description may stand where a target does."""
        return self

    def lanes(self, bits: int) -> int:
        """How many numbers of a width a vector has."""
        return max(1, self.vector_bits // max(bits, 8))

    # --- instructions ---

    @property
    def scaled_lanes(self) -> tuple[int, ...]:
        """Lengths of float32 vectors that are multiplied by powers of two in one instruction."""
        return (4, 8, 16) if {"avx512f", "avx512vl"} <= self.features and self.vector_bits >= 512 else ()

    @property
    def dot_forms(self) -> tuple[tuple[str, str, str, int], ...]:
        """Sums of groups of narrow products that instructions give: types of the factors and of the sum, and lanes.

        One does it, or a few: AVX2 and AVX-512 multiply pairs of 16 bits, to which bytes widen. First operands that
        have 16 bits already are the better ones there.
        """
        f, wide = self.features, self.vector_bits >= 512
        forms: list[tuple[str, str, str, int]] = []
        if self.adds_four_bytes or (("avx512bw" if wide else "avx2") in f and self.vector_bits >= 256):
            lanes = 16 if wide and f & {"avx512vnni", "avx512bw"} else 8
            factors = ("uint8",) if self.adds_four_bytes else ("uint8", "int16")
            forms += [(a, "int8", "int32", lanes) for a in factors]
        if "avx512bf16" in f and wide:
            forms.append(("bfloat16", "bfloat16", "float32", 16))
        return tuple(forms)

    @property
    def byte_lanes(self) -> int:
        """Lanes of the widest instruction for dot products of bytes, 0 without one."""
        return max((form[3] for form in self.dot_forms if form[0] == "uint8" and self.adds_four_bytes), default=0)

    @property
    def adds_four_bytes(self) -> bool:
        """Whether one instruction multiplies bytes and adds four products."""
        f = self.features
        return "avxvnni" in f or ("avx512vnni" in f and ("avx512vl" in f or self.vector_bits >= 512))

    @property
    def tile_forms(self) -> tuple[tuple[str, str, str], ...]:
        """Products that matrix tiles compute: types of the factors and of the sum; float32 as parts of bfloat16."""
        if not self.matrix_tiles or self.vector_bits < 512:
            return ()
        floats = (("float32", "float32", "float32"), ("bfloat16", "bfloat16", "float32"))
        whole = (("uint8", "int8", "int32"), ("int8", "int8", "int32"))
        return (*(floats if "amx-bf16" in self.features else ()), *(whole if "amx-int8" in self.features else ()))

    @property
    def pair_channels(self) -> int:
        """Input channels that convolutions in bfloat16 have multiples of.

        Where there are tiles, which copy whole vectors of them, dot products have half the rate of float32: measured.
        """
        return 8 if ("bfloat16", "bfloat16", "float32") in self.tile_forms else 1

    def rows_together(self, dtype: str, rows: int) -> int:
        """Tell what number of rows packed weights of a type have a multiple of, so that tiles take all of them."""
        return 32 if dtype == "bfloat16" and rows > 32 and self.pair_channels > 1 else 1

    @property
    def masks_freely(self) -> bool:
        """Whether any instruction takes a mask for nothing, as with 512-bit vectors.

        Others do better with a shorter vector.
        """
        return self.vector_bits >= 512

    @property
    def panel_columns(self) -> int:
        """Columns of float32 weights that are packed together: two vectors, as register tiles have them."""
        return 2 * self.lanes(32)

    @property
    def unpacks_weights(self) -> bool:
        """Whether 28-bit weights are unpacked faster than memory brings 32-bit ones: from 256-bit vectors on."""
        return self.vector_bits >= 256

    @property
    def sums_at_once(self) -> int:
        """Vectors of sums that must not wait for each other to keep the multipliers busy: latency times rate."""
        return self.fma_latency * self.fma_per_cycle

    @property
    def product_elements_per_cycle(self) -> float:
        """Multiply-adds of float32 that a register tile does in a cycle: four fifths of the peak, measured."""
        return 0.8 * self.fma_per_cycle * self.lanes(32)

    # --- the first cache ---

    @property
    def far_rows(self) -> int:
        """Rows of register tiles over panels from memory.

        Rows that lie a multiple of 4 KiB apart share a set of the first cache: one of its lines is left to the panel.
        """
        return max(1, self.l1_cache_ways - 1)

    @property
    def single_stream_bytes(self) -> int:
        """Packed weights from which on a product with one row reads them as a single stream.

        They leave the first cache, and several streams at once are slower from the next one: 143 against 229 GB/s,
        measured at 4/3 of it.
        """
        return self.l1_cache_bytes * 4 // 3

    @property
    def attention_keys(self) -> int:
        """Keys that an attention looks at at a time.

        Their scores, for two vectors of queries, take half of the first cache. More than 192 gain nothing, measured.
        """
        return max(16, min(192, self.l1_cache_bytes // (4 * self.vector_bits // 8)))

    @property
    def attention_whole_keys(self) -> int:
        """Keys up to which all of them are looked at at once, when their number is constant: a third more."""
        return self.attention_keys * 4 // 3

    @property
    def prefetch_distance_bytes(self) -> int:
        """How far ahead streams of weights are asked for.

        64 lines, measured, and no more than a page, within which hardware follows by itself.
        """
        return min(64 * self.cache_line_bytes, self.page_bytes)

    # --- the second cache ---

    @property
    def lost_weight_bytes(self) -> int:
        """Packed weights from which on the second cache has lost them when they are used again: half of it."""
        return self.l2_cache_bytes // 2

    @property
    def resident_operand_bytes(self) -> int:
        """Second operands of products that stay in the second cache while rows stream by: 400 KB of 2 MiB, measured."""
        return self.l2_cache_bytes * 19 // 100

    @property
    def packed_rows_bytes(self) -> int:
        """Rows packed for matrix tiles that stay in the second cache while columns stream by, measured."""
        return self.l2_cache_bytes * 5 // 8

    @property
    def spread_rows_bytes(self) -> int:
        """Rows that a task of a grouped convolution spreads: a quarter of the second cache.

        More than 128 KiB gain nothing, measured.
        """
        return min(128 << 10, self.l2_cache_bytes // 4)

    # --- the last cache ---

    @property
    def streamed_output_bytes(self) -> int:
        """Outputs from this size on are written past the caches: what follows pushes them out of a quarter of it."""
        return self.l3_cache_bytes // 4

    @property
    def near_model_bytes(self) -> int:
        """Weights of a model that, transformed to up to four times their size, stay in the last cache."""
        return self.l3_cache_bytes // 4

    @property
    def flushing_bytes(self) -> int:
        """Constants that are read after a result is written, from which on no cache holds it at the end."""
        return self.l3_cache_bytes

    @property
    def cold_model_bytes(self) -> int:
        """Constants of a model from which on caches do not keep them from one run to the next.

        Activations take the last quarter of the cache.
        """
        return self.l3_cache_bytes * 3 // 4

    @property
    def memory_bound_bytes(self) -> int:
        """Weights of a model that surely come from memory in each run: twice the cache.

        Copies of a measurement's cold operands are as large together.
        """
        return 2 * self.l3_cache_bytes

    # --- threads ---

    @property
    def task_work(self) -> int:
        """Work of a task worth waking a thread for, in units of ``element_cost``."""
        return self.wake_ns * self.work_per_ns

    @property
    def light_task_work(self) -> int:
        """Work of a task worth giving to a thread that is awake: of a product, some 100 KB of weights."""
        return self.handover_ns * self.work_per_ns

    @property
    def parallel_step_products(self) -> int:
        """Multiply-adds of a step of a recurrent layer from which on its blocks run in parallel: eight tasks."""
        return 8 * self.task_work

    @property
    def local_buffer_bytes(self) -> int:
        """Size of a buffer of scope ``local``, which is meant for registers, that may lie on the stack."""
        return 4 * self.stack_buffer_bytes

    @property
    def frame_arena_bytes(self) -> int:
        """Size of an arena on the stack in functions that call themselves, a thousand calls deep."""
        return self.stack_buffer_bytes // 8

    def described(self) -> dict[str, Any]:
        """Return all fields by name, as plain data."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**found, "features": sorted(self.features)}


UNKNOWN = Machine()
"""What is assumed where nothing is known."""


class TargetLike(Protocol):
    """What says which machine code is for: a target, or a description."""

    @property
    def machine(self) -> Machine:
        """The description."""
        ...


def machine_of(target: TargetLike | None) -> Machine:
    """Return the machine that a target is; without one, that of which nothing is known."""
    return UNKNOWN if target is None else target.machine


# --- options of targets -----------------------------------------------------------------------------------------------

_SPELLED = {"vector_bits": "vector-width", "cores": "num-cores"}
OPTION_OF = {f.name: _SPELLED.get(f.name, f.name.replace("_", "-")) for f in fields(Machine) if f.type == "int"}
"""Field to the option of a target that sets it, a positive number: TVM's where TVM has one."""
OPTIONS = {**{option: field for field, option in OPTION_OF.items()}, "l2_cache_size_bytes": "l2_cache_bytes"}
"""Option to field; TVM's GPUs have one that is spelled another way."""


def option_fields(attrs: Mapping[str, Any]) -> dict[str, int]:
    """Return the fields that a target's options set."""
    return {OPTIONS[name]: int(value) for name, value in attrs.items() if name in OPTIONS}


# --- this machine -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _caches(cpu: int) -> dict[str, int]:
    """Read the caches of a CPU as Linux lists them; what it does not say is left out."""
    found: dict[str, int] = {}
    for place in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        with suppress(OSError, ValueError):
            level, kind = (place / "level").read_text().strip(), (place / "type").read_text().strip()
            size = (place / "size").read_text().strip()
            if kind == "Instruction" or level not in ("1", "2", "3") or not size.endswith("K"):
                continue
            found[f"l{level}_cache_bytes"] = int(size[:-1]) << 10
            if level == "1":
                found["l1_cache_ways"] = int((place / "ways_of_associativity").read_text())
                found["cache_line_bytes"] = int((place / "coherency_line_size").read_text())
    return {name: n for name, n in found.items() if n > 0}


def host_facts() -> dict[str, int]:
    """Return the fields that this machine says of itself, without its instructions.

    Of the last cache no more counts than the default, which says why.
    """
    cpus = os.sched_getaffinity(0)
    facts = {"page_bytes": os.sysconf("SC_PAGESIZE"), **_caches(min(cpus)), "cores": len(cpus)}
    if "l3_cache_bytes" in facts:
        facts["l3_cache_bytes"] = min(facts["l3_cache_bytes"], UNKNOWN.l3_cache_bytes)
    return facts
