"""Targets: what code is generated for.

A target is a kind with options; features decide vector width and register tiles.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import llvmlite.binding as llvm

from weft import error, ir, runtime
from weft.machine import OPTION_OF, OPTIONS, UNKNOWN, Machine, host_facts, option_fields
from weft.target.cpu import host_features, known_host_features, model_features, with_implied, without
from weft.target.kind import TargetKind, kind_named, kind_names
from weft.target.remote import options_of_device
from weft.target.tags import tag_options
from weft.target.triple import BASELINE, Architecture, architecture, triple_of


@runtime.Object.register
class Target:
    """A target.

    Parameters
    ----------
    target : str, mapping or Target
        ``"llvm"``, ``"llvm -mcpu=haswell -mattr=+avx2,-avx512f"``, ``"aarch64-linux-gnu -mcpu=cortex-a76"``,
        ``{"kind": "llvm", "mcpu": ...}``. ``-matrix-tiles=off`` computes products without matrix tiles (AMX) where
        there are some.
    host : str or Target, optional
        The target of host code, for kinds of devices.

    Examples
    --------
    >>> Target("llvm -mattr=+avx2").kind.name
    'llvm'
    """

    _open: ir.Ambient[Target] = ir.Ambient("Target")

    def __init__(self, target: str | Mapping[str, Any] | Target = "llvm", host: Any = None) -> None:
        if isinstance(target, Target):
            kind, attrs = target.kind, dict(target.attrs)
            host = target.host if host is None else host
        elif not isinstance(target, (str, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise error.InvalidArgument("no target", expected="text such as 'llvm', or a mapping", found=repr(target))
        else:
            name, attrs = parse(target) if isinstance(target, str) else ("llvm", dict(target))
            tag = attrs.get("tag") or (name if isinstance(target, str) else None)
            attrs = {**((tag_options(tag) if tag else None) or {}), **attrs}
            if tag and tag_options(tag) is not None:
                attrs["tag"] = tag
            triple = triple_of(name) if isinstance(target, str) else None
            if triple is not None:
                name, attrs = "llvm", {"mtriple": triple, **attrs}
            kind = kind_named(str(attrs.pop("kind", name)))
        attrs = {k: list(v) if isinstance(v, tuple) else v for k, v in attrs.items()}
        _check_options(kind, attrs)
        self.kind: TargetKind = kind
        host = host if host is not None else attrs.pop("host", None)
        if host is not None and not isinstance(host, (str, Mapping, Target)):
            raise error.InvalidArgument("the target host has to be a string or dictionary", found=repr(host))
        self.host: Target | None = None if host is None else Target(host)
        self.attrs: dict[str, Any] = attrs
        if kind.check is not None:
            kind.check(self)

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """Return the innermost ``with Target(...)``."""
        found = Target._open.current
        if found is None and not allow_none:
            raise error.InvalidArgument("there is no current target", help="use `with Target('llvm'):`")
        return found

    @staticmethod
    def from_device(device: Any) -> Target:
        """Return the target of a device, such as ``weft.cpu(0)`` or ``"cuda"``, with what it says.

        The CPU of a session, ``session.cpu()``, is the other machine's: its features, vectors, caches and cores.
        """
        if getattr(device, "_rpc_sess", None) is not None and int(device.device_type) % 128 == 1:
            return Target(options_of_device(device))
        found = runtime.Device(device)
        if found.type == "cpu":
            return Target("llvm")
        if not found.exist:
            raise error.InvalidArgument(f"cannot describe {found}: there is no such device", found=str(device))
        facts = {
            "max_threads_per_block": found.max_threads_per_block,
            "thread_warp_size": found.warp_size,
            "max_shared_memory_per_block": found.max_shared_memory_per_block,
        }
        arch = {"arch": "sm_" + str(found.compute_version).replace(".", "")} if found.type == "cuda" else {}
        return Target({"kind": found.type, **facts, **arch})

    @staticmethod
    def list_kinds() -> list[str]:
        """List the names of all kinds of targets."""
        return kind_names()

    def with_host(self, host: Any = None) -> Target:
        """Return the target with another target for host code."""
        out = Target(self)
        out.host = None if host is None else Target(host)
        return out

    @staticmethod
    def target_or_current(target: TargetLike | None) -> Target:
        """Return a target, or that of ``with Target(...)`` where none is given.

        Raises
        ------
        InvalidArgument
            When there is neither.
        """
        found = Target.current() if target is None else Target(target)
        if found is None:
            raise error.InvalidArgument("no target is given and none is current", help="with Target(...): around it")
        return found

    @staticmethod
    def canon_target(target: TargetLike | None) -> Target | None:
        """Return a target given in any form as one; None stays."""
        return None if target is None else Target(target)

    @staticmethod
    def canon_target_and_host(
        target: TargetLike | None, target_host: TargetLike | None = None
    ) -> tuple[Target | None, Target | None]:
        """Return a target with a host, and the host: `target_host`, or the one that the target has."""
        if target is None:
            return None, Target.canon_target(target_host)
        made = Target(target) if target_host is None else Target(target).with_host(target_host)
        return made, made.host

    @staticmethod
    def canon_multi_target(multi_targets: Any) -> list[Target]:
        """Return one target, or several in a sequence or as the values of a mapping, as a list."""
        if isinstance(multi_targets, Mapping) and "kind" not in multi_targets:
            return [Target(t) for t in multi_targets.values()]
        return [Target(t) for t in (multi_targets if isinstance(multi_targets, (list, tuple)) else [multi_targets])]

    @staticmethod
    def canon_multi_target_and_host(target: Any, target_host: TargetLike | None = None) -> list[Target]:
        """Return :meth:`canon_multi_target` with a host for each."""
        made = Target.canon_multi_target(target)
        return made if target_host is None else [t.with_host(target_host) for t in made]

    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[Any, Any], target_host: TargetLike | None = None
    ) -> tuple[dict[Target, Any], Target | None]:
        """Return a mapping from targets to modules with a host for each, and the host."""
        made = {Target.canon_target_and_host(t, target_host)[0]: mod for t, mod in target_map.items()}
        host = next((t.host for t in made if t is not None and t.host is not None), None)
        return {t: mod for t, mod in made.items() if t is not None}, host

    @property
    def keys(self) -> list[str]:
        """What it is like, the most special first: as its option says, else its device and what its kind is."""
        given = self.attrs.get("keys")
        named = given.split(",") if isinstance(given, str) else list(given or ())
        device = self.attrs.get("device")
        return list(dict.fromkeys([*named, *([str(device)] if device and not named else []), *self.kind.keys]))

    @property
    def tag(self) -> str:
        """The tag that it was made of, or an empty text."""
        return str(self.attrs.get("tag", ""))

    @property
    def libs(self) -> list[str]:
        """Libraries that it names."""
        given = self.attrs.get("libs", ())
        return given.split(",") if isinstance(given, str) else list(given)

    @property
    def model(self) -> str:
        """The model of the device, ``"unknown"`` where none is named."""
        return str(self.attrs.get("model", "unknown"))

    @property
    def device_name(self) -> str:
        """The device that it names, or an empty text."""
        return str(self.attrs.get("device", ""))

    @property
    def mattr(self) -> list[str]:
        """Features that it adds and takes away."""
        return [n for n in option_text(self.attrs.get("mattr") or ()).split(",") if n]

    @property
    def mcpu(self) -> str:
        """The model of the processor that it names, or an empty text."""
        return str(self.attrs.get("mcpu", ""))

    @property
    def arch(self) -> str:
        """The architecture of a GPU that it names, or an empty text."""
        return str(self.attrs.get("arch", ""))

    @property
    def max_num_threads(self) -> int:
        """The most threads of a block."""
        default = 1024 if self.kind.device == "cuda" else 256
        return int(self.attrs.get("max_num_threads", self.attrs.get("max_threads_per_block", default)))

    @property
    def max_function_args(self) -> int:
        """The most arguments of a kernel; -1 where the target has no limit."""
        return int(self.attrs.get("max_function_args", self.attribute("max_function_args", -1)))

    @property
    def thread_warp_size(self) -> int:
        """Threads that run in step."""
        return int(self.attrs.get("thread_warp_size", 32 if self.kind.device == "cuda" else 1))

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes of shared memory that a block may use."""
        default = self.attribute("max_shared_memory_per_block", 49152)
        return int(self.attrs.get("max_shared_memory_per_block", default))

    @property
    def l2_cache_size_bytes(self) -> int:
        """Bytes of the second cache, 0 where it is not known."""
        return int(self.attrs.get("l2_cache_size_bytes", 0))

    def get_target_device_type(self) -> int:
        """DLPack's number of the device that its code runs on."""
        given = self.attrs.get("target_device_type")
        return int(given) if given is not None else runtime.Device(self.kind.device).device_type

    def get_kind_attr(self, attr_name: str) -> Any:
        """Return what its kind decides, or None."""
        return self.kind.attribute(attr_name)

    @staticmethod
    def of(target: Target | str | Mapping[str, Any] | None = None) -> Target:
        """Return the target that an argument means; None is the current one, else this machine's CPU."""
        given = target if target is not None else Target.current() or "llvm"
        return given if isinstance(given, Target) else Target(given)

    def __enter__(self) -> Target:
        return Target._open.enter(self)

    def __exit__(self, *_: Any) -> None:
        Target._open.leave(self)

    def __str__(self) -> str:
        return self._text(described=False)

    @property
    def identity(self) -> str:
        """Its text with what this machine says of itself, where that is what code is made for: the name in records."""
        return self._text(described="mattr" in (self.kind.options or ()))

    @property
    def described_text(self) -> str:
        """Its text with all that this machine says of itself, also where the kind has no option for features."""
        return self._text(described=True)

    def _text(self, described: bool) -> str:
        shown = {**self.attrs}
        if self.is_host and described:
            shown["mattr"] = self.attribute_string
            facts = {f: getattr(self.machine, f) for f in host_facts()} if self._is_here else {}
            shown |= {OPTION_OF[f]: n for f, n in facts.items() if n != getattr(UNKNOWN, f)}
        return " ".join([self.kind.name, *(f"-{k}={shlex.quote(option_text(v))}" for k, v in sorted(shown.items()))])

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def triple(self) -> str:
        """LLVM's target triple."""
        return self.attrs.get("mtriple") or self.kind.triple or llvm.get_process_triple()

    @cached_property
    def architecture(self) -> Architecture:
        """What the triple says of the machine."""
        return architecture(self.triple)

    @property
    def abi(self) -> str:
        """LLVM's name of the convention of calls, empty where the triple decides it."""
        return str(self.attrs.get("mabi") or self.architecture.abi)

    @property
    def pointer_bits(self) -> int:
        """The width of a pointer."""
        return self.architecture.pointer_bits

    @property
    def is_host(self) -> bool:
        """Whether code for this target runs in this process."""
        return self.kind.device == "cpu" and self.triple.split("-")[0] == llvm.get_process_triple().split("-")[0]

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is what another machine says of itself, with its number of cores."""
        return self.is_host and not self._is_here and OPTION_OF["cores"] in self.attrs

    @property
    def _is_here(self) -> bool:
        """Whether it is this machine, with or without some features, and not another one that it describes."""
        return self.is_host and self._model is None and not self.named_features()[0]

    @property
    def _model(self) -> str | None:
        """The model of a CPU that ``-mcpu`` names."""
        model = self.attrs.get("mcpu")
        return None if model == "native" else model

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return what its kind decides (:meth:`TargetKind.attribute`)."""
        return self.kind.attribute(name, default)

    @cached_property
    def features(self) -> Features:
        """CPU features: the host's, or those that ``-mcpu`` and ``-mattr`` name."""
        on, off = self.named_features()
        if self._model is not None:
            base = model_features(self._model)
        elif self._is_here:  # "-mattr=-avx512f" is this machine without
            base = host_features()
        else:
            base = frozenset[str]()
        return Features(without(base | self.architecture.baseline | with_implied(on), set(off) - BASELINE))

    def named_features(self) -> tuple[list[str], list[str]]:
        """List what ``-mattr`` adds and what it takes away."""
        names = [n for n in option_text(self.attrs.get("mattr") or ()).split(",") if n]
        return [n.lstrip("+") for n in names if n[0] != "-"], [n[1:] for n in names if n[0] == "-"]

    @cached_property
    def attribute_string(self) -> str:
        """The features as LLVM's ``+a,-b`` text; what is taken away comes last, where it counts."""
        if self.kind.attributes_text is not None:
            return self.kind.attributes_text(self)
        on = self.features
        off = {f for f in self.named_features()[1] if f not in BASELINE}
        if self.is_host and self._model is None:  # the model behind `cpu` may have more than this machine
            off = known_host_features() - on
        return ",".join([*("+" + f for f in sorted(on)), *("-" + f for f in sorted(off))])

    @property
    def cpu(self) -> str:
        """The CPU model whose scheduling LLVM uses, derived from features."""
        if self._model is not None:
            return self._model
        if self.kind.cpu:
            return self.kind.cpu
        if not self.triple.startswith("x86_64"):
            return ""
        if "amx-tile" in self.features:
            return "sapphirerapids"
        return "icelake-server" if "avx512vl" in self.features else "haswell" if "avx2" in self.features else "x86-64"

    @property
    def machine(self) -> Machine:
        """What it says of the machine: its options, what its features mean, this machine's own facts, or defaults."""
        return self._machine

    @cached_property
    def _machine(self) -> Machine:
        f = self.features
        known: dict[str, Any] = {
            "vector_bits": self.architecture.vector_bits(f) or UNKNOWN.vector_bits,
            "vector_registers": 32 if "avx512f" in f else self.architecture.vector_registers,
            **(host_facts() if self._is_here else {}),
            **option_fields(self.attrs),
        }
        return Machine(features=f, matrix_tiles=self.attrs.get("matrix-tiles") != "off", **known)

    @property
    def vector_bits(self) -> int:
        """The width of a vector register in bits."""
        return self.machine.vector_bits

    @property
    def dot_forms(self) -> tuple[tuple[str, str, str, int], ...]:
        """Instructions that add groups of narrow products: types of the factors and of the sum, and lanes."""
        return self.machine.dot_forms

    @property
    def tile_forms(self) -> tuple[tuple[str, str, str], ...]:
        """Products that matrix tiles compute: types of the factors and of the sum; float32 as parts of bfloat16."""
        return self.machine.tile_forms

    @property
    def num_vector_registers(self) -> int:
        """The number of vector registers."""
        return self.machine.vector_registers

    @property
    def num_cores(self) -> int:
        """The number of cores that the process may use, or that ``-num-cores`` says."""
        return self.machine.cores

    def as_script(self) -> str:
        """Return the target as TVMScript."""
        config = {"kind": self.kind.name, **self.attrs, **({"host": self.host.export()} if self.host else {})}
        return f"T.target({config!r})"

    def export(self) -> dict[str, Any]:
        """Return the target as a dictionary."""
        return {"kind": self.kind.name, **self.attrs}


ir.register_json_form(Target, "target", lambda t: t.export() | ({"host": t.host} if t.host else {}), Target)

_NUMBERS = ("opt-level", "max_num_threads", "thread_warp_size")
_FLAGS = ("system-lib",)


def _check_plain(kind: TargetKind, name: str, value: Any) -> None:
    """Refuse a mapping as an option's value, lists inside of lists, and lists where one word is meant."""
    if isinstance(value, Mapping):
        raise error.InvalidArgument(f"option '-{name}' of target '{kind}' is no mapping", found=repr(value))
    words = value if isinstance(value, list) and name not in _WORDS else [value]
    if any(isinstance(w, (list, Mapping)) or w is None for w in words) or (
        name in _WORDS and not isinstance(value, (str, bool))
    ):
        wanted = "a string" if name in _WORDS else "a string, a number, or a list of these"
        raise error.InvalidArgument(f"option '-{name}' of target '{kind}'", expected=wanted, found=repr(value))


def _check_options(kind: TargetKind, attrs: Mapping[str, Any]) -> None:
    """Refuse options that a kind does not have, those without a value, and what is no number where one is needed."""
    for name, value in attrs.items():
        if name != "host":
            _check_plain(kind, name, value)
        if kind.options is not None and name not in (*kind.options, *OPTIONS):
            near = difflib.get_close_matches(name, (*kind.options, *OPTIONS), 1)
            raise error.InvalidArgument(
                f"target '{kind}' has no option '-{name}'",
                expected="one of " + ", ".join("-" + o for o in (*kind.options, *OPTIONS)),
                help=f"did you mean '-{near[0]}'?" if near else None,
            )
        if value is True and name not in _FLAGS and (name in OPTIONS or kind.options is not None):
            raise error.InvalidArgument(f"option '-{name}' of target '{kind}' has no value", expected=f"-{name}=value")
        if (name in OPTIONS or name in _NUMBERS) and not str(value).isdigit():
            raise error.InvalidArgument(f"option '-{name}' of target '{kind}' is a number", found=repr(value))
        if name in OPTIONS and int(value) == 0:
            raise error.InvalidArgument(f"option '-{name}' of target '{kind}' is a positive number", found=repr(value))
        if name == "cache-line-bytes" and int(value) not in (32, 64, 128, 256):
            raise error.InvalidArgument("lines of caches have 32, 64, 128 or 256 bytes", found=f"-{name}={value}")
        if name == "matrix-tiles" and value not in ("on", "off"):
            raise error.InvalidArgument(f"option '-matrix-tiles' of target '{kind}' is on or off", found=repr(value))


class Features(frozenset[str]):
    """Features of a processor; asked for as attributes, ``features.has_avx2``, too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_"):
            raise AttributeError(name)
        return name.removeprefix("has_").replace("_", "-") in self or name.removeprefix("has_") in self


def option_text(value: object) -> str:
    """The text of an option's value; lists are separated by commas."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Read the text of a target: its kind and its options."""
    if text.lstrip().startswith("{"):
        options = _json_options(text)
        return str(options.pop("kind", "llvm")), options
    words = shlex.split(text)
    if not words:
        raise error.InvalidArgument("an empty target", expected="'llvm', 'c', 'cuda', ...")
    attrs: dict[str, Any] = {}
    rest = words[:0:-1]
    while rest:
        w = rest.pop()
        name, eq, value = w.lstrip("-").partition("=")
        if not w.startswith("-"):
            raise error.InvalidArgument(f"target option '{w}' is malformed", expected="-name=value", found=text)
        if not eq and rest and not rest[-1].startswith("-"):  # -name value
            eq, value = "=", rest.pop()
        attrs[name] = (value.split(",") if name in _LISTS else value) if eq else True
    return words[0], attrs


_WORDS = ("mcpu", "mtriple", "tag", "arch")
_LISTS = ("libs", "keys", "cl-opt", "devices")


def _json_options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except json.JSONDecodeError as e:
        raise error.InvalidArgument("the text of a target is no JSON", found=f"column {e.colno}: {e.msg}") from None
    return options


TargetLike = Target | str | Mapping[str, Any]
"""What a target is made of."""
