"""Drawing indices by probability."""

from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, cast, const, int64
from weft.topi.scan import cumsum


def multinomial_from_uniform(
    prob: te.Tensor, uniform_sample: te.Tensor, sample_indices: te.Tensor | None = None, dtype: str = "int64"
) -> Any:
    """Draw an index for each sample.

    Parameters
    ----------
    prob : Tensor
        (batch, vocabulary), each row of which adds up to 1.
    uniform_sample : Tensor
        (n, 1), in [0, 1).
    sample_indices : Tensor, optional
        (n, 1), the row of each sample; by default that of its own number.

    Returns
    -------
    Tensor
        (n, 1): the first index at which the probabilities up to it add up to more than the sample, the last at most.
    """
    total = cumsum(prob, axis=1)
    batch, vocabulary = (cast("int64", d) for d in prob.shape)
    samples = uniform_sample.shape[0]
    v = te.reduce_axis((0, prob.shape[1]), name="v")

    def row(i: PrimExpr) -> Any:
        if sample_indices is None:
            return i
        return tir.max(tir.min(cast("int64", sample_indices[i, 0]), batch - int64(1)), int64(0))

    held = te.compute(
        (samples, 1),
        lambda i, j: te.sum(
            tir.Select(uniform_sample[i, 0] >= total[row(i), v], const(1, "int64"), const(0, "int64")), axis=v
        ),
        name="held",
    )
    return te.compute(
        (samples, 1), lambda i, j: cast(dtype, tir.min(held[i, j], vocabulary - int64(1))), name="sampled"
    )
