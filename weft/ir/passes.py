"""Passes: functions from module to module, the context they run in, and the instruments that watch them.

A pass is a plain function ``fn(mod, *, option=...) -> IRModule`` under :func:`module_pass`, or ``fn(func, mod, *,
...) -> function`` under :func:`function_pass`. Calling the decorated name with options makes a :class:`Pass`; calling
that with a module runs it. Contract: input verifies, output verifies, the input is left untouched, and what needs no
change keeps its identity.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from weft import environment
from weft.error import InvalidArgument
from weft.ir.ambient import Ambient
from weft.ir.expr import BaseFunc
from weft.ir.module import IRModule
from weft.ir.pass_config import checked_config, config_options, near_names

_PASSES: dict[str, Callable[..., Pass]] = {}


class PassInstrument:
    """Watches passes run; override what you need."""

    def enter_pass_ctx(self) -> None:
        """Called when a context with this instrument is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when it is left."""

    def should_run(self, mod: IRModule, info: Pass) -> bool:
        """Whether a pass is to run; where one instrument says no, it does not."""
        return True

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Called before each pass that runs."""

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Called after each pass, with its output."""

    def see_text(self, function: str, file: str, text: Callable[[], str]) -> None:
        """Called with what no pass returns: a schedule's trace, LLVM IR, assembly, bytecode, under a file's name.

        `function` is the kernel that it belongs to, or empty; `text` makes it.
        """


class PrintIR(PassInstrument):
    """Prints the module after each pass whose name matches a regular expression.

    As a pass among others it prints the module itself, below `header`; constants are always printed.
    """

    name, opt_level = "PrintIR", 0  # as a pass of a Sequential

    def __init__(
        self, pattern: str = "", before: bool = False, *, header: str = "", show_meta_data: bool = False
    ) -> None:
        self.pattern, self.before = re.compile(header or pattern), before

    def __call__(self, mod: IRModule) -> IRModule:
        """Print a module, as a pass among others; `pattern` is the heading."""
        print(f"{self.pattern.pattern}\n{mod}".lstrip())
        return mod

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Print the module before the pass, if asked to."""
        if self.before and self.pattern.search(info.name):
            print(f"# before {info.name}\n{mod}\n")

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Print the module after the pass."""
        if self.pattern.search(info.name):
            print(f"# after {info.name}\n{mod}\n")


class TimePasses(PassInstrument):
    """Adds up the time of each pass, in milliseconds, in ``times_ms``."""

    def __init__(self) -> None:
        self.times_ms: dict[str, float] = {}
        self._starts = threading.local()  # kernels are compiled on several threads

    def run_before_pass(self, mod: IRModule, info: Pass) -> None:
        """Start the clock of the pass."""
        self._starts.__dict__.setdefault("open", []).append(time.perf_counter())

    def run_after_pass(self, mod: IRModule, info: Pass) -> None:
        """Stop the clock of the pass."""
        elapsed = (time.perf_counter() - self._starts.open.pop()) * 1e3
        self.times_ms[info.name] = self.times_ms.get(info.name, 0.0) + elapsed


_VERIFY = environment.VERIFY.read()


class PassContext:
    """Options for the passes that run inside ``with PassContext(...):``.

    Parameters
    ----------
    opt_level : int
        Passes ask for a level; those above are skipped by :class:`Sequential`.
    instruments : iterable of PassInstrument
        Watchers of each pass.
    config : mapping
        Options by key, such as ``{"tir.disable_vectorize": True}``; :meth:`list_configs` has all.
    required_pass, disabled_pass : iterable of str
        Names of passes to run whatever their level, and to leave out; those of one dialect alone may be written with
        it, as TVM does (``tir.UnrollLoop``). A name that no pass has is warned of when the context ends: until then
        the user's program may make one.
    verify : bool
        Whether to check the form of the module after each pass; by default as the context around it does, and
        outside of any where the environment says ``WEFT_VERIFY=1``.

    Raises
    ------
    InvalidArgument
        When there is no such option, or its value has another type.
    """

    _open: Ambient[PassContext] = Ambient("PassContext")

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Iterable[str] = (),
        disabled_pass: Iterable[str] = (),
        instruments: Iterable[Any] = (),
        config: Mapping[str, Any] | None = None,
        *,
        verify: bool | None = None,
    ) -> None:
        outer = PassContext._open.current
        self.opt_level = opt_level
        self.required_pass, self.disabled_pass = frozenset(required_pass or ()), frozenset(disabled_pass or ())
        self.instruments = [*(instruments or ())]
        self.config: dict[str, Any] = checked_config(config)
        self.verify = verify if verify is not None else (outer.verify if outer is not None else _VERIFY)

    def __enter__(self) -> PassContext:
        self._enter_instruments()
        return PassContext._open.enter(self)

    def __exit__(self, *_: Any) -> None:
        PassContext._open.leave(self)
        self._exit_instruments(self.instruments)
        for name in sorted(self.required_pass | self.disabled_pass):
            if not _has(_NAMES | _WITHOUT, name):
                warnings.warn(f"no pass is called '{name}'; {near_names(name, _NAMES)}", stacklevel=2)

    def override_instruments(self, instruments: Iterable[Any]) -> None:
        """Let others watch from here on: those that did leave the context, these enter it."""
        self._exit_instruments(self.instruments)
        self.instruments = [*(instruments or ())]
        self._enter_instruments()

    def _enter_instruments(self) -> None:
        """Tell the instruments; where one refuses, those that were told leave, and none is left."""
        entered: list[Any] = []
        try:
            for i in self.instruments:
                i.enter_pass_ctx()
                entered.append(i)
        except BaseException:
            self.instruments = []
            self._exit_instruments(entered)
            raise

    def _exit_instruments(self, instruments: Sequence[Any]) -> None:
        try:
            for i in instruments:
                i.exit_pass_ctx()
        except BaseException:
            self.instruments = []
            raise

    @contextmanager
    def again(self) -> Generator[None]:
        """Make a context current that was, or a copy of one; whose names were checked, or will be."""
        PassContext._open.enter(self)
        try:
            yield
        finally:
            PassContext._open.leave(self)

    def enabled(self, p: Pass) -> bool:
        """Whether :class:`Sequential` runs a pass."""
        if _has(self.disabled_pass, p.name):
            return False
        return p.opt_level <= self.opt_level or _has(self.required_pass, p.name)

    @staticmethod
    def current() -> PassContext:
        """Return the innermost context, or the default one."""
        return PassContext._open.current or _DEFAULT

    @staticmethod
    def list_configs() -> dict[str, dict[str, Any]]:
        """Return ``type``, ``default`` and ``doc`` of each option of ``config`` by its name."""
        return {name: option._asdict() for name, option in sorted(config_options().items())}


def show_text(function: str, file: str, text: Callable[[], str]) -> None:
    """Tell the instruments of the current context of a text, as in :meth:`PassInstrument.see_text`."""
    for i in PassContext.current().instruments:
        if hasattr(i, "see_text"):  # TVM's instruments have not
            i.see_text(function, file, text)


def _has(names: Iterable[str], name: str) -> bool:
    """Whether a pass is named, with or without the dialect that is part of some names, as in ``tir.VectorizeLoop``."""
    return name in names or _plain(name) in map(_plain, names)


def _plain(name: str) -> str:
    dialect, _, rest = name.partition(".")
    return rest if dialect in ("tir", "tirx", "s_tir", "relay", "relax") else name


_NAMES: set[str] = set()
"""Of all passes that were made or can be."""
_WITHOUT = frozenset(  # what TVM's programs leave out and Weft has not
    """AlterOpLayout BackwardFoldScaleAxis CanonicalizeLoop CombineParallelBatchMatmul CombineParallelConv2D
    CombineParallelDense CommonSubexprElimTIR DefuseOps DynamicToStatic FastMath FoldScaleAxis ForwardFoldScaleAxis
    FuseTIR HoistExpression Legalize LowerTE MetaScheduleApplyDatabase PlanDevices QnnCanonicalize
    RemoveStandaloneReshapes SimplifyInference SplitArgs StaticPlanBlockMemory
    ToMixedPrecision""".split()
)
_DEFAULT = PassContext()
_VERIFIERS: list[Callable[[IRModule, Any], None]] = []


def on_verify(check: Callable[[IRModule, Any], None]) -> None:
    """Add ``check(mod, pass)``, run after each pass when the context asks for verification."""
    _VERIFIERS.append(check)


class Pass:
    """A pass with its options bound; calling it with a module runs it under the current context."""

    def __init__(
        self,
        name: str,
        run: Callable[[IRModule], IRModule],
        opt_level: int = 0,
        doc: str | None = None,
        ensures: str | None = None,
    ) -> None:
        _NAMES.add(name)
        self.name, self._run, self.opt_level, self.__doc__, self.ensures = name, run, opt_level, doc, ensures

    @property
    def info(self) -> Pass:
        """The pass itself: ``pass.info.name`` and ``pass.info.opt_level`` as in TVM."""
        return self

    def __call__(self, mod: IRModule | BaseFunc) -> IRModule:
        """Run on a module, or on a function in a module of its own; what was given stays as it is."""
        mod = IRModule.from_expr(mod)
        context = PassContext.current()
        if not all(i.should_run(mod, self) for i in context.instruments) and self.name not in context.required_pass:
            return mod
        for i in context.instruments:
            i.run_before_pass(mod, self)
        out = self._run(mod)
        if context.verify:
            for check in _VERIFIERS:
                check(out, self)
        for i in reversed(context.instruments):
            i.run_after_pass(out, self)
        return out

    def __repr__(self) -> str:
        return f"Pass({self.name})"


class Sequential(Pass):
    """Passes one after another, less those that the context leaves out."""

    def __init__(self, passes: Iterable[Pass], opt_level: int = 0, name: str = "sequential") -> None:
        self.passes = list(passes)
        super().__init__(name, self._run_all, opt_level)

    def __call__(self, mod: IRModule | BaseFunc) -> IRModule:
        """Run on a module, or on a function in a module of its own; what was given stays as it is."""
        return self._run_all(IRModule.from_expr(mod))

    def _run_all(self, mod: IRModule) -> IRModule:
        context = PassContext.current()
        for p in self.passes:
            if context.enabled(p):
                for name in getattr(p, "required", ()):
                    mod = passes_named(name if name in _PASSES else _plain(name))()(mod)
                mod = p(mod)
        return mod


def module_pass(
    fn: Callable[..., Any] | None = None, *, name: str | None = None, opt_level: int = 0, ensures: str | None = None
) -> Any:
    """Turn ``fn(mod, **options) -> IRModule`` into a pass factory.

    Parameters
    ----------
    name : str, optional
        By default the CamelCase of the function's name.
    opt_level : int
        The level at which :class:`Sequential` runs it.
    ensures : str, optional
        The name of the form (spec) that the output has.
    """
    if fn is None:
        return functools.partial(module_pass, name=name, opt_level=opt_level, ensures=ensures)
    pass_name = name or "".join(w[:1].upper() + w[1:] for w in fn.__name__.split("_"))

    @functools.wraps(fn)
    def make(*args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], (IRModule, BaseFunc)):
            return make(*args[1:], **options)(args[0])
        return Pass(pass_name, lambda mod: fn(mod, *args, **options), opt_level, fn.__doc__, ensures)

    make.pass_name = pass_name  # type: ignore[attr-defined]
    dialect = "relay." if fn.__module__.startswith("weft.relay.") else ""  # where names are those of Relax, too
    _PASSES[dialect + pass_name] = make
    _NAMES.add(pass_name)
    return make


def function_pass(
    fn: Callable[..., Any] | None = None,
    *,
    kind: type | tuple[type, ...] = BaseFunc,
    name: str | None = None,
    opt_level: int = 0,
    ensures: str | None = None,
) -> Any:
    """Turn ``fn(func, mod, **options) -> function`` into a pass factory over the functions of class `kind`."""
    if fn is None:
        return functools.partial(function_pass, kind=kind, name=name, opt_level=opt_level, ensures=ensures)

    @functools.wraps(fn)
    def over_module(mod: IRModule, *args: Any, **options: Any) -> IRModule:
        return mod.with_functions(
            {v: fn(f, mod, *args, **options) if isinstance(f, kind) else f for v, f in mod.items()}
        )

    return module_pass(over_module, name=name, opt_level=opt_level, ensures=ensures)


def passes_named(name: str) -> Callable[..., Pass]:
    """Return the pass factory of a name.

    Raises
    ------
    InvalidArgument
        When no pass has that name; the message lists near names.
    """
    if name not in _PASSES:
        raise InvalidArgument(f"no pass is called '{name}'", help=near_names(name, _PASSES))
    return _PASSES[name]


def passes_inside(package: str) -> tuple[Callable[[str], Callable[..., Pass]], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package of passes: those of its modules, by their registered names."""

    def inside() -> dict[str, Callable[..., Pass]]:
        return {k.removeprefix("relay."): p for k, p in _PASSES.items() if p.__module__.startswith(f"{package}.")}

    def __getattr__(name: str) -> Callable[..., Pass]:
        found = inside().get(name)
        if found is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return found

    def __dir__() -> list[str]:
        own = [k for k, v in vars(sys.modules[package]).items() if not isinstance(v, ModuleType)]
        return sorted({*own, *inside()})

    return __getattr__, __dir__
