"""States: primitives, their loops, replay on a schedule, and log files."""

import numpy as np

import weft
from tests.refusals import refuses
from weft import auto_scheduler, te
from weft.auto_scheduler.measure_record import dump_record_to_string, load_record_from_string
from weft.testing import auto_scheduler as workloads


def extents(state, stage):
    return [i.extent for i in state[stage].iters]


def run(dag, state, shapes):
    sch, tensors = dag.apply_steps_from_state(state)
    rng = np.random.default_rng(0)
    arrays = [weft.runtime.tensor(rng.standard_normal(s).astype("float32")) for s in shapes]
    weft.build(sch, tensors, "llvm")(*arrays)
    return [a.numpy() for a in arrays]


def test_splits_orders_and_annotations():
    tensors = workloads.matmul_auto_scheduler_test(512, 512, 512)
    c = tensors[-1]
    state = auto_scheduler.ComputeDAG(tensors).get_init_state()
    i, j, k = state[c].iters
    io, ii = state.split(c, i, [16])
    jo, ji = state.split(c, j, [8], False)
    assert extents(state, c) == [32, 16, 8, 64, 512]
    state.reorder(c, [io, jo, k, ji, ii])
    fused = state.fuse(c, [io, jo])
    assert fused.extent == 256 and fused.name == "i.0@j.0@"
    assert state.vectorize(c, ii) is state[c].iters[-1]
    assert "vectorize i.1" in str(state)


def test_a_tiled_product_computes_the_product():
    tensors = workloads.matmul_auto_scheduler_test(32, 32, 32)
    dag, c = auto_scheduler.ComputeDAG(tensors), tensors[-1]
    state = dag.get_init_state()
    local = state.cache_write(c, "local")
    i, j, k = state[local].iters
    step = len(state.transform_steps)
    i = state.split(local, i, [2, 4])
    j = state.split(local, j, [2, 8])
    state.reorder(local, [i[0], j[0], i[1], j[1], k, i[2], j[2]])
    state.vectorize(local, j[2])
    a = state.follow_split(c, state[c].iters[0], step, 1)
    b = state.follow_split(c, state[c].iters[2], step + 1, 1)
    state.reorder(c, [a[0], b[0], a[1], b[1]])
    state.compute_at(local, c, b[0])
    state.parallel(c, a[0])
    x, y, z = run(dag, state, [(32, 32)] * 3)
    np.testing.assert_allclose(z, x @ y, rtol=1e-4, atol=1e-4)
    assert extents(dag.infer_bound_from_state(state), local)[:2] == [1, 1]


def test_steps_as_python_make_the_same_loops():
    dag, state = workloads.get_tiled_matmul()
    text = dag.print_python_code_from_state(state)
    a, b, c = dag.tensors
    s = te.create_schedule(c.op)
    exec(text, {"s": s, "A": a, "B": b, "C": c, "te": te, "tuple": tuple})
    other, tensors = dag.apply_steps_from_state(state)
    shown = [str(weft.lower(x, tensors, simple_mode=True)) for x in (s, other)]
    assert shown[0] == shown[1]


def test_inlining():
    dag = auto_scheduler.ComputeDAG(workloads.conv2d_nchw_bn_relu_auto_scheduler_test(1, 8, 8, 3, 4, 3, 1, 1))
    state = dag.get_init_state()
    added = next(op for op in state.stage_ops if op.name == "Bn_add")
    state.compute_inline(added)
    assert state[added].compute_at == 1
    state.compute_root(added)
    assert state[added].compute_at == 0


def test_a_record_is_read_as_it_was_written():
    dag, state = workloads.get_tiled_matmul()
    key = auto_scheduler.make_workload_key(workloads.matmul_auto_scheduler_test, (512, 512, 512))
    task = auto_scheduler.SearchTask(compute_dag=dag, workload_key=key, target="llvm")
    inp = auto_scheduler.MeasureInput(task, state)
    res = auto_scheduler.MeasureResult([0.1], 0, "", 0.2, 1)
    line = dump_record_to_string(inp, res)
    assert '["SP", 2, 0, 512, [4, 8, 8], 1]' in line
    again, result = load_record_from_string(line)
    assert again.state == state and str(result) == str(res) and again.task.workload_key == key


def test_operations_and_what_is_refused():
    assert auto_scheduler.ComputeDAG(workloads.matmul_auto_scheduler_test(16, 16, 16)).flop_ct == 2 * 16**3
    assert len(auto_scheduler.ComputeDAG(workloads.parallel_matmul_auto_scheduler_test(16)).outputs) == 2
    refuses(ValueError, "one name", auto_scheduler.ComputeDAG, workloads.invalid_compute_definition())
    refuses(ValueError, "no workload", auto_scheduler.ComputeDAG, '["no such workload", 1]')
