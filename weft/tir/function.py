"""PrimFunc: a function over buffers and scalars."""

from __future__ import annotations

from typing import Any

from weft.ir import NO_ATTRS, Attrs, BaseFunc, Var
from weft.tir.buffer import Buffer
from weft.tir.stmt import Block, BlockRealize, Stmt

__all__ = ["PrimFunc"]


class PrimFunc(BaseFunc):
    """A TIR function.

    ``buffer_map`` pairs a handle parameter with the buffer that it is; a symbolic dimension of such a buffer that is
    not itself a parameter takes its value from the argument. Attributes used here: ``global_symbol`` (exported name),
    ``tir.noalias`` (bool: buffers of different parameters do not overlap), ``op_pattern``, ``tir.stream_outputs``
    (bool: nobody reads the results while a cache would hold them).
    """

    params: tuple[Var, ...]
    body: Stmt
    ret_type: Any = None
    buffer_map: tuple[tuple[Var, Buffer], ...] = ()
    attrs: Attrs = NO_ATTRS

    @property
    def __name__(self) -> str:
        """The name that the function is exported by."""
        symbol = self.attrs.get("global_symbol")
        if symbol is None:
            raise AttributeError("a private function has no name")
        return symbol

    def buffer_of(self, param: Var) -> Buffer | None:
        """Return the buffer of a parameter, or None for a scalar."""
        for p, b in self.buffer_map:
            if p is param:
                return b
        return None

    def with_body(self, new_body: Stmt, span: Any = None) -> PrimFunc:
        """Return the function with another body."""
        return self.replace(body=new_body, span=span or self.span)

    @property
    def root(self) -> Block:
        """The root block of a scheduled function."""
        assert isinstance(self.body, BlockRealize)
        return self.body.block
