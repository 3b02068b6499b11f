"""Schedules that tests of instructions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import IRModule
from weft.tir import PrimFunc
from weft.tir.schedule import Schedule


def mma_schedule(
    workload: PrimFunc,
    k_inner: int,
    in_dtype: str,
    b_transposed: bool,
    i_factors: Sequence[int | None],
    j_factors: Sequence[int | None],
    k_factors: Sequence[int | None],
    index_map_A: Callable[..., Any],
    index_map_B: Callable[..., Any],
    index_map_C: Callable[..., Any],
    ldmatrix_a_intrin: str,
    ldmatrix_b_intrin: str,
    mma_intrin: str,
    mma_fill_intrin: str,
    mma_store_intrin: str,
    shared_scope: str = "shared",
) -> Schedule:
    """Schedule ``C[i, j] += A[i, k] * B[k, j]``, or ``B[j, k]`` where `b_transposed`, for a warp's instructions.

    Parameters
    ----------
    k_inner : int
        The terms of an instruction's sum; it has 16 rows and columns.
    i_factors, j_factors : five numbers
        Tiles of 16 by blocks (``x``, ``y``), by warps, and in two loops of each warp; one may be None.
    k_factors : three numbers
        Loops over the terms: the outer ones fetch to shared memory and to registers.
    index_map_A, index_map_B, index_map_C : callable
        Where an element lies: its tile, the thread and the place in it.
    """
    sch = Schedule(IRModule({"main": workload}))
    block = sch.get_block("C")
    pairs = [sch.split(v, factors=[None, f]) for v, f in zip(sch.get_loops(block), (16, 16, k_inner), strict=True)]
    (i, i_tile), (j, j_tile), (k, k_tile) = pairs
    sch.reorder(i, j, k, i_tile, j_tile, k_tile)
    outer = sch.blockize(i_tile)
    i0, i1, i2, i3, i4 = sch.split(i, factors=i_factors)
    j0, j1, j2, j3, j4 = sch.split(j, factors=j_factors)
    k0, k1, k2 = sch.split(k, factors=k_factors)
    sch.reorder(i0, j0, i1, j1, j2, i2, k0, k1, i3, j3, k2, i4, j4)
    warp = sch.fuse(j2, i2)
    for loop, thread in ((sch.fuse(i0, j0), "blockIdx.x"), (sch.fuse(i1, j1), "blockIdx.y"), (warp, "threadIdx.y")):
        sch.bind(loop, thread)
    warps, lanes = (i_factors[2] or 1) * (j_factors[2] or 1), 16 if in_dtype == "int8" else 8
    for n in (0, 1):
        copy = sch.cache_read(outer, n, shared_scope)
        sch.compute_at(copy, k0)
        fused = sch.fuse(*sch.get_loops(copy)[-2:])
        _, y, x, vector = sch.split(fused, factors=[None, warps, 32, lanes])
        sch.bind(x, "threadIdx.x")
        sch.bind(y, "threadIdx.y")
        sch.vectorize(vector)
        sch.storage_align(copy, 0, axis=-2, factor=32, offset=8 if in_dtype == "float16" else 16)
    parts = [sch.cache_read(outer, n, "warp") for n in (0, 1)]
    for part in parts:
        sch.compute_at(part, k1)
    result = sch.cache_write(outer, 0, "warp")
    sch.reverse_compute_at(result, warp)

    def tiled(of: Any, height: int, width: int) -> Any:
        (a, a_tile), (b, b_tile) = (
            sch.split(v, factors=[None, f]) for v, f in zip(sch.get_loops(of)[-2:], (height, width), strict=True)
        )
        sch.reorder(a, b, a_tile, b_tile)
        return a_tile

    stored = tiled(result, 16, 16)
    sch.decompose_reduction(outer, sch.get_loops(outer)[3])
    loops = tiled(parts[0], 16, k_inner), tiled(parts[1], *((16, k_inner) if b_transposed else (k_inner, 16)))
    for of, place, index_map in (
        (parts[0], "write", index_map_A),
        (parts[1], "write", index_map_B),
        (result, "read", index_map_C),
    ):
        sch.transform_layout(of, (place, 0), index_map)
    sch.tensorize(loops[0], ldmatrix_a_intrin)
    sch.tensorize(loops[1], ldmatrix_b_intrin)
    sch.tensorize(sch.get_loops(block)[-3], mma_intrin)
    sch.tensorize(sch.get_loops(sch.get_block("C_init"))[-2], mma_fill_intrin)
    sch.tensorize(stored, mma_store_intrin)
    return sch
