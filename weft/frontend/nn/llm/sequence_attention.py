"""Attention over batches of sequences of one length, some of whose tokens may be padding."""

from __future__ import annotations

from typing import Any

from weft import error, ir, tir
from weft.frontend.nn.llm.attention import Attention, Heads, Keys, Mask
from weft.frontend.nn.llm.kernel import KernelBuilder, check_target
from weft.target import Target
from weft.tir import PrimFunc, all


class _Rows:
    """A buffer (batch, n, ...) as one (batch * n, ...)."""

    def __init__(self, buffer: Any, n: Any) -> None:
        self.buffer, self.n = buffer, n

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        return self.buffer[(index[0] // self.n, index[0] % self.n, *index[1:])]

    def __setitem__(self, index: tuple[Any, ...], value: Any) -> None:
        self.buffer[(index[0] // self.n, index[0] % self.n, *index[1:])] = value.astype(self.buffer.dtype)


class _Batch:
    """The kernel's arguments, and its body."""

    def __init__(self, h_kv: int, h_q: int, d: int, dtype: str, masked: bool) -> None:
        self.kernel, self.heads = KernelBuilder(), Heads(h_q, h_kv, d, d, dtype)
        self.batch, self.n, self.m = (self.kernel.size(name) for name in ("batch_size", "qo_len", "kv_len"))

        def buffer(name: str, *shape: Any) -> Any:
            return self.kernel.buffer(name, (self.batch, *shape), dtype)

        self.q, self.k, self.v = buffer("q", self.n, h_q, d), buffer("k", self.m, h_kv, d), buffer("v", self.m, h_kv, d)
        self.valid = self.kernel.buffer("valid_lens", (self.batch,), "int32") if masked else None
        self.output, self.lse = buffer("output", self.n, h_q, d), buffer("lse", self.n, h_q)

    def finish(self, name: str, scale: float, sees: Any, freely: Any) -> PrimFunc:
        """Write the body and return the function.

        ``sees(b, row, column)`` says what sees what, ``freely(row)`` how many columns that row and those behind it see.
        """

        def place(b: Any, h: Any, token: Any) -> tuple[Any, ...]:
            return b, token, h

        body = Attention(self.kernel, self.heads, Keys(lambda b: self.m, place, place, self.k, self.v))
        body.scale = scale
        body.emit(
            self.batch * self.n,
            self.batch,
            lambda b: (b * self.n, (b + 1) * self.n),
            _Rows(self.q, self.n),
            _Rows(self.output, self.n),
            _Rows(self.lse, self.n),
            Mask(
                lambda b, token, column: all(column < self.m, sees(b, token - b * self.n, column)),
                lambda b, end: self.m,
                lambda b, token: freely(token - b * self.n),
            ),
        )
        return self.kernel.finish(name)


def attention_sequence_prefill(
    h_kv: int, h_q: int, d: int, dtype: str, target: Target | str, causal: int = 0, sm_scale: float = 1.0
) -> PrimFunc:
    """Make attention of ``q (batch, n, h_q, d)`` over ``k`` and ``v (batch, m, h_kv, d)``.

    Its arguments are these, ``output`` and ``lse (batch, n, h_q)``, all of one data type. With `causal` a row sees
    what lies before it, where the last row is the last key.
    """
    check_target(target)
    batch = _Batch(h_kv, h_q, d, dtype, masked=False)

    def sees(b: Any, row: Any, column: Any) -> Any:
        return column <= batch.m - batch.n + row if causal else ir.const(1, "bool")

    return batch.finish(
        "batch_sequence_prefill_kv", sm_scale, sees, lambda row: batch.m - batch.n + row + 1 if causal else batch.m
    )


def attention_sequence_prefill_with_mask(
    h_kv: int, h_q: int, d: int, dtype: str, target: Target | str, sm_scale: float = 1.0, *, mask_mode: str = "padded"
) -> PrimFunc:
    """Make attention of padded sequences: ``(q, k, v, valid_lens, output, lse)``; padding gives 0.

    Parameters
    ----------
    mask_mode : str
        ``"padded"``: the first ``valid_lens[b]`` tokens are real, and see each other. ``"causal_padded_left"``: the
        last ones are, and see what lies before them.
    """
    check_target(target)
    if mask_mode not in ("padded", "causal_padded_left"):
        raise error.InvalidArgument("mask_mode is 'padded' or 'causal_padded_left'", found=repr(mask_mode))
    batch = _Batch(h_kv, h_q, d, dtype, masked=True)

    def sees(b: Any, row: Any, column: Any) -> Any:
        valid = batch.valid[b].astype("int64") if batch.valid is not None else batch.n
        if mask_mode == "padded":
            return all(row < tir.min(valid, batch.n), column < valid)
        skip = batch.m - batch.n
        return all(row >= batch.n - valid, column >= batch.m - valid, column <= row + skip)

    return batch.finish("batch_sequence_prefill_kv_masked", sm_scale, sees, lambda row: ir.const(0, "int64"))
