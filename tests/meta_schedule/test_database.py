"""Databases of traces: what they keep, by what a module computes, and files."""

import resource

import pytest

import weft
from tests.refusals import refuses
from weft import meta_schedule, te, tir, tune
from weft import meta_schedule as ms
from weft.support.tar import tar
from weft.tune import log


def product(n=16, name="C"):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)
    return te.create_prim_func([a, b, c])


def split(func, factor, block="C"):
    sch = tir.Schedule(func)
    i, *_ = sch.get_loops(sch.get_block(block))
    sch.split(i, [None, factor])
    return sch


def record(database, func, factor, seconds):
    workload = database.commit_workload(weft.IRModule({"main": func}))
    args = ms.arg_info.ArgInfo.from_prim_func(func)
    return meta_schedule.TuningRecord(split(func, factor).trace, workload, seconds, weft.target.Target("llvm"), args)


@pytest.fixture(params=["memory", "json"])
def database(request, tmp_path):
    return ms.database.create(request.param, **({"work_dir": tmp_path} if request.param == "json" else {}))


def test_the_fastest_record_is_found(database):
    func = product()
    for factor, seconds in ((2, [3.0, 5.0]), (4, [1.0]), (8, [2.0])):
        database.commit_tuning_record(record(database, func, factor, seconds))
    mod = weft.IRModule({"main": func})
    workload = database.commit_workload(mod)
    assert [r.run_secs for r in database.get_top_k(workload, 2)] == [[1.0], [2.0]]
    assert len(database) == 3 and database.has_workload(mod)
    assert not database.has_workload(weft.IRModule({"main": product(8)}))
    sch = database.query_schedule(mod, weft.target.Target("llvm"))
    weft.ir.assert_structural_equal(sch.mod, split(func, 4).mod)
    refuses(ValueError, "count", database.get_top_k, workload, -1)


def test_blocks_may_have_other_names(database):
    database.commit_tuning_record(record(database, product(), 4, [1.0]))
    sch = database.query_schedule(weft.IRModule({"main": product(name="D")}), weft.target.Target("llvm"))
    weft.ir.assert_structural_equal(sch.mod, split(product(name="D"), 4, "D").mod)


def test_files_are_read_again(tmp_path):
    database = ms.database.JSONDatabase(work_dir=tmp_path)
    database.commit_tuning_record(record(database, product(), 4, [1.0]))
    again = ms.database.JSONDatabase(tmp_path / "database_workload.json", tmp_path / "database_tuning_record.json")
    (found,) = again.get_all_tuning_records()
    assert found.run_secs[0].value == 1.0 and str(found.target).startswith("llvm")
    assert str(found.trace) == str(split(product(), 4).trace)
    assert [a.as_json() for a in found.args_info] == [["TENSOR", "float32", [16, 16]]] * 3
    refuses(ValueError, "no such database", ms.database.JSONDatabase, work_dir=tmp_path / "none", allow_missing=False)


def test_several_writers_of_one_folder(tmp_path):
    sizes = {n: ms.database.JSONDatabase(work_dir=tmp_path) for n in (8, 16, 32)}
    for n, database in reversed(sizes.items()):
        database.commit_tuning_record(record(database, product(n), 4, [float(n)]))
    again = ms.database.JSONDatabase(work_dir=tmp_path)
    for n in sizes:
        found = again.query_tuning_record(weft.IRModule({"main": product(n)}), weft.target.Target("llvm"))
        assert found.run_secs == [float(n)]


def test_a_record_that_was_cut_off_costs_itself_alone(tmp_path):
    path = tmp_path / "database_tuning_record.json"
    database = ms.database.JSONDatabase(work_dir=tmp_path)
    for seconds in (1.0, 2.0, 3.0):
        path.write_bytes(path.read_bytes()[:-9])  # the process was killed while it wrote
        database.commit_tuning_record(record(database, product(), 4, [seconds]))
    with pytest.warns(RuntimeWarning, match="left out 2 records that cannot be read\n  line 1: .*JSONDecodeError"):
        assert [r.run_secs for r in ms.database.JSONDatabase(work_dir=tmp_path).records] == [[3.0]]


def test_a_disk_that_is_full_leaves_the_log_as_it_was(tmp_path):
    path = tmp_path / "log"
    with log.appending(path) as write:
        write("one\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(tune.DatabaseError, match="as it was"), log.appending(path) as write:
            write("x" * 200)
        refuses(OSError, "a.tar", tar, tmp_path / "a.tar", [__file__])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "one\n" and list(tmp_path.iterdir()) == [path]


def test_databases_together():
    slow, fast = ms.database.MemoryDatabase(), ms.database.MemoryDatabase()
    slow.commit_tuning_record(record(slow, product(), 2, [2.0]))
    fast.commit_tuning_record(record(fast, product(), 4, [1.0]))
    mod, target = weft.IRModule({"main": product()}), weft.target.Target("llvm")
    union, ordered = ms.database.UnionDatabase(slow, fast), ms.database.OrderedUnionDatabase(slow, fast)
    assert union.query_tuning_record(mod, target).run_secs == [1.0]
    assert ordered.query_tuning_record(mod, target).run_secs == [2.0]
    pruned = ms.database.MemoryDatabase()
    fast.dump_pruned(pruned)
    assert len(pruned) == 1
    with union:
        assert ms.Database.current() is union


def test_schedules_of_a_function():
    database = ms.database.create(lambda sch: sch.compute_inline(sch.get_block("none")) if False else True)
    found = database.query_tuning_record(weft.IRModule({"main": product()}), weft.target.Target("llvm"))
    assert isinstance(found.workload, meta_schedule.Workload) and len(found.trace) == 0
