"""Configurations of a template: all of them, one of them, and the one without measurements."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from weft.autotvm.task.knobs import (
    AnnotateEntity,
    AnnotateSpace,
    Axis,
    InstantiationError,
    OtherOptionEntity,
    OtherOptionSpace,
    ReorderEntity,
    ReorderSpace,
    SplitEntity,
    SplitSpace,
    TransformSpace,
    VirtualAxis,
    get_factors,
    get_pow2s,
)
from weft.error import IndexOutOfRange, InvalidArgument, ScheduleError
from weft.ir import FloatImm, IntImm

__all__ = [
    "AnnotateEntity",
    "AnnotateSpace",
    "Axis",
    "ConfigEntity",
    "ConfigSpace",
    "FallbackConfigEntity",
    "InstantiationError",
    "OtherOptionEntity",
    "OtherOptionSpace",
    "ReorderEntity",
    "ReorderSpace",
    "SplitEntity",
    "SplitSpace",
    "TransformSpace",
    "VirtualAxis",
    "get_factors",
    "get_pow2s",
]


class ConfigSpace:
    """All configurations of a template; they are numbered, the first knob counts fastest.

    The template defines its knobs with ``define_*`` when it is called with a space, and reads what is decided with
    ``cfg[name]``.
    """

    def __init__(self) -> None:
        self.is_fallback = False
        self.space_map: dict[str, TransformSpace] = {}
        self._entity_map: dict[str, Any] = {}
        self._collect = True
        self._accepts: Callable[[dict[str, Any]], bool] | None = None
        self._accepted: list[bool] | None = None
        self._constraints: list[Any] = []
        self.errors: list[str] = []
        self.code_hash: str | None = None
        self.flop: float = 0
        self.cost: float | None = None

    # --- what a template says ---

    @staticmethod
    def axis(var: Any) -> VirtualAxis:
        """Make an axis of a length or of an axis of an operation."""
        return VirtualAxis(var)

    reduce_axis = axis

    def define_split(self, name: str, axis: Any, policy: str = "factors", **kwargs: Any) -> list[Axis]:
        """Leave open how an axis is split.

        Parameters
        ----------
        name : str
        axis : axis, or its length
        policy : str
            ``"factors"`` (divisors), ``"power2"``, ``"verbose"`` (both) or ``"candidate"``.
        **kwargs : Any
            ``num_outputs``, ``max_factor``, ``no_tail``, ``candidate`` (lists of lengths), ``filter`` (of entities).
        """
        return self._define(SplitSpace, name, [axis], policy, **kwargs)

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> list[Axis]:
        """Leave open the order of axes, such as ``"all"``, ``"candidate"`` or ``"interleave"``."""
        return self._define(ReorderSpace, name, axes, policy, **kwargs)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **kwargs: Any) -> list[Axis]:
        """Leave open what is annotated: ``"try_unroll_vec"``, ``"bind_gpu"``, ``"locate_cache"`` and the like."""
        return self._define(AnnotateSpace, name, axes, policy, **kwargs)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> list[Axis]:
        """Leave open which of some values an option has."""
        return self._define(OtherOptionSpace, name, [], None, candidate=candidate)

    def add_flop(self, flop: Any) -> None:
        """Count operations that the tuner cannot count itself."""
        self.flop += float(flop.value if isinstance(flop, (IntImm, FloatImm)) else flop)

    def raise_error(self, msg: str) -> None:
        """Refuse this configuration."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Whether the template refused nothing."""
        return not self.errors

    def multi_filter(self, filter: Callable[[dict[str, Any]], bool]) -> None:
        """Keep only the configurations that a predicate on all knobs accepts; the numbers stay as they are."""
        if self._collect:
            self._accepts, self._accepted = filter, None

    def _define(self, kind: type[Any], name: str, axes: Sequence[Any], policy: Any, **kwargs: Any) -> list[Axis]:
        decided = self.is_fallback and name in self._entity_map
        if not self._collect or decided:
            return [Axis(None, i) for i in range(kind.get_num_output(axes, policy, **kwargs))]
        space = kind([a if isinstance(a, (VirtualAxis, Axis)) else self.axis(a) for a in axes], policy, **kwargs)
        self.space_map[name], self._accepted = space, None
        self._entity_map[name] = space[0]
        return [Axis(space, i) for i in range(space.num_output)]

    # --- numbers ---

    @property
    def dims(self) -> list[int]:
        """The number of candidates of each knob."""
        return [len(s) for s in self.space_map.values()]

    @property
    def range_length(self) -> int:
        """How many numbers there are, those of refused configurations among them."""
        return math.prod(self.dims)

    def _valid(self) -> list[bool]:
        if self._accepted is None:
            assert self._accepts is not None
            self._accepted = [bool(self._accepts(self._entities(i))) for i in range(self.range_length)]
        return self._accepted

    def __len__(self) -> int:
        return self.range_length if self._accepts is None else sum(self._valid())

    def is_index_valid(self, index: int) -> bool:
        """Whether the filter of all knobs accepts a configuration."""
        if not 0 <= index < self.range_length:
            raise IndexOutOfRange("no such configuration", expected=f"below {self.range_length}", found=str(index))
        return self._accepts is None or self._valid()[index]

    def subrange_length(self, start: int, end: int) -> int:
        """Count the valid configurations from `start` to before `end`."""
        if not 0 <= start <= end <= self.range_length:
            raise IndexOutOfRange("no such range of configurations", found=f"{start} to {end}")
        return end - start if self._accepts is None else sum(self._valid()[start:end])

    def get_rand_index(
        self, start: int | None = None, end: int | None = None, to_exclude: Collection[int] | None = None
    ) -> int:
        """Draw the number of a valid configuration that is not excluded."""
        low, high = start or 0, end or self.range_length
        for _ in range(64):
            drawn = random.randrange(low, high)
            if drawn not in (to_exclude or ()) and self.is_index_valid(drawn):
                return drawn
        left = [i for i in range(low, high) if i not in (to_exclude or ()) and self.is_index_valid(i)]
        if not left:
            raise InvalidArgument("no configuration is left to draw", found=f"{low} to {high}")
        return random.choice(left)

    def get_next_index(self, index: int, n: int = 1, start: int | None = None, end: int | None = None) -> int | None:
        """Return the number `n` valid configurations on (back, where `n` is negative); None behind the end."""
        low, high, step = start or 0, end or self.range_length, 1 if n > 0 else -1
        while n:
            index += step
            if not low <= index < high:
                return None
            n -= step if self.is_index_valid(index) else 0
        return index

    def point2knob(self, point: int) -> list[int]:
        """Take a number apart into the numbers of its candidates."""
        found = []
        for size in self.dims:
            point, digit = divmod(point, size)
            found.append(digit)
        return found

    def knob2point(self, knob: Sequence[int]) -> int:
        """Put the numbers of candidates together."""
        point = 0
        for size, digit in zip(reversed(self.dims), reversed(knob), strict=True):
            point = point * size + digit
        return point

    def sample_ints(self, m: int) -> np.ndarray:
        """Draw the numbers of `m` valid configurations, none of them twice."""
        if m > len(self):
            raise InvalidArgument("there are fewer configurations", expected=f"at most {len(self)}", found=str(m))
        drawn: set[int] = set()
        while len(drawn) < m:
            drawn.add(self.get_rand_index(to_exclude=drawn))
        return np.fromiter(drawn, int, len(drawn))

    def random_walk(self, point: int) -> int:
        """Return the number of another configuration: one knob after another is drawn anew until one is valid."""
        before = self.point2knob(point)
        knobs, dims = list(before), self.dims
        while knobs == before or not self.is_index_valid(self.knob2point(knobs)):
            i = random.randrange(len(dims))
            knobs[i] = random.randrange(dims[i])
        return self.knob2point(knobs)

    def _entities(self, index: int) -> dict[str, Any]:
        return {n: s[d] for (n, s), d in zip(self.space_map.items(), self.point2knob(index), strict=True)}

    def get(self, index: int) -> ConfigEntity:
        """Return a configuration by its number.

        Raises
        ------
        IndexOutOfRange
            When there is none, or the filter refuses it.
        """
        if not self.is_index_valid(index):
            raise IndexOutOfRange("the filter refuses this configuration", found=str(index))
        return ConfigEntity(index, self.code_hash, self._entities(index), self._constraints)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entity_map)

    def __getitem__(self, name: str) -> Any:
        return self._entity_map[name]

    def __repr__(self) -> str:
        knobs = "".join(f"  {i:2d} {name}: {space}\n" for i, (name, space) in enumerate(self.space_map.items()))
        return f"ConfigSpace (len={len(self)}, range_length={self.range_length}, space_map=\n{knobs})"


def _shown(entities: dict[str, Any]) -> str:
    return str(list(entities.items()))


_ANNOTATIONS = tuple(
    "none vec unroll blockIdx.x blockIdx.y blockIdx.z threadIdx.x threadIdx.y threadIdx.z vthread fuse".split()
)

_CODES: dict[str, tuple[type[Any], str]] = {
    "sp": (SplitEntity, "size"),
    "re": (ReorderEntity, "perm"),
    "an": (AnnotateEntity, "anns"),
    "ot": (OtherOptionEntity, "val"),
}
"""Kinds of knobs in log files: the class, and the field that is written."""


class ConfigEntity(ConfigSpace):
    """One configuration."""

    def __init__(self, index: int, code_hash: str | None, entity_map: dict[str, Any], constraints: list[Any]) -> None:
        super().__init__()
        self.index, self.code_hash = index, code_hash
        self._collect, self._entity_map, self._constraints = False, entity_map, constraints

    def get_flatten_feature(self) -> np.ndarray:
        """Describe the configuration by numbers, float32."""
        numbers: list[Any] = []
        for entity in self._entity_map.values():
            if isinstance(entity, SplitEntity):
                numbers += entity.size
            elif isinstance(entity, ReorderEntity):
                numbers += list(entity.perm)
            elif isinstance(entity, AnnotateEntity):
                numbers += [float(a == known) for a in entity.anns for known in _ANNOTATIONS]
            else:
                value = entity.val
                numbers.append(value if isinstance(value, (int, float)) else len(str(value)))
        return np.array(numbers, np.float32)

    def get_other_option(self) -> dict[str, Any]:
        """Return the values of the options by name."""
        return {n: e.val for n, e in self._entity_map.items() if isinstance(e, OtherOptionEntity)}

    def to_json_dict(self) -> dict[str, Any]:
        """Return the configuration as lists, strings and numbers, as log files have it."""
        entity = []
        for name, e in self._entity_map.items():
            code, field = next((c, f) for c, (kind, f) in _CODES.items() if isinstance(e, kind))
            value = getattr(e, field)
            entity.append([name, code, list(value) if isinstance(value, (tuple, range)) else value])
        return {"index": int(self.index), "code_hash": self.code_hash, "entity": entity}

    @staticmethod
    def from_json_dict(json_dict: dict[str, Any]) -> ConfigEntity:
        """Read what :meth:`to_json_dict` returned."""
        entities: dict[str, Any] = {}
        for name, code, value in json_dict["entity"]:
            if code not in _CODES:
                raise InvalidArgument("unknown kind of knob in a log", expected=", ".join(_CODES), found=str(code))
            entities[str(name)] = _CODES[code][0](value)
        return ConfigEntity(json_dict["index"], json_dict["code_hash"], entities, [])

    def __repr__(self) -> str:
        return f"{_shown(self._entity_map)},{self.code_hash},{self.index}"


class FallbackConfigEntity(ConfigSpace):
    """The configuration of a workload that nothing is known of: each knob's first candidate, unless set otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.is_fallback = True

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Choose the largest divisors within limits, the innermost part first; -1 is no limit.

        Raises
        ------
        ScheduleError
            When a limit leaves no divisor.
        """
        space, entity = self.space_map[name], self._entity_map[name]
        if not isinstance(space, SplitSpace) or len(constraints) != space.num_output:
            raise InvalidArgument(f"'{name}' is no split of {len(constraints)} parts")
        left = space.product
        for i in reversed(range(space.num_output)):
            fitting = [f for f in get_factors(left) if constraints[i] == -1 or f <= constraints[i]]
            if not fitting:
                raise ScheduleError(f"no divisor of {left} fits part {i} of '{name}'", expected=str(constraints[i]))
            entity.size[i] = fitting[-1]
            left //= fitting[-1]

    def fallback_with_reference_log(self, ref_log: Sequence[tuple[Any, Any]]) -> None:
        """Take over the configuration of the record whose splits are of the most similar lengths."""
        splits = {n: set(get_factors(s.product)) for n, s in self.space_map.items() if isinstance(s, SplitSpace)}
        best, config = 0.0, None
        for inp, _ in ref_log:
            score = 0.0
            for name, factors in splits.items():
                other = get_factors(abs(math.prod(inp.config[name].size)))
                score += len(factors.intersection(other)) / len(factors)
            if score > best:
                best, config = score, inp.config
        if config is None:
            return
        for name in self.space_map:
            if name in splits:
                self.fallback_split(name, [-1, *list(config[name].size)[1:]])
            else:
                self._entity_map[name] = config[name]

    def __setitem__(self, name: str, entity: Any) -> None:
        self._entity_map[name] = entity

    def __repr__(self) -> str:
        return f"{_shown(self._entity_map)},{self.code_hash}"
