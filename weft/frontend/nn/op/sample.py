"""Sorting, and choosing by probability."""

from __future__ import annotations

from typing import Any

from weft import error, ir
from weft.frontend.nn.op.elementwise import astype, divide, greater_equal, less, logical_and, minimum, where
from weft.frontend.nn.op.manipulate import arange, full, gather_elements, reshape, take
from weft.frontend.nn.op.reduce import cumsum
from weft.frontend.nn.op.reduce import sum as sum_
from weft.frontend.nn.tensor import Tensor, apply, caller

__all__ = [
    "argsort",
    "multinomial_from_uniform",
    "renormalize_top_p_top_k_prob",
    "sample_token",
    "sample_top_p_top_k_from_sorted_prob",
    "sort",
    "topk",
    "uniform_at",
]


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """Sort along an axis."""
    return apply("sort", x, axis=axis, descending=descending, name=name)


def argsort(
    data: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32", name: str = "argsort"
) -> Tensor:
    """Return the indices that sort along an axis."""
    return apply("argsort", data, axis=axis, descending=descending, dtype=dtype, name=name)


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """Return the k greatest along an axis: values and indices, or one of them by `ret_type`."""
    return apply("topk", data, k=k, axis=axis, ret_type=ret_type, largest=largest, dtype=dtype, name=name)


def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """Draw indices by probability.

    Parameters
    ----------
    prob : Tensor
        (batch, vocabulary), each row of which adds up to 1.
    uniform_sample : Tensor
        (n, 1), uniform in [0, 1).
    sample_indices : Tensor, optional
        (n, 1), the row of `prob` for each sample; where it is left out there is one sample for each row.

    Returns
    -------
    Tensor
        (n, 1): the first index at which the probabilities up to it add up to more than the sample.
    """
    samples = [uniform_sample] if sample_indices is None else [uniform_sample, sample_indices]
    return apply("multinomial_from_uniform", prob, *samples, dtype=dtype, name=name)


def uniform_at(seed: Tensor, position: Tensor, name: str = "uniform_at") -> Tensor:
    """Return the numbers in [0, 1), (n, 1) float64, that seeds and positions, (n, 1) int64 each, decide."""
    return apply("uniform_at", seed, position, name=name)


def sample_token(
    logits: Tensor,
    uniform: Tensor,
    temperature: Tensor | float = 1.0,
    top_k: Tensor | int = 0,
    top_p: Tensor | float = 1.0,
    penalty: Tensor | float = 1.0,
    history: Tensor | None = None,
    dtype: str = "int64",
    name: str = "sample_token",
) -> Tensor:
    """Draw the next token of each sequence.

    Parameters
    ----------
    logits : Tensor
        (n, vocabulary).
    uniform : Tensor
        (n, 1), in [0, 1), as :func:`uniform_at` makes them.
    temperature : Tensor or float
        (n, 1), like the following ones, or one for all: what logits are divided by; 0 takes the greatest.
    top_k, top_p : Tensor, int or float
        Of the `top_k` greatest (0: of all) the first remain whose probabilities reach `top_p`.
    penalty, history : Tensor or float, Tensor
        What the logits of tokens in `history`, (n, length) of integers, are divided by, or multiplied by where they are
        negative; places that hold -1 are empty.

    Returns
    -------
    Tensor
        (n, 1); -1 for rows that are no distribution: with NaN, only infinite logits, or such parameters.
    """
    rows = (logits.shape[0], 1)
    given = [(temperature, "float32"), (top_k, "int64"), (top_p, "float64"), (penalty, "float32")]
    parts = [v if isinstance(v, Tensor) else full(rows, v, kind) for v, kind in given]
    seen = [] if history is None else [parts[3], history]
    return apply("sample_token", logits, uniform, *parts[:3], *seen, dtype=dtype, name=name)


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """Draw among the likeliest `top_k` whose probabilities reach `top_p`.

    Parameters
    ----------
    sorted_prob, sorted_index : Tensor
        (batch, vocabulary): probabilities in descending order, and what they are the probabilities of.
    top_p, top_k : Tensor
        (batch, 1).
    uniform_sample, sample_indices : Tensor
        (n, 1), as for :func:`multinomial_from_uniform`.

    Returns
    -------
    Tensor
        (n, 1) of the data type of `sorted_index`.
    """
    op = "sample_top_p_top_k_from_sorted_prob"
    total = cumsum(sorted_prob, axis=1)
    kept = gather_elements(total, _cutoff(total, top_p, top_k), axis=1)
    share = _rows(op, divide(total, kept), uniform_sample, sample_indices)
    index = _first_false(greater_equal(uniform_sample, share), sorted_prob.shape[1])
    return gather_elements(_rows(op, sorted_index, uniform_sample, sample_indices), index, axis=1)


def renormalize_top_p_top_k_prob(prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Keep the likeliest `top_k` whose probabilities reach `top_p`, and make them add up to 1 again.

    Parameters
    ----------
    prob, sorted_prob : Tensor
        (batch, vocabulary): probabilities in any order, and in descending order.
    top_p, top_k : Tensor
        (batch, 1).
    """
    total = cumsum(sorted_prob, axis=1)
    least = gather_elements(sorted_prob, _cutoff(total, top_p, top_k), axis=1)
    kept = where(greater_equal(prob, least), prob, 0.0)
    return divide(kept, sum_(kept, axis=1, keepdims=True))


def _rows(op: str, table: Tensor, uniform_sample: Tensor, sample_indices: Tensor | None) -> Tensor:
    """The row of a table for each sample."""
    if sample_indices is not None:
        return take(table, reshape(sample_indices, (-1,)), axis=0)
    rows, samples = ir.as_int(table.shape[0]), ir.as_int(uniform_sample.shape[0])
    if rows != samples:
        raise error.InvalidArgument(
            f"{op}: without sample_indices there is one sample for each row",
            expected=f"{table.shape[0]} samples",
            found=str(uniform_sample.shape[0]),
            where=caller(),
        )
    return table


def _cutoff(total: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """The index of the last that is kept, (batch, 1): where the total reaches top_p, or the top_k-th."""
    vocabulary = total.shape[1]
    rank = reshape(arange(1, vocabulary + 1, dtype=top_k.dtype), (1, -1))
    return _first_false(logical_and(less(total, top_p), less(rank, top_k)), vocabulary)


def _first_false(condition: Tensor, size: Any) -> Tensor:
    """The first index along axis 1 where a condition, which holds up to some index, does not; the last at most."""
    held = sum_(astype(condition, "int64"), axis=1, keepdims=True)
    if ir.as_int(size) is not None:
        return minimum(held, int(size) - 1)
    last = reshape(arange(size - 1, size, dtype="int64"), (1, 1))
    return minimum(held, last)
