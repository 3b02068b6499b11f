"""Messages along edges: rows that are looked up, worked on and gathered at places, which is one kernel."""

import numpy as np
import pytest
import torch

import weft
from tests.frontend.torch.programs import Call, check, exported, machine
from weft import error, relax
from weft.frontend.torch import from_exported_program

N, E = 37, 101


def edges(n=N, e=E):
    return torch.randint(-n, n, (e,)), torch.randint(0, n, (e,))


def kernels(fn, args):
    """Names of the kernels of a function."""
    vm = relax.VirtualMachine(weft.compile(from_exported_program(exported(Call(fn), args)), "llvm"), weft.cpu())
    given = [weft.runtime.from_dlpack(x) for x in args]
    np.testing.assert_allclose(vm["main"](*given)[0].numpy(), fn(*args).numpy(), rtol=1e-5, atol=1e-6)
    return {row.split()[0] for row in str(vm.profile("main", *given)).splitlines()[1:] if "float32[" in row}


def summed(x, source, target, weight):
    return torch.zeros_like(x).index_add(0, target, x[source] * weight[..., None])


@pytest.mark.parametrize("rows", [(64,), (1,), (3,), (65,), (4, 16), (2, 5)])
def test_messages_are_one_kernel(rows):
    weight = torch.rand(E) if len(rows) == 1 else torch.rand(E, rows[0])
    names = kernels(summed, (torch.randn(N, *rows), *edges(), weight))
    assert len({name for name in names if "index_put" in name or "take" in name}) == 1, names


@pytest.mark.parametrize("edge_count", [0, 1, 77])
def test_open_counts(edge_count):
    dim = torch.export.Dim.AUTO
    args = (torch.randn(N, 16), *edges(), torch.rand(E))
    others = (torch.randn(9, 16), *edges(9, edge_count), torch.rand(edge_count))
    check(Call(summed), args, others, dynamic=(({0: dim},) * 4,), tolerance=1e-5)


@pytest.mark.parametrize("how", ["amax", "amin", "prod", "mean", "sum"])
@pytest.mark.parametrize("include", [True, False])
def test_reductions(how, include):
    def fn(x, source, target):
        places = target[:, None].expand(-1, 7)
        return x.scatter_reduce(0, places, torch.relu(x[source]) + 1, how, include_self=include)

    check(Call(fn), (torch.randn(N, 7), *edges()), tolerance=1e-5)


@pytest.mark.parametrize(("columns", "rows", "once"), [(7, 21, True), (3, 21, False), (1, 21, False), (7, 1, False)])
def test_means_count_once_what_all_columns_share(columns, rows, once):
    def fn(x, target, v):
        return x.scatter_reduce(0, target[:, None].expand(21, columns), v, "mean", include_self=False)

    args = (torch.randn(N, 7), torch.randint(0, N, (rows,)), torch.randn(21, columns))
    text = str(from_exported_program(exported(Call(fn), args)))
    assert (f"R.shape([{N}, 1])" in text) == once
    check(Call(fn), args, tolerance=1e-5)


def test_what_is_changed_is_read_before():
    """Rows go from a tensor to itself: those that were written do not count."""

    def fn(x, source, target):
        return x.index_put((target,), x[source] * 2.0, accumulate=True), x.index_put((torch.arange(N),), -x)

    check(Call(fn), (torch.randn(N, 16), *edges()), tolerance=1e-5)


def test_what_has_several_uses_is_stored_once():
    def fn(x, source, target):
        rows = torch.exp(x[source])
        taken = (x + 1)[source], (source + 1 - 1)[target % 5]
        return torch.zeros_like(x).index_add(0, target, rows), rows.sum(0), *taken

    check(Call(fn), (torch.randn(N, 16), *edges()), tolerance=1e-4)


@pytest.mark.parametrize("wrong", ["source", "target"])
def test_places_outside_are_refused(wrong):
    args = (torch.randn(N, 16), *edges(), torch.rand(E))
    function = machine(from_exported_program(exported(Call(summed), args)))
    given = [x.clone() for x in args]
    given[1 if wrong == "source" else 2][50] = N
    with pytest.raises((error.WeftError, IndexError), match=f"found {N}"):
        function(*(weft.runtime.from_dlpack(x) for x in given))
