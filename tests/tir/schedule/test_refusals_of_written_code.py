"""Functions written by hand, whose blocks share loops and buffers: what would change the result is refused."""

import random

import pytest

from tests.fuzz.schedules import PROGRAMS
from tests.tir.schedule.test_more_primitives import same
from weft import error, tir


def parallel_then_fuse(s):
    c, k = s.get_loops("M")
    s.parallel(c)
    s.fuse(c, k)


def part_of_a_maker(s):
    _, last = s.loop_partition(s.get_loops("R")[0], [None, 1])
    s.reverse_compute_at("Y", last)


def pad_an_update(s):
    s.decompose_reduction("C", s.get_loops("C")[0])
    s.pad_einsum("C_update", [4, 4, 5])


def again_for_each_reader(s):
    s.compute_at("S", s.get_loops("Y")[0])
    s.decompose_reduction("S", s.get_loops("S")[0])


def bound(name, primitive, *args):
    def apply(s):
        loop = s.get_loops(name)[-1]
        s.bind(loop, "threadIdx.x")
        getattr(s, primitive)(loop, *args)

    return apply


def fuse_noted(s):
    loops = s.get_loops("A")
    s.annotate(loops[1], "note", 1)
    s.fuse(*loops)


CASES = {
    "reorder: the iterations are not known": ("squares", lambda s: s.reorder(*s.get_loops("S")[::-1])),
    "rfactor: the loops are not known to run": ("squares", lambda s: s.rfactor(s.get_loops("S")[1])),
    "parallel: the iterations are not known": ("crossed", lambda s: s.parallel(s.get_loops("Z")[0])),
    "vectorize: the iterations are not known": ("shrinking", lambda s: s.vectorize(s.get_loops("A")[0])),
    "parallel: 'C' uses elements of 'Y' that other": ("steps", lambda s: s.parallel(s.get_loops("B")[0])),
    "cache_write: the block reads 'Z'": ("crossed", lambda s: s.cache_write("Z", 0, "global")),
    "decompose_reduction: the block is not a whole": (
        "crossed",
        lambda s: s.decompose_reduction("S", s.get_loops("S")[2]),
    ),
    "rfactor: the block is not a reduction": ("crossed", lambda s: s.rfactor(s.get_loops("S")[2])),
    "compute_at: the block is neither a complete": ("shrinking", lambda s: s.compute_at("A", s.get_loops("E")[0])),
    "compute_inline: 'B' is reached by its address": ("pointers", lambda s: s.compute_inline("A")),
    "reindex: 'B' is reached": ("pointers", lambda s: s.reindex("P", ("read", 0))),
    "transform_layout: 'B' is reached": ("pointers", lambda s: s.transform_layout("A", "B", lambda i, j: (j, i))),
    "storage_align: 'B' is reached": ("pointers", lambda s: s.storage_align("A", 0, 0, 8, 1)),
    "cache_read: there is no storage scope 'fast'": ("halves", lambda s: s.cache_read("L", 0, "fast")),
    "set_scope: there is no storage scope 'fast'": ("strided", lambda s: s.set_scope("A", 0, "fast")),
    "fuse: the notes note of an inner loop": ("two_stores", fuse_noted),
    "rfactor: the loop is thread_binding": ("total", bound("S", "rfactor")),
    "loop_partition: the loop is bound": ("two_stores", bound("A", "loop_partition", [2, None])),
    "decompose_reduction: the loops compute the same elements several times": ("total", again_for_each_reader),
    "transform_block_layout: .* not known to be invertible": (
        "total",
        lambda s: s.transform_block_layout("S", lambda i, j: (i * 2, j)),
    ),
    "cache_write: several blocks write": ("scatter", lambda s: s.cache_write("S", 0, "global")),
    "cache_write: the block reads 'Y', which it writes": ("prefix", lambda s: s.cache_write("P", 0, "global")),
    "cache_write: several blocks": ("halves", lambda s: s.cache_write("L", 0, "global")),
    "fuse: the loop feeds 'v_k'": ("total", parallel_then_fuse),
    "rfactor: the range of a loop": ("triangle", lambda s: s.rfactor(s.get_loops("S")[1])),
    "blockize: the range of a loop depends on another": ("triangle", lambda s: s.blockize(s.get_loops("S")[1])),
    "pad_einsum: the block is no whole reduction": ("matmul", pad_an_update),
    "pad_einsum: the loops are scheduled": ("triangle", lambda s: s.pad_einsum("S", [4, 1])),
    "blockize: the range of a loop": ("triangle", lambda s: s.blockize(s.get_loops("S")[0])),
    "reverse_compute_at: the loop runs after": (
        "overwritten",
        lambda s: s.reverse_compute_at("B", s.get_loops("C")[0]),
    ),
    "reverse_compute_at: the block also reads what 'R' makes": ("argmax", part_of_a_maker),
    "reindex: 'B' is written in the same loop nest": ("one_nest", lambda s: s.reindex("B", ("read", 0))),
    "reindex: the block touches 'X' under a condition": ("conv", lambda s: s.reindex("P", "X")),
    "reindex: the block does not make": ("halves", lambda s: s.reindex("L", ("write", 0))),
}


@pytest.mark.parametrize("message", CASES)
def test_refused(message):
    name, apply = CASES[message]
    func = PROGRAMS[name](random.Random(5))
    sch = tir.Schedule(func)
    with pytest.raises(error.ScheduleError, match=message):
        apply(sch)
    same(sch, func, 1)


@pytest.mark.parametrize(
    ("how", "kinds"), [("parallel", "PSS"), ("vectorize", "SSV"), ("unroll", "UUU"), (None, "SSS")]
)
def test_the_parts_of_a_split_loop(how, kinds):
    sch = tir.Schedule(PROGRAMS["where"](random.Random(0)))
    loop = sch.fuse(*sch.get_loops("A"))
    if how:
        getattr(sch, how)(loop)
    sch.annotate(loop, "note", 1)
    parts = [sch.get(p) for p in sch.split(loop, [None, 2, 3])]
    names = {"P": tir.ForKind.PARALLEL, "S": tir.ForKind.SERIAL, "V": tir.ForKind.VECTORIZED, "U": tir.ForKind.UNROLLED}
    assert [p.kind for p in parts] == [names[k] for k in kinds]
    assert [p.annotations.get("note") for p in parts] == [1, None, None]
