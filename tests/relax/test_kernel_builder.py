"""Kernels compiled in processes beside this one: the same code, and this process steps in where they fail."""

import functools
import os

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import model
from weft import error, ir, relax, target, te, tir, tune
from weft.relax.kernel_builder import CompiledKernel, KernelJob, compile_kernel_jobs, compile_scheduled

TARGET = target.Target("llvm")
RECORDS = tune.Tuned(None, TARGET)


def scaled(factor: int) -> tir.PrimFunc:
    x = te.placeholder((64 + factor,), name="x")
    return te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] * float(factor), name="y")])


def jobs(n: int) -> list[KernelJob]:
    return [KernelJob(f"k{i}", scaled(i), "internal") for i in range(n)]


def here(job: KernelJob) -> CompiledKernel:
    return compile_scheduled(job.func, job.name, TARGET, job.linkage, RECORDS)


@pytest.fixture
def two_processes(monkeypatch):
    monkeypatch.setenv("WEFT_COMPILE_PROCESSES", "2")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def compiled(todo: list[KernelJob], compile_here=here) -> tuple[dict[str, CompiledKernel], list[str]]:
    made: dict[str, CompiledKernel] = {}
    by_this_process: list[str] = []

    def counted(job: KernelJob) -> CompiledKernel:
        by_this_process.append(job.name)
        return compile_here(job)

    compile_kernel_jobs(todo, counted, TARGET, RECORDS, lambda j, code: made.update({j.name: code}), plain=True)
    return made, by_this_process


def waiting_for_it(monkeypatch):
    """Let this process take nothing from the queue, so that the other one does all."""
    monkeypatch.setattr(relax.kernel_builder, "_threads_here", lambda jobs, cores, beside: 0)


def test_a_process_beside_makes_the_same_code_and_record(two_processes, monkeypatch):
    waiting_for_it(monkeypatch)
    todo = jobs(9)
    made, by_this_process = compiled(todo)
    assert by_this_process == []
    assert made == {job.name: here(job) for job in todo}


def test_this_process_works_too(two_processes):
    todo = jobs(12)
    made, by_this_process = compiled(todo)
    assert made.keys() == {job.name for job in todo}
    assert by_this_process


@pytest.mark.parametrize("program", ["import sys; sys.exit(3)", "print('not a reply')", "raise SystemExit"])
def test_a_process_that_ends_leaves_its_kernels_to_this_one(two_processes, monkeypatch, tmp_path, program):
    waiting_for_it(monkeypatch)
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(relax.kernel_builder, "_PROGRAM", str(tmp_path / "program.py"))
    todo = jobs(9)
    made, by_this_process = compiled(todo)
    assert made == {job.name: here(job) for job in todo}
    assert len(by_this_process) == 9


def test_what_fails_there_fails_here_with_the_reason(two_processes):
    todo = jobs(9)

    def refuse(job: KernelJob) -> bytes:
        raise error.CodegenError(f"no code for {job.name}")

    refuses(error.CodegenError, "no code for k", compiled, todo, refuse)


def test_few_kernels_are_compiled_here(two_processes):
    todo = jobs(7)
    made, by_this_process = compiled(todo)
    assert len(by_this_process) == 7
    assert len(made) == 7


def test_a_module_built_with_a_process_beside(two_processes, tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    functions = {f"k{i}": scaled(i).with_attr("global_symbol", f"k{i}") for i in range(10)}
    module = relax.vm_build.compile_kernels(ir.IRModule(functions), TARGET)
    assert module is not None
    for i in (0, 3, 9):
        x = weft.runtime.tensor(np.arange(64 + i, dtype="float32"))
        y = weft.runtime.tensor(np.zeros(64 + i, "float32"))
        module[f"k{i}"](x, y)
        assert np.array_equal(y.numpy(), np.arange(64 + i, dtype="float32") * i)


def chain(n: int) -> ir.IRModule:
    return model(lambda x: functools.reduce(relax.op.add, [x] * n, x), (4,))


def test_a_process_that_was_started_ahead_is_used(two_processes, monkeypatch):
    waiting_for_it(monkeypatch)
    with relax.kernel_builder.processes_ahead(chain(90), TARGET):
        (ahead,) = relax.kernel_builder._ahead
        pid = ahead.start().pid
        used = []
        monkeypatch.setattr(relax.kernel_builder, "_new_process", lambda: used.append("another"))
        made, by_this_process = compiled(jobs(9))
        assert len(made) == 9 and not by_this_process and not used
        assert relax.kernel_builder._ahead == []
    refuses(ProcessLookupError, "", os.kill, pid, 0)


def test_a_process_that_was_started_for_nothing_ends(two_processes):
    with relax.kernel_builder.processes_ahead(chain(3), TARGET):
        assert relax.kernel_builder._ahead == []  # so few kernels are compiled here
    with relax.kernel_builder.processes_ahead(chain(90), TARGET):
        (ahead,) = relax.kernel_builder._ahead
        pid = ahead.start().pid
    assert relax.kernel_builder._ahead == []
    refuses(ProcessLookupError, "", os.kill, pid, 0)


def test_an_error_of_any_kind_ends_the_compilation():
    def fails(job: KernelJob) -> CompiledKernel:
        raise IndexError(job.name)

    refuses(IndexError, "k", compiled, jobs(3), fails)
