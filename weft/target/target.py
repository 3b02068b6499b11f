"""Targets: what code is generated for.

A target is a kind with options; features decide vector width and register tiles.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import llvmlite.binding as llvm

from weft.error import InvalidArgument
from weft.ffi import get_global_func
from weft.ir import Ambient
from weft.target.cpu import (
    BASELINE,
    check_cpu,
    host_features,
    known_host_features,
    model_features,
    with_implied,
    without,
)

__all__ = ["Target", "TargetKind"]

_OPTIONS = {
    "llvm": (
        "mcpu",
        "mattr",
        "mtriple",
        "mabi",
        "num-cores",
        "vector-width",
        "matrix-tiles",
        "opt-level",
        "keys",
        "device",
        "model",
        "host",
        "system-lib",
        "tag",
        "libs",
    ),
    "c": ("mcpu", "march", "keys", "device", "model", "host", "tag"),
    "cuda": ("arch", "max_num_threads", "thread_warp_size", "keys", "device", "model", "host", "tag", "libs"),
    "nvptx": (
        "mcpu",
        "mattr",
        "mtriple",
        "max_num_threads",
        "thread_warp_size",
        "opt-level",
        "keys",
        "device",
        "model",
        "host",
        "tag",
        "libs",
    ),
}
_NVPTX_CPUS = {
    **dict.fromkeys(("sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_75"), 63),
    "sm_80": 70, "sm_86": 71, "sm_87": 74, "sm_89": 78, "sm_90": 78, "sm_90a": 80,
    **dict.fromkeys(("sm_100", "sm_100a"), 86), **dict.fromkeys(("sm_120", "sm_120a"), 87),
    **dict.fromkeys(("sm_100f", "sm_103", "sm_103a", "sm_103f", "sm_120f", "sm_121", "sm_121a", "sm_121f"), 88),
    **dict.fromkeys(("sm_88", "sm_110", "sm_110a", "sm_110f"), 90),
}  # fmt: skip
"""Architecture to the least version of PTX that has it, and shuffles and barriers of warps."""
_NVPTX_DEFAULT = "sm_70"
_PTX_VERSIONS = (63, 64, 65, *range(70, 79), *range(80, 89), 90)


class TargetKind:
    """The kind of a target."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return str(other) == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class Target:
    """A target.

    Parameters
    ----------
    target : str, mapping or Target
        ``"llvm"``, ``"llvm -mcpu=haswell -mattr=+avx2,-avx512f -mtriple=aarch64-linux-gnu"``, ``{"kind": "llvm",
        "mcpu": ...}``. ``-matrix-tiles=off`` computes products without matrix tiles (AMX) where there are some.
    host : str or Target, optional
        The target of host code, for kinds of devices.

    Examples
    --------
    >>> Target("llvm -mattr=+avx2").kind.name
    'llvm'
    """

    _open: Ambient[Target] = Ambient("Target")

    def __init__(self, target: str | Mapping[str, Any] | Target = "llvm", host: Any = None) -> None:
        if isinstance(target, Target):
            kind, attrs = target.kind.name, dict(target.attrs)
            host = target.host if host is None else host
        elif isinstance(target, str):
            kind, attrs = _parse(target)
        else:
            attrs = dict(target)
            kind = attrs.pop("kind", "llvm")
        own = get_global_func(f"target.build.{kind}", allow_missing=True) is not None  # a user's: it knows its options
        if kind not in _OPTIONS and not own:
            near = difflib.get_close_matches(kind, _OPTIONS, 1)
            raise InvalidArgument(
                f"unknown target kind '{kind}'",
                expected=", ".join(_OPTIONS),
                help=f"did you mean '{near[0]}'?" if near else f"or register a generator 'target.build.{kind}'",
            )
        for name in attrs:
            if kind in _OPTIONS and name not in _OPTIONS[kind]:
                near = difflib.get_close_matches(name, _OPTIONS[kind], 1)
                raise InvalidArgument(
                    f"target '{kind}' has no option '-{name}'",
                    expected="one of " + ", ".join("-" + o for o in _OPTIONS[kind]),
                    help=f"did you mean '-{near[0]}'?" if near else None,
                )
        _check_values(kind, attrs)
        self.kind = TargetKind(kind)
        host = host if host is not None else attrs.pop("host", None)
        self.host: Target | None = None if host is None else Target(host)
        self.attrs: dict[str, Any] = attrs
        if kind == "llvm" and attrs.get("mcpu") == "native":
            del attrs["mcpu"]
        if kind == "nvptx":
            _check_nvptx(attrs)
        elif kind == "llvm" and ("mcpu" in attrs or "mattr" in attrs):
            on, off = self._named_features()
            check_cpu(self.triple, attrs.get("mcpu"), (*on, *off))

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """Return the innermost ``with Target(...)``."""
        found = Target._open.current
        if found is None and not allow_none:
            raise InvalidArgument("there is no current target", help="use `with Target('llvm'):`")
        return found

    def __enter__(self) -> Target:
        return Target._open.enter(self)

    def __exit__(self, *_: Any) -> None:
        Target._open.leave(self)

    def __str__(self) -> str:
        shown = {**self.attrs}
        if self.kind.name == "llvm" and self.is_host:
            shown["mattr"] = self.attribute_string
        return " ".join([self.kind.name, *(f"-{k}={_text(v)}" for k, v in sorted(shown.items()))])

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def triple(self) -> str:
        """LLVM's target triple."""
        return self.attrs.get("mtriple") or (
            "nvptx64-nvidia-cuda" if self.kind.name == "nvptx" else llvm.get_process_triple()
        )

    @property
    def is_host(self) -> bool:
        """Whether code for this target runs in this process."""
        return self.triple.split("-")[0] == llvm.get_process_triple().split("-")[0]

    @cached_property
    def features(self) -> frozenset[str]:
        """CPU features: the host's, or those that ``-mcpu`` and ``-mattr`` name."""
        on, off = self._named_features()
        if "mcpu" in self.attrs:
            base = model_features(self.attrs["mcpu"])
        elif self.is_host and not on:  # "-mattr=-avx512f" is this machine without
            base = host_features()
        else:
            base = frozenset[str]()
        if self.triple.startswith("x86_64"):
            base |= BASELINE
        return without(base | with_implied(on), set(off) - BASELINE)

    def _named_features(self) -> tuple[list[str], list[str]]:
        """List what ``-mattr`` adds and what it takes away."""
        names = [n for n in _text(self.attrs.get("mattr") or ()).split(",") if n]
        return [n.lstrip("+") for n in names if n[0] != "-"], [n[1:] for n in names if n[0] == "-"]

    @cached_property
    def attribute_string(self) -> str:
        """The features as LLVM's ``+a,-b`` text; what is taken away comes last, where it counts."""
        on = self.features
        if self.kind.name == "nvptx":
            return ",".join("+" + f for f in sorted(on)) or f"+ptx{_NVPTX_CPUS[self.cpu]}"
        off = {f for f in self._named_features()[1] if f not in BASELINE}
        if self.is_host and "mcpu" not in self.attrs:  # the model behind `cpu` may have more than this machine
            off = known_host_features() - on
        return ",".join([*("+" + f for f in sorted(on)), *("-" + f for f in sorted(off))])

    @property
    def cpu(self) -> str:
        """The CPU model whose scheduling LLVM uses, derived from features."""
        if "mcpu" in self.attrs:
            return self.attrs["mcpu"]
        if self.kind.name == "nvptx":
            return _NVPTX_DEFAULT
        if not self.triple.startswith("x86_64"):
            return ""
        if "amx-tile" in self.features:
            return "sapphirerapids"
        return "icelake-server" if "avx512vl" in self.features else "haswell" if "avx2" in self.features else "x86-64"

    @property
    def vector_bits(self) -> int:
        """The width of a vector register in bits."""
        if "vector-width" in self.attrs:
            return int(self.attrs["vector-width"])
        return 512 if "avx512f" in self.features else 256 if "avx2" in self.features or "avx" in self.features else 128

    @property
    def scaled_lanes(self) -> tuple[int, ...]:
        """Lengths of float32 vectors that are multiplied by powers of two in one instruction."""
        return (4, 8, 16) if {"avx512f", "avx512vl"} <= self.features and self.vector_bits >= 512 else ()

    @property
    def dot_forms(self) -> tuple[tuple[str, str, str, int], ...]:
        """Instructions that add groups of narrow products: types of the factors and of the sum, and lanes."""
        f, wide = self.features, self.vector_bits >= 512
        forms: list[tuple[str, str, str, int]] = []
        if "avx512vnni" in f and wide:
            forms.append(("uint8", "int8", "int32", 16))
        elif "avxvnni" in f or {"avx512vnni", "avx512vl"} <= f:
            forms.append(("uint8", "int8", "int32", 8))
        if "avx512bf16" in f and wide:
            forms.append(("bfloat16", "bfloat16", "float32", 16))
        return tuple(forms)

    @property
    def tile_forms(self) -> tuple[tuple[str, str, str], ...]:
        """Products that matrix tiles compute: types of the factors and of the sum; float32 as parts of bfloat16."""
        if self.attrs.get("matrix-tiles") == "off" or "amx-bf16" not in self.features or self.vector_bits < 512:
            return ()
        return (("float32", "float32", "float32"), ("bfloat16", "bfloat16", "float32"))

    @property
    def num_vector_registers(self) -> int:
        """The number of vector registers."""
        if self.triple.startswith(("aarch64", "arm64")):
            return 32
        return 32 if "avx512f" in self.features else 16

    @property
    def num_cores(self) -> int:
        """The number of cores that the process may use, or that ``-num-cores`` says."""
        return int(self.attrs.get("num-cores") or len(os.sched_getaffinity(0)))

    def as_script(self) -> str:
        """Return the target as TVMScript."""
        config = {"kind": self.kind.name, **self.attrs, **({"host": self.host.export()} if self.host else {})}
        return f"T.target({config!r})"

    def export(self) -> dict[str, Any]:
        """Return the target as a dictionary."""
        return {"kind": self.kind.name, **self.attrs}


_NUMBERS = ("num-cores", "vector-width", "opt-level", "max_num_threads", "thread_warp_size")
_FLAGS = ("system-lib",)


def _check_values(kind: str, attrs: Mapping[str, Any]) -> None:
    """Refuse options without a value, and what is no number where one is needed."""
    if kind not in _OPTIONS:
        return
    for name, value in attrs.items():
        if value is True and name not in _FLAGS:
            raise InvalidArgument(f"option '-{name}' of target '{kind}' has no value", expected=f"-{name}=value")
        if name in _NUMBERS and not str(value).isdigit():
            raise InvalidArgument(f"option '-{name}' of target '{kind}' is a number", found=repr(value))
        if name == "matrix-tiles" and value not in ("on", "off"):
            raise InvalidArgument("option '-matrix-tiles' of target 'llvm' is on or off", found=repr(value))


def _check_nvptx(attrs: Mapping[str, Any]) -> None:
    """Refuse an architecture or a version of PTX that LLVM does not have: it would end the process."""
    cpu = str(attrs.get("mcpu", _NVPTX_DEFAULT))
    if cpu not in _NVPTX_CPUS:
        near = difflib.get_close_matches(cpu, _NVPTX_CPUS, 1)
        raise InvalidArgument(
            f"target 'nvptx' has no architecture '{cpu}'",
            expected="one of " + ", ".join(sorted(_NVPTX_CPUS, key=lambda c: (len(c.rstrip("af")), c))),
            help=f"did you mean '-mcpu={near[0]}'?" if near else None,
        )
    possible = [f"+ptx{v}" for v in _PTX_VERSIONS if v >= _NVPTX_CPUS[cpu]]
    if "mattr" in attrs and _text(attrs["mattr"]) not in possible:
        raise InvalidArgument(
            f"-mattr of target 'nvptx' is a version of PTX that has {cpu}",
            expected="one of " + ", ".join(possible),
            found=repr(_text(attrs["mattr"])),
        )


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    words = shlex.split(text)
    if not words:
        raise InvalidArgument("an empty target", expected="'llvm', 'c', 'cuda', ...")
    attrs: dict[str, Any] = {}
    for w in words[1:]:
        name, eq, value = w.lstrip("-").partition("=")
        if not w.startswith("-"):
            raise InvalidArgument(f"target option '{w}' is malformed", expected="-name=value", found=text)
        attrs[name] = value if eq else True
    return words[0], attrs
