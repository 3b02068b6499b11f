"""A schedule's record, run again as Python, from JSON and directly, makes the same function."""

import json
import random

import pytest

from tests.refusals import refuses
from tests.tir.schedule.test_primitives import check_matmul, matmul
from weft import error, ir, tir
from weft.script import tir as T
from weft.tir.schedule import BlockRV, Instruction, InstructionKind, LoopRV, Trace

SHAPE = (12, 10, 8)


def every_way(sch, source):
    """Replay a schedule in each way that there is."""
    direct = tir.Schedule(source)
    sch.trace.apply_to_schedule(direct)
    saved = tir.Schedule(source)
    Trace.apply_json_to_schedule(json.loads(json.dumps(sch.trace.as_json())), saved)
    written = tir.Schedule(source)
    exec("\n".join(sch.trace.as_python()), {"sch": written, "T": T})
    for other in (direct, saved, written):
        ir.assert_structural_equal(other.func, sch.func)
        assert str(other.trace) == str(sch.trace)


def random_schedule(seed):
    """Apply random primitives to a product with a ReLU; what is refused leaves the schedule as it was."""
    rng = random.Random(seed)
    sch = tir.Schedule(matmul(*SHAPE), seed=seed)
    for _ in range(8):
        block = sch.get_block(rng.choice(["C", "D"]))
        loops = sch.get_loops(block)
        loop = rng.choice(loops)
        try:
            match rng.randrange(9):
                case 0:
                    sch.split(loop, rng.choice([[None, 2], [3, None], [None, 4, 2]]))
                case 1:
                    sch.split(loop, sch.sample_perfect_tile(loop, 2, 4))
                case 2 if len(loops) > 1:
                    at = rng.randrange(len(loops) - 1)
                    sch.fuse(loops[at], loops[at + 1])
                case 3 if len(loops) > 1:
                    sch.reorder(*rng.sample(loops, 2))
                case 4:
                    rng.choice([sch.parallel, sch.vectorize, sch.unroll])(loop)
                case 5:
                    sch.cache_read(block, 0, "global")
                case 6:
                    sch.reverse_compute_at("D", rng.choice(sch.get_loops("C")))
                case 7:
                    sch.transform_layout("C", ("write", 0), lambda i, j: (j // 2, i, j % 2))
                case 8:
                    sch.annotate(loop, "note", sch.sample_categorical([1, 2, 3], [0.2, 0.5, 0.3]))
        except (error.ScheduleError, error.InvalidArgument):
            pass
    return sch


@pytest.mark.parametrize("seed", range(25))
def test_replay(seed):
    sch = random_schedule(seed)
    every_way(sch, matmul(*SHAPE))
    check_matmul(sch.func, *SHAPE)


def test_decisions_are_kept():
    sch = tir.Schedule(matmul(*SHAPE), seed=3)
    i, *_ = sch.get_loops("C")
    factors = sch.sample_perfect_tile(i, 3)
    sch.split(i, factors)
    assert f"decision={factors}" in str(sch.trace)
    every_way(sch, matmul(*SHAPE))


def test_a_trace_of_another_function():
    sch = tir.Schedule(matmul(*SHAPE))
    sch.split(sch.get_loops("C")[2], [None, 2])
    other = tir.Schedule(matmul(*SHAPE, relu=False))
    sch.trace.apply_to_schedule(other)
    check_matmul(other.func, *SHAPE, relu=False)
    relu = tir.Schedule(matmul(*SHAPE))
    relu.get_block("D")
    refuses(error.ScheduleError, "no block 'D'", relu.trace.apply_to_schedule, tir.Schedule(matmul(*SHAPE, relu=False)))


def test_expressions_of_loop_variables():
    sch = tir.Schedule(matmul(*SHAPE))
    i, j, _ = sch.get_loops("C")
    sch.specialize(j, i.var < 5)
    sch.split(j, [None, tir.min(i.var + 1, 4)])
    assert ".var < 5)" in str(sch.trace)
    every_way(sch, matmul(*SHAPE))
    check_matmul(sch.func, *SHAPE)


def test_index_map_in_text():
    sch = tir.Schedule(matmul(*SHAPE))
    sch.transform_layout("C", "A", lambda i, k: (k // 4, i, k % 4))
    assert "lambda i, k: (k // 4, i, k % 4,)" in str(sch.trace)
    every_way(sch, matmul(*SHAPE))


def test_simplified_leaves_out_what_nothing_uses():
    sch = tir.Schedule(matmul(*SHAPE))
    sch.get_consumers("C")
    sch.get_loops("D")
    sch.split(sch.get_loops("C")[0], [None, 5])
    short = sch.trace.simplified()
    assert [i.kind.name for i in short.insts] == ["GetSBlock", "GetLoops", "Split"]
    other = tir.Schedule(matmul(*SHAPE))
    short.apply_to_schedule(other, remove_postproc=True)
    ir.assert_structural_equal(other.func, sch.func)
    check_matmul(other.func, *SHAPE)


@pytest.mark.parametrize("seed", range(6))
def test_simplified_replays(seed):
    sch = random_schedule(seed)
    other = tir.Schedule(matmul(*SHAPE))
    exec("\n".join(sch.trace.simplified().as_python()), {"sch": other})
    ir.assert_structural_equal(other.func, sch.func)


def test_postprocessing_can_be_left_out():
    sch = tir.Schedule(matmul(*SHAPE))
    sch.split(sch.get_loops("C")[0], [None, 5])
    before = sch.func
    sch.enter_postproc()
    sch.parallel(sch.get_loops("C")[0])
    short, whole = tir.Schedule(matmul(*SHAPE)), tir.Schedule(matmul(*SHAPE))
    sch.trace.apply_to_schedule(short, remove_postproc=True)
    ir.assert_structural_equal(short.func, before)
    every_way(sch, matmul(*SHAPE))
    sch.trace.simplified(remove_postproc=True).apply_to_schedule(whole)
    ir.assert_structural_equal(whole.func, before)


def test_references_know_what_is_around():
    sch = tir.Schedule(matmul(*SHAPE))
    block = sch.get_block("C")
    i, _, k = sch.get_loops(block)
    sref = sch.get_sref(block)
    assert sch.get(sref) is sch.get(block) is sref.stmt
    assert sref.parent.same_as(sch.get_sref(k)) and sref.parent.parent.parent.same_as(sch.get_sref(sch.get(i)))
    assert sch.get_sref(i).parent.stmt is sch.get(sch.get_block("root")) and sch.get_sref(i).parent.parent is None
    old = sch.get(k)
    sch.split(k, [None, 2])
    assert sch.get_sref(old) is None
    assert sch.state.get_sref(sch.get(block)).same_as(sch.get_sref(block)) and sch.state.get_sref(old) is None
    sch.remove_rv(block)
    for scheduled in (sch, sch.copy()):
        refuses(IndexError, "forgotten BlockRV", scheduled.get, block)
    assert sch.get(sch.get_block("C")).name_hint == "C"
    assert sch.get_loops("C")[0].var is i.var


def test_annotations_that_are_mappings_are_recorded():
    sch = tir.Schedule(matmul(*SHAPE))
    loop = sch.get_loops("C")[0]
    sch.annotate(loop, "options", {"sizes": [0, "b", {"deep": 1.5}], "key": "l1"})
    sch.annotate("C", "empty", {})
    assert sch.get(loop).annotations["options"]["sizes"][1] == "b"
    every_way(sch, matmul(*SHAPE))
    sch.unannotate(loop, "options")
    every_way(sch, matmul(*SHAPE))


def test_options_of_a_schedule():
    refuses(error.InvalidArgument, "unknown debug_mask", tir.Schedule, matmul(*SHAPE), debug_mask="some")
    with pytest.raises(error.InvalidArgument, match="unknown error_render_level"):
        tir.Schedule(matmul(*SHAPE), error_render_level="loud")
    for level, message in (("fast", "get_block: there is no block 'X'"), ("none", "get_block: refused")):
        with pytest.raises(error.ScheduleError) as caught:
            tir.Schedule(matmul(*SHAPE), debug_mask="all", error_render_level=level).get_block("X")
        assert caught.value.what == message and caught.value.found is None
    sch = tir.Schedule(matmul(*SHAPE), seed=7, debug_mask="all")
    sch.fuse(*sch.get_loops("D"))
    draws = [sch.sample_categorical(range(9), [1] * 9) for _ in range(20)]
    sch.seed(7)
    assert draws == [sch.sample_categorical(range(9), [1] * 9) for _ in range(20)]
    assert sch.fork_seed() != sch.fork_seed() and sch.func_working_on.name_hint == "main"
    other = sch.copy()
    other.parallel(other.get_loops("D")[0])
    assert len(other.trace) == len(sch.trace) + 3
    check_matmul(other.func, *SHAPE)


def test_what_was_drawn_can_be_decided_otherwise():
    """Factors reach the split that uses them, by a provider and in a changed trace, and the function follows."""
    sch = tir.Schedule(matmul(*SHAPE), seed=3)
    i, *_ = sch.get_loops("C")
    sch.split(i, sch.sample_perfect_tile(i, 2))
    drew = sch.trace.insts[2]
    assert [drew.kind.name, drew.kind.is_pure, len(drew.inputs), drew.attrs] == ["SamplePerfectTile", True, 1, [2, 16]]
    provided, changed, fresh = (tir.Schedule(matmul(*SHAPE), seed=5) for _ in range(3))
    sch.trace.apply_to_schedule(provided, decision_provider=lambda inst, inputs, attrs, d: [6, 2] if d else None)
    sch.trace.with_decision(drew, [6, 2]).apply_to_schedule(changed)
    for other in (provided, changed):
        assert [other.get(loop).extent.value for loop in other.get_loops("C")[:2]] == [6, 2]
        check_matmul(other.func, *SHAPE)
    Trace(sch.trace.insts).apply_to_schedule(fresh)
    assert fresh.trace.decisions and sch.trace.get_decision(drew) == sch.trace.decisions[drew]
    check_matmul(fresh.func, *SHAPE)


def test_a_trace_made_by_hand():
    block, loops = BlockRV(), [LoopRV() for _ in range(3)]
    split = Instruction(
        InstructionKind.get("Split"), [loops[0], None, tir.const(4)], [tir.const(True)], [LoopRV(), LoopRV()]
    )
    assert (
        str(split) == "_, _ = sch.split(loop=_, factors=[None, 4], preserve_unit_iters=True, disable_predication=False)"
    )
    trace = Trace([Instruction(InstructionKind.get("GetBlock"), [], ["C", "main"], [block])])
    trace.append(Instruction(InstructionKind.get("GetLoops"), [block], [], loops))
    trace.append(split)
    assert (
        trace.insts[1].inputs[0].same_as(block)
        and trace.as_python()[0] == 'b0 = sch.get_sblock(name="C", func_name="main")'
    )
    assert (
        trace.as_json()[0][2] == ["Split", ["l1", "None", 4], [True, False], ["l4", "l5"]] and trace.as_json()[1] == []
    )
    sch, other = tir.Schedule(matmul(*SHAPE)), tir.Schedule(matmul(*SHAPE))
    trace.apply_to_schedule(sch)
    other.split(other.get_loops("C")[0], [None, 4])
    ir.assert_structural_equal(sch.func, other.func)
    assert trace.pop() is split and len(trace) == 2 and str(Trace()).endswith("  pass") and Trace().pop() is None


def test_instructions_that_are_none():
    refuses(error.InvalidArgument, "no primitive is called 'Sort'", InstructionKind.get, "Sort")
    with pytest.raises(error.ScheduleError, match="ComputeInline takes other arguments"):
        Instruction(InstructionKind.get("ComputeInline"), [BlockRV(), 1], [], [])
    refuses(error.ScheduleError, "Bind lacks arguments", Instruction, InstructionKind.get("Bind"), [LoopRV()], [], [])
    sch = tir.Schedule(matmul(*SHAPE))
    with pytest.raises(error.ScheduleError, match="saved in another form"):
        Trace.apply_json_to_schedule([["get_block", ["C"], {}, 1, None]], sch)
    with pytest.raises(error.ScheduleError, match="nothing in it returned"):
        Trace.apply_json_to_schedule([[["GetLoops", ["b0"], [], ["l1"]]], []], sch)


def test_buffers_are_recorded_by_their_places():
    """A trace is for functions that have the same buffers, not these."""
    sch = tir.Schedule(matmul(*SHAPE))
    block = sch.get_block("C")
    sch.cache_read(block, sch.get(block).reads[1].buffer, "global")
    sch.set_scope(block, sch.get(block).writes[0].buffer, "local")
    sch.transform_layout(block, sch.get(block).writes[0].buffer, lambda i, j: (j, i))
    every_way(sch, matmul(*SHAPE))
