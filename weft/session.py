"""Session: a model file in, arrays in, tensors out; the short form for people who come from ONNX Runtime.

It is thin: ``from_onnx``, ``compile``, ``VirtualMachine``, and before each call a check of the inputs against the
names, dtypes and symbolic shapes that the model declares. While another process compiles a model that no cache has, a
program of NumPy operators answers (``weft.baseline``).
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import weft  # the compiler is reached through it, so that running a library loads none of it
from weft import ffi, model_cache, runtime
from weft.error import DTypeMismatch, ExecutableError, InvalidArgument, ShapeMismatch, WeftError, own_errors
from weft.later import Later
from weft.runtime import Tensor, VirtualMachine, VMExecutable
from weft.runtime.container import Array
from weft.runtime.host import Kind, Texts, from_machine, in_type, known_texts, to_machine

if TYPE_CHECKING:
    from weft.baseline import BaselineProgram

__all__ = ["Session", "TensorInfo", "compiled"]

_ARRAY = np.ndarray
_HANDLE, _RESULTS = ffi.NativeTensor, Array
_METADATA = "weft.metadata"
_CPU = ("cpu", None)
_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll", ".wasm")
_LIBRARY_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ", b"WEFT", b"\x00asm")


class TensorInfo(NamedTuple):
    """What a model declares of an input or output.

    `shape` has a number for each fixed dimension and a name, or an expression of names, for each other; it is None for
    executables that do not tell, as `dtype` is, and for what is no tensor: `dtype` is ``"seq(tensor(float))"`` then.
    """

    name: str
    dtype: str | None
    shape: tuple[int | str, ...] | None


class Session:
    """A compiled model, ready to run.

    Parameters
    ----------
    model : str, os.PathLike, bytes, onnx.ModelProto or VMExecutable
        An ONNX model or its file, a library that ``weft compile`` or ``export_library`` wrote, or an executable.
    target : Target, str or dict, optional
        What to compile for; this machine's CPU by default. Not for libraries and executables.
    shape_dict : mapping of str to sequence of int or str, optional
        Input shapes in place of the model's symbolic ones; an input that the file has a value for takes another one
        only where it is named here.
    dtype_dict : mapping of str to str, or str, optional
        Input dtypes in place of the model's.
    opset : int, optional
        The opset of the default domain in place of the model's.
    device : Device or str, optional
        Where to run.
    progress : callable, optional
        ``progress(what, done, total)``, called while kernels are compiled, which may be while the session answers
        already.
    tuned : Database or path, optional
        What ``weft tune`` found for the model, to compile it with.
    fallback : str, optional
        ``"reference"`` runs operators that Weft does not have on the host; by default they are an error.
    precision : str, optional
        ``"float32"`` by default, or ``"bf16"``: products with constant weights on bfloat16 operands, summed in float32.

    Examples
    --------
    >>> session = Session("model.onnx")  # doctest: +SKIP
    >>> session.run({"x": array})[0].numpy()  # doctest: +SKIP
    """

    @own_errors("making the session")
    def __init__(
        self,
        model: Any,
        target: Any = None,
        *,
        shape_dict: Mapping[str, Sequence[int | str]] | None = None,
        dtype_dict: Mapping[str, str] | str | None = None,
        opset: int | None = None,
        device: Any = "cpu",
        progress: Callable[[str, int, int], None] | None = None,
        tuned: Any = None,
        precision: str | None = None,
        fallback: str | None = None,
    ) -> None:
        options = {
            "target": target,
            "shape_dict": shape_dict,
            "dtype_dict": dtype_dict,
            "opset": opset,
            "tuned": tuned,
            "precision": precision,
            "fallback": fallback,
        }
        if isinstance(model, VMExecutable) or _is_library(model):
            for name, value in options.items():
                if value is not None:
                    raise InvalidArgument(f"{name} is for models; this one is compiled already", found=repr(value))
            made = model if isinstance(model, VMExecutable) else open_library(model)
        else:
            options["precision"] = precision or "float32"
            request = model_cache.request_of(model, options)
            made = model_cache.find(request) if request is not None else None
            program = None
            if made is None and request is not None and device in _CPU:
                program = model_cache.baseline_program(request)
            if program is not None:
                self._answer_first(program, partial(_compiled, model, options, request, progress))
                return
            made = made or _compiled(model, options, request, progress)
        self._take(_Compiled(made, device))

    def _take(self, compiled: _Compiled) -> None:
        """Run the compiled model from now on, also where calls are under way."""
        main = compiled.vm["main"]
        self._compiled = compiled
        self._expect(compiled.inputs, [o.name for o in compiled.outputs], compiled.input_kinds)
        self._texts, self._shown = compiled.texts, compiled.shown
        self._call, self._plain = main, main.plain

    def _expect(
        self, inputs: list[TensorInfo], output_names: list[str], kinds: Sequence[Kind | None] | None = None
    ) -> None:
        self.inputs, self.output_names, self._places = inputs, output_names, range(len(output_names))
        self._checks = [_InputCheck(i, kind) for i, kind in zip(inputs, kinds or [None] * len(inputs), strict=True)]
        # What the last call was given: arrays that look the same need no more looking at.
        self._usual = [(c.name, c.numpy_type, c.known_shape) for c in self._checks]
        self._names: Set[str] = {info.name for info in inputs}

    def _answer_first(self, program: BaselineProgram, compile: Callable[[], VMExecutable]) -> None:
        """Run the model's baseline program until the compiled one is there, which a thread sees to."""
        self._compiled, self._texts, self._shown = None, None, []
        self._expect([TensorInfo(*i) for i in program.inputs], program.output_names)
        this = weakref.ref(self)  # who drops the session does not wait for it

        def finish() -> _Compiled:
            compiled = _Compiled(compile(), "cpu")
            if (session := this()) is not None:
                session._take(compiled)
            return compiled

        later = self._later = Later(finish)

        def answer(*values: Any) -> Any:
            if not later.is_done:
                results = program.try_run([v if type(v) is _ARRAY else v.numpy() for v in values])
                if results is not None:
                    return list(map(runtime.tensor, results))
            return later.result().vm["main"](*values)

        self._call = self._plain = answer

    def wait(self) -> None:
        """Wait until the model is compiled; until then its first answers come from slower operators.

        Raises
        ------
        WeftError
            When the model cannot be compiled.
        """
        self._ready()

    @property
    def is_compiled(self) -> bool:
        """Whether calls run the compiled model by now."""
        return self._compiled is not None

    def _ready(self) -> _Compiled:
        return self._compiled if self._compiled is not None else self._later.result()

    @property
    def executable(self) -> VMExecutable:
        """The compiled model; it is waited for."""
        return self._ready().executable

    @property
    def outputs(self) -> list[TensorInfo]:
        """What the model declares of its outputs; the compiled model is waited for."""
        return self._ready().outputs

    @property
    def schedule(self) -> str | None:
        """Which schedule rule took each kernel and which refused it, as text; None for libraries that do not tell."""
        return self._ready().schedule

    def run(self, *arguments: Any) -> list[Tensor]:
        """Run the model: ``run(feeds)``, or ``run(output_names, feeds)``.

        Parameters
        ----------
        output_names : sequence of str, optional
            The outputs to return, in this order; None for all.
        feeds : mapping of str to array
            A value for each input: a NumPy array, a tensor, or anything with ``__dlpack__``. Contiguous ones go in
            without a copy.

        Returns
        -------
        list of Tensor
            NumPy arrays where an output is strings or numbers of less than a byte, lists for sequences, dictionaries
            for maps, None for an optional that is empty.

        Raises
        ------
        InvalidArgument
            When inputs are missing or unknown.
        DTypeMismatch
            When an input has another dtype.
        ShapeMismatch
            When an input has another rank or dimension, or inputs disagree about a symbolic dimension.
        """
        names = None
        if len(arguments) == 1:
            (feeds,) = arguments
        elif len(arguments) == 2:
            names, feeds = arguments
        else:
            expected = "run(feeds) or run(output_names, feeds)"
            raise InvalidArgument("wrong number of arguments", expected=expected, found=str(len(arguments)))
        if type(feeds) is not dict and not isinstance(feeds, Mapping):  # the exact class is a quarter of the time
            raise InvalidArgument("feeds must be a mapping of input names to arrays", found=type(feeds).__name__)
        if len(feeds) != len(self._checks):
            raise self._wrong_names(feeds)
        values: list[Any] | None = []
        for name, dtype, shape in self._usual:
            try:
                value = feeds[name]
            except KeyError:
                raise self._wrong_names(feeds) from None
            if type(value) is not _ARRAY or value.dtype is not dtype or value.shape != shape or not value.flags.carray:
                values = None
                break
            values.append(value)
        if self._texts is None:
            outputs = self._computed(feeds, values)
        else:
            with known_texts(self._texts):
                outputs = self._computed(feeds, values)
        return outputs if names is None else self._select(names, outputs)

    def _computed(self, feeds: Mapping[str, Any], values: list[Any] | None) -> list[Any]:
        """Run the model on `values`, or on what checking `feeds` makes of these where that is None."""
        if values is None:
            values = self._checked(feeds)
        try:
            result = self._plain(*values)
        except BufferError:  # arrays that have to be converted
            result = self._call(*values)
        except WeftError as e:
            self.executable.name_place(e)
            raise
        if type(result) is _HANDLE:
            outputs: list[Any] = [Tensor(result)]
        else:
            outputs = _outputs(result, self._places, self._shown)
        for i, kind in self._shown:
            outputs[i] = from_machine(outputs[i], kind)
        return outputs

    def _checked(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Check the inputs and make them what the virtual machine takes."""
        values: list[Any] = []
        sizes: dict[str, tuple[int, str, int]] = {}
        for check in self._checks:
            try:
                value = feeds[check.name]
            except KeyError:
                raise self._wrong_names(feeds) from None
            given = check.check(value, sizes)
            values.append(ffi.as_opaque(given) if isinstance(given, (list, dict)) else given)
        if all(type(v) is _ARRAY and v.dtype == c.numpy_type for v, c in zip(values, self._checks, strict=True)):
            self._usual = [(c.name, v.dtype, v.shape) for v, c in zip(values, self._checks, strict=True)]
        return values

    def _select(self, names: Sequence[str], outputs: list[Tensor]) -> list[Tensor]:
        positions = {name: i for i, name in enumerate(self.output_names)}
        unknown = [n for n in names if n not in positions]
        if unknown:
            raise InvalidArgument(
                "the model has no such output", expected=", ".join(positions), found=", ".join(map(str, unknown))
            )
        return [outputs[positions[n]] for n in names]

    def _wrong_names(self, feeds: Mapping[str, Any]) -> InvalidArgument:
        missing = [info.name for info in self.inputs if info.name not in feeds]
        unknown = [str(name) for name in feeds if name not in self._names]
        problems = [f"missing: {', '.join(missing)}"] if missing else []
        problems += [f"unknown: {', '.join(unknown)}"] if unknown else []
        expected = ", ".join(info.name for info in self.inputs) or "no inputs"
        hint = "what the file has a value for becomes an input where shape_dict names it" if unknown else None
        return InvalidArgument("wrong inputs", expected=expected, found="; ".join(problems), help=hint)

    def __repr__(self) -> str:
        def text(infos: list[TensorInfo]) -> str:
            return ", ".join(f"{i.name}: {i.dtype} {list(i.shape) if i.shape is not None else ''}" for i in infos)

        return f"Session({text(self.inputs)}) -> ({text(self.outputs)})"


class _Compiled:
    """An executable on its machine, and what it tells of itself."""

    def __init__(self, executable: VMExecutable, device: Any) -> None:
        self.executable, self.vm = executable, VirtualMachine(executable, device)
        about = _metadata(self.vm, executable)
        self.inputs, self.outputs = _describe(about, executable)
        self.schedule: str | None = about.get("schedule")
        self.texts = Texts(about["texts"]) if "texts" in about else None
        """The strings of the model; None where it uses nothing of the host."""
        self.input_kinds = _kinds(about.get("inputs", [{}] * len(self.inputs)))
        self.shown = [(i, k) for i, k in enumerate(_kinds(about.get("outputs", []))) if k is not None]
        """The outputs that users see in another form than the machine has them in."""


def _outputs(result: Any, places: range, shown: list[tuple[int, Kind]]) -> list[Any]:
    if shown and len(places) == 1:  # a sequence is one output
        return [ffi.wrap(result)]
    if type(result) is _RESULTS and places:  # as many as are known: to ask for their number is a call of its own
        return Tensor.elements_of(result, places)
    if type(result) is list:  # of the baseline program
        return result
    wrapped = ffi.wrap(result)
    return list(wrapped) if isinstance(wrapped, tuple) else [wrapped]


def _kinds(described: Sequence[Mapping[str, Any]]) -> list[Kind | None]:
    return [Kind.from_json(d["kind"]) if "kind" in d else None for d in described]


class _InputCheck:
    """Checks one input's dtype and shape and makes it what the virtual machine takes."""

    __slots__ = ("dims", "dtype", "info", "kind", "known_shape", "name", "numpy_type", "rank")

    def __init__(self, info: TensorInfo, kind: Kind | None = None) -> None:
        self.info, self.kind, self.name, self.dtype = info, kind, info.name, info.dtype
        self.numpy_type = runtime.numpy_dtype(info.dtype) if info.dtype is not None and kind is None else None
        self.rank = len(info.shape) if info.shape is not None else None
        self.dims = tuple(enumerate(info.shape)) if info.shape is not None else ()
        self.known_shape = info.shape if all(isinstance(d, int) for _, d in self.dims) else None

    def check(self, value: Any, sizes: dict[str, tuple[int, str, int]]) -> Any:
        if self.kind is not None:
            value = to_machine(value, self.kind, self.name)
        elif type(value) is _ARRAY:
            if self.numpy_type is not None and value.dtype != self.numpy_type:
                raise self._wrong_dtype(value.dtype)
            flags = value.flags
            if not flags.c_contiguous or not flags.aligned:
                value = value.copy(order="C")
        else:
            value = self._as_tensor(value)
        if self.rank is not None:
            self._check_shape(value.shape, sizes)
        return value

    def _as_tensor(self, value: Any) -> Any:
        if not hasattr(value, "__dlpack__"):
            return self._as_array(value)
        try:
            tensor = value if isinstance(value, Tensor) else runtime.from_dlpack(value)
        except InvalidArgument as e:
            raise InvalidArgument(f"input '{self.name}' is {e.what}", found=e.found, help=e.help) from e
        if self.dtype is not None and tensor.dtype != self.dtype:
            raise self._wrong_dtype(tensor.dtype)
        return tensor if tensor.is_contiguous() else np.ascontiguousarray(tensor.numpy())

    def _as_array(self, value: Any) -> np.ndarray[Any, Any]:
        """Numbers and nested lists of them, in the declared dtype where that is one of their kind."""
        array = in_type(value, self.numpy_type, self.name)
        if array.dtype.kind not in "biufcV":
            found = f"{type(value).__name__} of dtype {array.dtype}"
            raise InvalidArgument(f"input '{self.name}' is not an array of numbers", found=found)
        if self.numpy_type is not None and array.dtype != self.numpy_type:
            raise self._wrong_dtype(array.dtype)
        return np.ascontiguousarray(array).reshape(array.shape)

    def _wrong_dtype(self, found: Any) -> DTypeMismatch:
        what, hint = f"input '{self.name}' has a wrong dtype", f"convert it, array.astype('{self.dtype}')"
        return DTypeMismatch(what, expected=str(self.dtype), found=str(found), help=hint)

    def _check_shape(self, shape: tuple[int, ...], sizes: dict[str, tuple[int, str, int]]) -> None:
        if len(shape) != self.rank:
            raise ShapeMismatch(
                f"input '{self.name}' has a wrong rank",
                expected=f"{self.rank} dimensions {_text(self.info.shape)}",
                found=f"{len(shape)} {_text(shape)}",
            )
        for axis, dim in self.dims:
            size = shape[axis]
            if isinstance(dim, int):
                if size != dim:
                    raise ShapeMismatch(
                        f"input '{self.name}' has a wrong dimension {axis}",
                        expected=f"{dim} of {_text(self.info.shape)}",
                        found=f"{size} of {_text(shape)}",
                    )
            elif (seen := sizes.setdefault(dim, (size, self.name, axis)))[0] != size:
                raise ShapeMismatch(
                    f"inputs disagree about the dimension '{dim}'",
                    expected=f"{seen[0]}, as in dimension {seen[2]} of input '{seen[1]}'",
                    found=f"{size} in dimension {axis} of input '{self.name}' {_text(shape)}",
                )


def compiled(model: Any, options: Mapping[str, Any], progress: Callable[[str, int, int], None] | None) -> VMExecutable:
    """Return a model's executable: from the cache, else from a process that compiles it, else compiled here.

    Parameters
    ----------
    model : object
        As for :class:`Session`, but not compiled.
    options : mapping
        ``target``, ``shape_dict``, ``dtype_dict``, ``opset``, ``tuned`` and ``precision`` of :class:`Session`, and
        ``fallback``, with which nothing is cached: what it runs is the process's own.
    progress : callable or None
        ``progress(what, done, total)``, called while kernels are compiled.
    """
    request = model_cache.request_of(model, options)
    found = model_cache.find(request) if request is not None else None
    return found or _compiled(model, options, request, progress)


@own_errors("compiling the model")
def _compiled(
    model: Any,
    options: Mapping[str, Any],
    request: model_cache.Request | None,
    progress: Callable[[str, int, int], None] | None,
) -> VMExecutable:
    """Compile a model that the cache does not have, if it is for it, as `request`."""
    found = model_cache.compile_apart(request, progress) if request is not None else None
    if found is not None:
        return found
    if request is not None:
        model_cache.demand_unchanged(request)  # which also says why no other process compiled it
    onnx, weights = weft.frontend.onnx, {}
    with weft.ir.compilation(Path(model).stem if isinstance(model, (str, os.PathLike)) else "model"):
        mod = onnx.from_onnx(
            model, *(options[k] for k in ("shape_dict", "dtype_dict", "opset")), fallback=options.get("fallback")
        )
        if request is not None:
            weights = model_cache.look_at_weights(request.path.parent, mod.attrs.get(onnx.WEIGHT_FILES, {}))
            model_cache.demand_unchanged(request)
        made = weft.relax.build(
            mod, options["target"], progress=progress, tuned=options["tuned"], precision=options["precision"]
        )
    if request is not None:
        model_cache.keep(request, made, weights, weft.relax.kernels_to_json(made.recompilable))
    return made


def open_library(path: str | os.PathLike[str]) -> VMExecutable:
    """Open a library that holds a compiled model.

    Raises
    ------
    ExecutableError
        When it cannot be opened, or holds kernels only.
    """
    module = runtime.load_module(path)
    if module.kind != "weft.Executable":
        raise ExecutableError(
            "this library holds no executable", where=str(path), expected="a compiled model", found=module.kind
        )
    return VMExecutable(module)


def _is_library(model: Any) -> bool:
    """Whether `model` is a file that was compiled, by its suffix or its first bytes."""
    if not isinstance(model, (str, os.PathLike)):
        return False
    path = Path(model)
    if path.suffix in _LIBRARY_SUFFIXES:
        return True
    try:
        with runtime.open_regular(path) as f:
            start = f.read(8)
    except OSError:
        return False
    return start.startswith(_LIBRARY_MAGIC)


def _metadata(vm: VirtualMachine, executable: VMExecutable) -> dict[str, Any]:
    """What the importer and the compiler left in an executable; nothing where they left nothing."""
    known = any(f.name == _METADATA for f in executable.functions)
    return json.loads(str(vm[_METADATA]())) if known else {}


def _describe(about: Mapping[str, Any], executable: VMExecutable) -> tuple[list[TensorInfo], list[TensorInfo]]:
    """Inputs and outputs, from what the importer left in the executable, else from parameter names alone."""
    if "inputs" in about:
        return [_info(i) for i in about["inputs"]], [_info(i) for i in about["outputs"]]
    names = next(f for f in executable.functions if f.name == "main").param_names
    return [TensorInfo(name, None, None) for name in names], []


def _info(entry: Mapping[str, Any]) -> TensorInfo:
    shape = entry["shape"]
    return TensorInfo(entry["name"], entry["dtype"], None if shape is None else tuple(shape))


def _text(shape: Any) -> str:
    return "(" + ", ".join(str(d) for d in shape) + ")"
