"""Kernels written statement by statement: parameters are declared as they are needed, loops by the tir builder."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from weft import error, tir
from weft.ir import Attrs, SizeVar, Var, const
from weft.target import Target
from weft.tir.ir_builder import BufferVar, create
from weft.tir.transform.transpose_tiles import TILE_MARK

SCALE_BYTES = 4
"""What lies behind each head of a token in pages of int8: its scale, a float32."""


def stored_size(size: int, dtype: str) -> int:
    """How many elements a head of a token takes in pages."""
    return size + SCALE_BYTES if dtype == "int8" else size


def check_target(target: Target | str) -> None:
    """Raise InvalidArgument for a target that these kernels are not for: their threads are those of a CPU."""
    kind = target if isinstance(target, str) else target.kind.name
    if kind.split()[0] not in ("llvm", "c"):
        raise error.InvalidArgument(
            "kernels of paged attention run on CPUs", expected="a target of kind llvm or c", found=kind
        )


def vector_width(*sizes: int, most: int = 16) -> int:
    """Return the greatest power of two, up to `most`, that divides all sizes."""
    return math.gcd(most, *sizes)


class KernelBuilder:
    """A TIR function that is being written, with its parameters in the order of their declaration."""

    def __init__(self) -> None:
        self.ib = create()
        self._params: list[Var] = []
        self._buffers: list[tuple[Var, Any]] = []

    def size(self, name: str, dtype: str = "int64") -> Any:
        """Make a size that the shapes of arguments decide."""
        return SizeVar(name, dtype)

    def buffer(self, name: str, shape: Sequence[Any], dtype: str) -> BufferVar:
        """Declare a tensor."""
        handle = Var(name, "handle")
        buffer = tir.decl_buffer(tuple(shape), dtype, name)
        self._params.append(handle)
        self._buffers.append((handle, buffer))
        return BufferVar(self.ib, buffer)

    def scalar(self, name: str, dtype: str) -> Any:
        """Declare a number."""
        var = Var(name, dtype)
        self._params.append(var)
        return var

    def local(self, shape: Any, name: str, dtype: str = "float32") -> BufferVar:
        """Allocate memory of the running thread, until the scope ends."""
        return self.ib.allocate(dtype, shape, name, scope="local")

    @contextmanager
    def vectors(self, begin: Any, end: Any, width: int) -> Generator[Any]:
        """Loop over `end - begin` elements, a multiple of `width`, by vectors; the value is the element's index."""
        with self.ib.for_range(0, (end - begin) // width, "o") as o:
            with self.ib.for_range(0, width, "i", kind="vectorize") as i:
                yield begin + o * width + i

    def transpose(self, target: BufferVar, at: tuple[Any, Any], source: BufferVar, width: int) -> None:
        """Write a square tile of `source`, whose corner is `at` reversed, to `target` with its axes exchanged."""
        i, j = Var("i", "int64"), Var("j", "int64")
        row, column = at
        tile = tir.BufferStore(target.asobject(), source[column + j, row + i], (row + i, column + j))
        inner = tir.For(j, const(0, "int64"), const(width, "int64"), tir.ForKind.VECTORIZED, tile)
        extent = const(width, "int64")
        marked = {TILE_MARK: const(1, "int32")}
        self.ib.emit(tir.For(i, const(0, "int64"), extent, tir.ForKind.SERIAL, inner, annotations=Attrs.of(marked)))

    def finish(self, name: str, private: bool = False) -> tir.PrimFunc:
        """Return the function, which no rule schedules any more; a private one has no name of its own."""
        attrs: dict[str, Any] = {"tir.is_scheduled": True, "tir.noalias": True}
        if not private:
            attrs["global_symbol"] = name
        return tir.PrimFunc(tuple(self._params), self.ib.get(), None, tuple(self._buffers), Attrs.of(attrs))
