"""Expressions that only tensor-expression bodies hold: reads of tensors not yet buffers, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar

from weft.error import InvalidArgument
from weft.ir import TRUE, DataType, IterVar, Node, OtherNames, PrimExpr, Var, as_expr


class ProducerLoad(PrimExpr):
    """Element `indices` of a te tensor (anything with ``shape`` and ``dtype``)."""

    reads_memory: ClassVar[bool] = True  # it is wrong to evaluate it where its indices are not inside
    producer: Any
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        lanes = DataType(self.indices[-1].dtype).lanes if self.indices else 1
        return self.producer.dtype if lanes == 1 else f"{self.producer.dtype}x{lanes}"


class CommReducer(Node):
    """A commutative, associative combiner of one or more values.

    ``result[i]`` combines ``lhs`` and ``rhs``; ``identity_element[i]`` leaves the other side as it is.
    """

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]


def reducer_of(combiner: Callable[..., Any], identity: Sequence[Any]) -> CommReducer:
    """Make the node of a combiner: a function of twice as many scalars as there are values, with their identities."""
    identities = tuple(as_expr(e) for e in identity)
    names = list(signature(combiner).parameters)
    if len(names) != 2 * len(identities):
        raise InvalidArgument(
            "a combiner takes two scalars for each identity element",
            expected=str(2 * len(identities)),
            found=str(len(names)),
        )
    scalars = tuple(Var(n, e.dtype) for n, e in zip(names, identities * 2, strict=True))
    result: Any = combiner(*scalars)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    half = len(identities)
    return CommReducer(scalars[:half], scalars[half:], tuple(as_expr(r) for r in results), identities)


class Reduce(PrimExpr, metaclass=OtherNames):
    """Component `value_index` of combining `source` over `axis`, where `condition` holds.

    `init` replaces the identity.
    """

    __other_names__ = {"src": "source", "rdom": "axis"}

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr = TRUE
    value_index: int = 0
    init: tuple[PrimExpr, ...] = ()

    @property
    def dtype(self) -> str:
        """The data type of the value."""
        return self.source[self.value_index].dtype


class RegionRead(PrimExpr):
    """What a called intrinsic reads of a tensor: `extents` elements from `load` on."""

    load: ProducerLoad
    extents: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:
        """The data type of an element."""
        return self.load.dtype


class IntrinCall(PrimExpr):
    """Output `value_index` of an intrinsic called on regions of tensors; its last `own_axes` axes are its own."""

    intrin: Any
    reads: tuple[RegionRead, ...]
    scalars: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    own_axes: int = 0
    value_index: int = 0

    @property
    def dtype(self) -> str:
        """The data type of an element."""
        return self.intrin.op.output_dtype(self.value_index)


TENSOR_EXPRS = (ProducerLoad, Reduce, RegionRead, IntrinCall)
"""The expressions of this file, which no lowered program holds."""
