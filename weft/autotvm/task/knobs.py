"""What a template leaves open: splits, orders and annotations of axes, and options, each with its candidates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from weft import ir, te
from weft.error import InvalidArgument, ScheduleError


class InstantiationError(ScheduleError, ValueError):
    """A template refused a configuration with ``cfg.raise_error``."""


@dataclass(frozen=True)
class Axis:
    """An axis that a knob makes: the knob's candidates, and which of its results."""

    space: Any
    index: int


class TransformSpace:
    """The candidates of one knob."""

    def __init__(self) -> None:
        self.ins: list[Any] = []
        self.num_output = 0
        self.entities: list[Any] = []

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Any:
        return self.entities[index]

    @staticmethod
    def get_num_output(axes: Any, policy: Any, **kwargs: Any) -> int:
        """How many axes the knob makes."""
        return 0


class VirtualAxis(TransformSpace):
    """An axis whose length alone is known.

    Parameters
    ----------
    var : int, IterVar or VirtualAxis
    name : str, optional
    """

    _count = itertools.count()

    def __init__(self, var: Any, name: str | None = None) -> None:
        super().__init__()
        self.num_output = 1
        self.name = name or f"axis_{next(self._count)}"
        if isinstance(var, (int, ir.IntImm)):
            self.length = int(var)
        elif isinstance(var, ir.IterVar):
            self.name = var.var.name
            extent = var.dom.extent if var.dom is not None else None
            self.length = extent.value if isinstance(extent, ir.IntImm) else -1
        elif isinstance(var, VirtualAxis):
            self.length = var.length
        else:
            raise InvalidArgument("not an axis", expected="a length or an axis of an operation", found=repr(var))

    @staticmethod
    def get_num_output(axes: Any, policy: Any = None, **kwargs: Any) -> int:
        """One."""
        return 1

    def __repr__(self) -> str:
        return f"vaxis({self.name})"


def get_factors(n: int) -> list[int]:
    """List the divisors of a number, ascending.

    Examples
    --------
    >>> get_factors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [i for i in range(1, math.isqrt(n) + 1) if n % i == 0]
    return sorted({*small, *(n // i for i in small)})


def get_pow2s(n: int) -> list[int]:
    """List the powers of two up to a number."""
    return [1 << i for i in range(n.bit_length())]


class SplitEntity:
    """How an axis is split: the lengths of the parts, outermost first; -1 is what remains."""

    def __init__(self, size: Sequence[int]) -> None:
        self.size = list(size)

    def apply(self, sch: Any, op: Any, axis: Any) -> list[Any]:
        """Split an axis of a stage and return the parts."""
        parts = []
        for i in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, math.prod(int(s) for s in self.size[i:]))
            parts.append(outer)
        return [*parts, axis]

    def __repr__(self) -> str:
        return str(self.size)


class SplitSpace(TransformSpace):
    """The ways of splitting an axis: by divisors, powers of two, both, or those that are given."""

    def __init__(self, axes: Sequence[VirtualAxis], policy: str, **kwargs: Any) -> None:
        super().__init__()
        self.policy, self.product = policy, axes[0].length
        self.num_output = kwargs.get("num_outputs", 0)
        if self.num_output < 1:
            raise InvalidArgument("a split needs num_outputs", expected="one part or more", found=str(self.num_output))
        if policy == "candidate":
            self.entities = [SplitEntity(size) for size in kwargs["candidate"]]
            if any(len(e.size) != self.num_output for e in self.entities):
                raise InvalidArgument("a candidate has another number of parts", expected=str(self.num_output))
        else:
            limit = kwargs.get("max_factor", 1 << 31)
            self.factors = [f for f in self._factors(policy) if f <= limit]
            whole = kwargs.get("no_tail", policy == "factors")
            self.entities = [SplitEntity([-1, *inner[::-1]]) for inner in self._inner(self.num_output - 1, 1, whole)]
        accepts: Callable[[Any], bool] | None = kwargs.get("filter")
        if accepts is not None:
            self.entities = [e for e in self.entities if accepts(e)]

    def _factors(self, policy: str) -> list[int]:
        divisors, powers = get_factors(self.product), get_pow2s(self.product)
        found = {"factors": divisors, "power2": powers, "verbose": list({*divisors, *powers})}.get(policy)
        if found is None:
            raise InvalidArgument(f"unknown policy '{policy}' of a split")
        return found

    def _inner(self, count: int, product: int, whole: bool) -> Iterator[list[int]]:
        """List the lengths of the inner parts, the innermost first; with `whole` nothing may remain."""
        if count == 0:
            if self.product % product == 0 or (not whole and product < self.product):
                yield []
            return
        for f in self.factors:
            if product * f <= self.product:
                yield from ([f, *rest] for rest in self._inner(count - 1, product * f, whole))

    @staticmethod
    def get_num_output(axes: Any, policy: Any, **kwargs: Any) -> int:
        """How many parts there are."""
        return kwargs["num_outputs"]

    def __repr__(self) -> str:
        return f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_output}) len={len(self)}"


class ReorderEntity:
    """An order of axes: which of them comes first, and so on."""

    def __init__(self, perm: Sequence[int]) -> None:
        self.perm = perm

    def apply(self, sch: Any, op: Any, axes: Sequence[Any]) -> list[Any]:
        """Reorder axes of a stage and return them as they are then."""
        order = [axes[i] for i in self.perm if i < len(axes)]
        sch[op].reorder(*order)
        return order

    def __repr__(self) -> str:
        return str(self.perm)


class ReorderSpace(TransformSpace):
    """Orders of axes: one, all, those of an interval, those that are given, or chains merged by turns."""

    def __init__(self, axes: Sequence[Any], policy: str, **kwargs: Any) -> None:
        super().__init__()
        self.ins, self.policy, self.num_output = list(axes), policy, len(axes)
        self.entities = [ReorderEntity(order) for order in self._orders(policy, kwargs)]

    def _orders(self, policy: str, kwargs: dict[str, Any]) -> Iterator[Any]:
        every = range(self.num_output)
        if policy == "identity":
            yield every
        elif policy == "all":
            yield from itertools.permutations(every)
        elif policy == "interval_all":
            begin, end = kwargs["interval"]
            for middle in itertools.permutations(range(begin, end)):
                yield (*every[:begin], *middle, *every[end:])
        elif policy == "candidate":
            for order in kwargs["candidate"]:
                yield self._positions(order)
        elif policy in ("interleave", "interleave_cuda"):
            spatial = [self._positions(chain) for chain in kwargs["spatial"]]
            reduce = [self._positions(chain) for chain in kwargs["reduce"]]
            inner = [chain[-1:] for chain in spatial]
            if policy == "interleave":
                tails = list(_merged([*inner, *reduce]))
            else:
                tails = [[*r, *itertools.chain(*inner)] for r in _merged(reduce)]
            for head in _merged([chain[:-1] for chain in spatial]):
                yield from (head + tail for tail in tails)
        else:
            raise InvalidArgument(f"unknown policy '{policy}' of an order")

    def _positions(self, axes: Sequence[Any]) -> list[int]:
        return [self.ins.index(a) for a in axes]

    @staticmethod
    def get_num_output(axes: Any, policy: Any, **kwargs: Any) -> int:
        """As many as there are."""
        return len(axes)

    def __repr__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self)}"


def _merged(chains: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Merge chains, always from the one that has most left, the first of equals."""
    rest, found = [list(c) for c in chains], []
    while any(rest):
        longest = max(range(len(rest)), key=lambda i: (len(rest[i]), -i))
        found.append(rest[longest].pop(0))
    yield found


_BOUND: dict[str, list[list[str]]] = {
    "bind_gpu": [
        ["blockIdx.z", "blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x"],
        ["blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"],
        ["blockIdx.x", "threadIdx.x"],
    ],
    "bind_gpu_virtual": [
        ["blockIdx.z", "blockIdx.y", "blockIdx.x", *["vthread"] * 3, "threadIdx.z", "threadIdx.y", "threadIdx.x"],
        ["blockIdx.y", "blockIdx.x", "vthread", "vthread", "threadIdx.y", "threadIdx.x"],
        ["blockIdx.x", "vthread", "threadIdx.x"],
    ],
}


class AnnotateEntity:
    """What becomes of each axis: ``none``, ``unroll``, ``vec``, ``fuse`` or a thread; or where caches are attached."""

    def __init__(self, anns: Sequence[Any]) -> None:
        self.anns = anns

    def apply(
        self,
        sch: Any,
        op: Any,
        axes: list[Any],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: Any = None,
        source: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Annotate the axes of a stage, or compute the tensors of `source` at them; returns the axes."""
        if source is not None:
            for tensors, at in zip(source, self.anns, strict=False):
                for t in tensors:
                    sch[t].compute_at(sch[op], axes[at])
            return axes
        lens = axis_lens or [0] * len(axes)
        for i, ann in enumerate(self.anns):
            if ann == "unroll":
                if max_unroll and lens[i] > max_unroll:
                    cfg.raise_error("an axis is too long to be unrolled")
                sch[op].unroll(axes[i])
            elif ann == "vec":
                if vec_size and lens[i] not in vec_size:
                    cfg.raise_error("an axis has no length of a vector")
                sch[op].vectorize(axes[i])
            elif ann == "fuse":
                axes[i + 1] = sch[op].fuse(axes[i], axes[i + 1])
            elif ann != "none":
                sch[op].bind(axes[i], te.thread_axis(ann))
        return axes

    def __repr__(self) -> str:
        return str(self.anns)


class AnnotateSpace(TransformSpace):
    """Annotations of axes: a policy such as ``try_unroll_vec``, threads of a GPU, or places of caches."""

    def __init__(self, axes: Sequence[Any], policy: str, **kwargs: Any) -> None:
        super().__init__()
        self.ins, self.policy, self.num_output = list(axes), policy, len(axes)
        self.num_axis = count = len(axes)
        if policy in _BOUND:
            threads = next((t for t in _BOUND[policy] if len(t) <= count), None)
            if threads is None:
                raise InvalidArgument(f"{policy} needs more axes", found=str(count))
            self.anns: list[Any] = ["fuse"] * (count - len(threads)) + threads
            self.entities = [AnnotateEntity(self.anns)]
        elif policy == "locate_cache":
            self.anns = list(itertools.combinations(range(count), kwargs["num_anchor"]))
            self.entities = [AnnotateEntity(a) for a in self.anns]
        else:
            words = policy.replace("try", "none").split("_")
            if not {"none", "unroll", "vec"}.issuperset(words):
                raise InvalidArgument(f"unknown policy '{policy}' of annotations")
            self.anns = [words] * count
            drawn = (list(a) for a in itertools.product(*self.anns))
            self.entities = [AnnotateEntity(a) for a in drawn if a.count("vec") <= 1]

    @staticmethod
    def get_num_output(axes: Any, policy: Any, **kwargs: Any) -> int:
        """As many as there are."""
        return len(axes)

    def __repr__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self)}"


class OtherOptionEntity:
    """A value of an option."""

    def __init__(self, val: Any) -> None:
        self.val = val

    def __repr__(self) -> str:
        return str(self.val)


class OtherOptionSpace(TransformSpace):
    """The values of an option."""

    def __init__(self, axes: Any, policy: Any, **kwargs: Any) -> None:
        super().__init__()
        self.entities = [OtherOptionEntity(v) for v in kwargs["candidate"]]

    def __repr__(self) -> str:
        return f"OtherOption({self.entities}) len={len(self)}"
