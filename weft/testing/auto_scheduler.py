"""Registered workloads to test searches with."""

from __future__ import annotations

from typing import Any

from weft import auto_scheduler, te, topi
from weft.auto_scheduler.loop_state import State


def _product(a: Any, b: Any, name: str, attrs: Any = None) -> Any:
    k = te.reduce_axis((0, a.shape[1]), name="k")
    shape = (a.shape[0], b.shape[1])
    return te.compute(shape, lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name=name, attrs=attrs)


@auto_scheduler.register_workload
def matmul_auto_scheduler_test(N: int, M: int, K: int) -> list[Any]:
    """A product; the layout of its second matrix is free."""
    a, b = te.placeholder((N, K), name="A"), te.placeholder((K, M), name="B")
    return [a, b, _product(a, b, "C", {"layout_free_placeholders": [b]})]


@auto_scheduler.register_workload("matmul_auto_scheduler_test_rename_1")
def matmul_auto_scheduler_test_rename_0(N: int, M: int, K: int) -> list[Any]:
    """A product, registered under another name."""
    a, b = te.placeholder((N, K), name="A"), te.placeholder((K, M), name="B")
    return [a, b, _product(a, b, "C")]


def _squares(n: int) -> list[Any]:
    return [te.placeholder((n, n), name=name, dtype="float32") for name in "ABC"]


@auto_scheduler.register_workload
def double_matmul_auto_scheduler_test(N: int) -> list[Any]:
    """A product of a product."""
    a, b, c = _squares(N)
    return [a, b, c, _product(_product(a, b, "D"), c, "E")]


@auto_scheduler.register_workload
def parallel_matmul_auto_scheduler_test(N: int) -> list[Any]:
    """Two products of one matrix."""
    a, b, c = _squares(N)
    return [a, b, c, _product(a, b, "D"), _product(a, c, "E")]


@auto_scheduler.register_workload
def conv2d_nchw_bn_relu_auto_scheduler_test(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, strides: int, padding: int, dilation: int = 1
) -> list[Any]:
    """A convolution with a bias, a scale, an offset and a ReLU."""
    data = te.placeholder((N, CI, H, W), name="Data")
    kernel = te.placeholder((CO, CI, kernel_size, kernel_size), name="Kernel")
    bias, scale, offset = (te.placeholder((CO, 1, 1), name=n) for n in ("Bias", "Bn_scale", "Bn_offset"))
    conv = topi.nn.conv2d_nchw(data, kernel, strides, padding, dilation)
    biased = te.compute(conv.shape, lambda n, c, h, w: conv[n, c, h, w] + bias[c, 0, 0], name="Bias_add")
    scaled = te.compute(conv.shape, lambda n, c, h, w: biased[n, c, h, w] * scale[c, 0, 0], name="Bn_mul")
    added = te.compute(conv.shape, lambda n, c, h, w: scaled[n, c, h, w] + offset[c, 0, 0], name="Bn_add")
    return [data, kernel, bias, offset, scale, topi.nn.relu(added)]


@auto_scheduler.register_workload
def max_pool2d_auto_scheduler_test(N: int, H: int, W: int, CI: int, padding: int) -> list[Any]:
    """A pooling."""
    data = te.placeholder((N, CI, H, W), name="Data")
    return [data, topi.nn.pool2d(data, [2, 2], [1, 1], [1, 1], [padding] * 4, "max")]


@auto_scheduler.register_workload
def min_nm_auto_scheduler_test(N: int, M: int) -> list[Any]:
    """The least of each row."""
    a = te.placeholder((N, M), name="A")
    return [a, topi.min(a, axis=-1)]


@auto_scheduler.register_workload
def softmax_nm_auto_scheduler_test(N: int, M: int) -> list[Any]:
    """A softmax of rows."""
    a = te.placeholder((N, M), name="A")
    return [a, topi.nn.softmax(a, axis=1)]


@auto_scheduler.register_workload
def softmax_abcd_auto_scheduler_test(a: int, b: int, c: int, d: int) -> list[Any]:
    """A softmax of the last of four dimensions."""
    data = te.placeholder((a, b, c, d), name="A")
    return [data, topi.nn.softmax(data, axis=-1)]


@auto_scheduler.register_workload
def invalid_compute_definition() -> list[Any]:
    """A sum over two axes of one name, which a computation refuses."""
    a = te.placeholder((10, 10), name="A")
    r1, r2 = (te.reduce_axis((0, 2), name="r1") for _ in range(2))
    return [a, te.compute((10,), lambda i: te.sum(a[i, r1.var + r2.var], axis=[r1, r2]), name="B")]


@auto_scheduler.register_workload
def zero_rank_reduce_auto_scheduler_test(N: int) -> list[Any]:
    """A sum of all elements."""
    a = te.placeholder((N,), name="A")
    k = te.reduce_axis((0, N), name="k")
    return [a, te.compute((), lambda: te.sum(a[k], k), name="B")]


@auto_scheduler.register_workload
def zero_rank_compute_auto_scheduler_test(N: int) -> list[Any]:
    """The first element."""
    a = te.placeholder((N,), name="A")
    return [a, te.compute((), lambda: a[0], name="B")]


def get_tiled_matmul() -> tuple[Any, State]:
    """Return a product's computation and a state in which it is tiled."""
    tensors = matmul_auto_scheduler_test(512, 512, 512)
    dag, c = auto_scheduler.ComputeDAG(tensors), tensors[-1]
    state = dag.get_init_state()
    i = state.split(c, state[c].iters[0], [4, 8, 8])
    j = state.split(c, state[c].iters[4], [8, 4, 4])
    pairs = [it for pair in zip(i, j, strict=True) for it in pair]
    state.reorder(c, [*pairs, state[c].iters[8]])
    return dag, state
