"""References to blocks and loops: what they refer to after a replacement, and what holds of blocks."""

from tests.refusals import refuses
from weft import arith, error, ir, tir
from weft.arith.int_set import neg_inf, pos_inf, union_lower_bound
from weft.script import tir as T
from weft.tir.analysis import blocks_in
from weft.tir.schedule import CachedFlags, DepKind


@T.prim_func
def chain(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8, 8))
    for i in range(8):
        for j in range(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)


@T.prim_func
def late(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.if_then_else(vi < 7, B[vi + 1], T.float32(0))


def of(state, name):
    func = state.mod["main"]
    return state.get_sref(next(b for b in [func.body.block, *blocks_in(func.body.block.body)] if b.name_hint == name))


def test_flags():
    s = tir.ScheduleState(chain, debug_mask="all")
    assert all(s._get_cached_flags(of(s, n)) == CachedFlags(True, True, True) for n in ("B", "C", "root"))
    s = tir.ScheduleState(late)
    assert not s._get_cached_flags(of(s, "C")).region_cover
    assert not s._get_cached_flags(of(s, "root")).stage_pipeline


def test_dependencies():
    s = tir.ScheduleState(chain)
    scope = s.get_block_scope(of(s, "root"))
    (dep,) = scope.get_deps_by_src(of(s, "B"))
    assert (dep.kind, dep.dst.same_as(of(s, "C"))) == (DepKind.RAW, True)
    assert scope.get_deps_by_dst(of(s, "B")) == []
    info = tir.BlockDependenceInfo(chain)  # which knows blocks alone, so that a parent is the block around
    assert info.get_block_scope(of(info, "B").parent).get_deps_by_src(of(info, "B"))[0].dst is of(info, "C")


def test_replaced_loops_and_blocks():
    s = tir.ScheduleState(ir.IRModule({"main": chain, "other": late}))
    outer = of(s, "root").stmt.body
    first, root = s.get_sref(outer), of(s, "root")
    block, kept = of(s, "B"), of(s, "C")
    wide = tir.For(outer.loop_var, 0, 8, tir.ForKind.PARALLEL, outer.body.seq[1])
    s.replace(first, wide)
    assert first.stmt is wide and root.stmt is s.mod["main"].body.block
    assert block.stmt is None and kept.stmt is of(s, "C").stmt
    assert s.mod["other"] is late and chain.body.block.body is outer
    refuses(error.InvalidArgument, "nothing in the module", s.replace, block, wide)
    refuses(error.InvalidArgument, "takes the place", s.replace, kept, wide)


def test_references_go_on_to_the_blocks_that_are_named():
    s = tir.ScheduleState(chain)
    old = of(s, "B")
    new = tir.Block((), (), (), "new", tir.Evaluate(0))
    s.replace(old, new, {old.stmt: new})
    assert old.stmt is new and s.get_sref(new) is old


def test_union_of_what_is_covered():
    below, above = arith.IntervalSet(neg_inf(), 0), arith.IntervalSet(1, pos_inf())
    whole = union_lower_bound([below, above, arith.IntervalSet(pos_inf(), neg_inf())])
    assert whole.is_everything()
    assert union_lower_bound([arith.IntervalSet(0, 3), arith.IntervalSet(5, 9)]).max_value.value == 3
    assert union_lower_bound([arith.IntervalSet(0, 3), arith.IntervalSet(4, 9)]).max_value.value == 9
