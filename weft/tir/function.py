"""PrimFunc: a function over buffers and scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import force_setattr

from weft.ir import NO_ATTRS, Attrs, BaseFunc, SizeVar, Var
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

    def __post_init__(self) -> None:
        if (
            type(self.params) is tuple
            and type(self.buffer_map) is tuple
            and {Var, SizeVar}.issuperset(map(type, self.params))
        ):
            return
        given: Any = self.buffer_map  # TVM's programs give a dictionary, and buffers among the parameters
        buffers = list(given.items() if isinstance(given, Mapping) else given)
        params: list[Var] = []
        for p in (p.asobject() if hasattr(p, "asobject") else p for p in cast(Any, self.params)):
            handle = Var(p.name, "handle") if isinstance(p, Buffer) else p
            params.append(handle)
            if isinstance(p, Buffer):
                buffers.append((handle, p))
        force_setattr(self, "params", tuple(params))
        force_setattr(self, "buffer_map", tuple(buffers))

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
