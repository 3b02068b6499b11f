"""Packed functions: tvm-ffi functions whose results come back as Weft's own classes.

tvm-ffi gives every type one Python class in the process, and another package may have claimed it. Weft therefore
leaves those classes alone and wraps what its own functions return: `register_wrapper` says how, per class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import tvm_ffi

from weft.error import InvalidArgument, WeftError

Wrapper = Callable[[Any], Any]
NativeTensor = tvm_ffi.Tensor
"""What functions return as tensors, for who may not be the first to import tvm_ffi."""

_TRUSTED = ("__array_interface__", "__tvm_ffi_object__", "_to_dlpack")  # arrays of NumPy, tensors of Weft and tvm-ffi
_AS_THEY_ARE: set[type] = set()  # classes of arguments whose memory holds their numbers
_BASE_WRAPPERS: dict[type, Wrapper | None] = {}  # as registered; None: a class that needs none


_WRAPPERS: dict[type, Wrapper | None] = {}  # the same for every class that was met
_ARGUMENTS: list[Callable[[Any], Any]] = []
_CHECKS: list[Callable[[int, Any, Any], None]] = []
duplicate: Callable[[Any], Any] = tvm_ffi.get_global_func("weft.builtin")("vm.builtin.copy")


_usual_class: type = object  # what most functions return: found without a look into the table
_usual_wrapper: Wrapper = bool


def register_wrapper(cls: type, wrapper: Callable[[Any], Any], *, usual: bool = False) -> None:
    """Return values of class `cls`, a tvm-ffi class, become ``wrapper(value)``; `usual` for the most frequent one."""
    global _usual_class, _usual_wrapper
    if usual:
        _usual_class, _usual_wrapper = cls, wrapper
    _BASE_WRAPPERS[cls] = wrapper
    _WRAPPERS.clear()
    _WRAPPERS.update(_BASE_WRAPPERS)


def register_argument(converter: Callable[[Any], Any]) -> None:
    """`converter` turns arguments that tvm-ffi refuses (read-only arrays, ml_dtypes) into ones that it takes."""
    _ARGUMENTS.append(converter)


def register_check(check: Callable[[int, Any, Any], None]) -> None:
    """After a call, `check` gets the place of an argument that was converted, what was given and what went in."""
    _CHECKS.append(check)


def convert_argument(value: object) -> Any:
    """An argument as tvm-ffi takes it; the value itself when nothing is to be done."""
    for converter in _ARGUMENTS:
        value = converter(value)
    return value


def find_wrapper(cls: type) -> Wrapper | None:
    """What makes values of a tvm-ffi class Weft's; None where nothing is to be done."""
    try:
        return _WRAPPERS[cls]
    except KeyError:
        # Another package may have put its subclass in the place of a tvm-ffi class; the answer is kept per class.
        found = next((_BASE_WRAPPERS[base] for base in cls.__mro__ if base in _BASE_WRAPPERS), None)
        _WRAPPERS[cls] = found
        return found


def wrap(value: object) -> Any:
    """A value that came out of tvm-ffi, in Weft's class."""
    wrapper = find_wrapper(type(value))
    return value if wrapper is None else wrapper(value)


def refuse_copies(self: object) -> NoReturn:
    """Be the ``__reduce__`` of what runs in this process alone: neither pickled nor deeply copied."""
    raise InvalidArgument(
        "compiled code is neither pickled nor copied",
        found=type(self).__name__,
        help="export_library writes it and load_module reads it; a Session is made of its model again",
    )


class PackedFunc(tvm_ffi.Function):
    """A function of the runtime, called with Python values.

    Tensors, NumPy arrays and anything with ``__dlpack__`` go in without a copy; what comes back is a
    :class:`weft.runtime.Tensor`, a tuple or list of results, or a plain Python value.
    """

    __slots__ = ("_plain", "on_error")
    __reduce__ = refuse_copies
    on_error: Callable[[WeftError], None]  # tells an error of a call more, where it is set
    _plain: tvm_ffi.Function  # the same function; calling it is faster than calling the base class's method

    @property
    def plain(self) -> tvm_ffi.Function:
        """The function as tvm-ffi has it: it takes no other arguments than tvm-ffi's, and :func:`wrap` its results."""
        return self._plain

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        for value in args:
            if type(value) not in _AS_THEY_ARE:
                _check_lent(value)
        try:
            value = self._plain(*args)
        except BufferError:
            converted = [convert_argument(a) for a in args]
            if all(a is b for a, b in zip(args, converted, strict=True)):
                raise
            value = self._plain(*converted)
            for place, (given, taken) in enumerate(zip(args, converted, strict=True)):
                for check in _CHECKS if taken is not given else ():
                    check(place, given, taken)
        except WeftError as e:
            if hasattr(self, "on_error"):
                self.on_error(e)
            raise
        except RuntimeError:  # a callback's, or of a library that has no memory to share, which converting tells
            _check_converted(args)
            raise
        if type(value) is _usual_class:
            return _usual_wrapper(value)
        try:  # an exact dict: looking up in one takes a third of what a call does
            wrapper = _WRAPPERS[type(value)]
        except KeyError:
            wrapper = find_wrapper(type(value))
        return value if wrapper is None else wrapper(value)


Function = PackedFunc


def _check_converted(args: Iterable[Any]) -> None:
    for place, value in enumerate(args):
        try:
            convert_argument(value)
        except InvalidArgument as e:
            raise InvalidArgument(f"argument {place} is {e.what}", found=e.found, help=e.help) from e


def _check_lent(value: Any) -> None:
    """Refuse PyTorch's negative bit, NumPy's masks and dimensions that are none: only memory goes in."""
    negated = getattr(value, "is_neg", None)
    if negated is not None or hasattr(value, "mask"):
        if negated is None or negated():
            convert_argument(value)  # raises, with the reason
    elif isinstance(value, (tuple, list)):
        for item in value:
            _check_lent(item)
    elif hasattr(value, "__dlpack__") and not any(hasattr(value, own) for own in _TRUSTED):
        convert_argument(value)  # looks at what the memory's owner says of it
    else:
        _AS_THEY_ARE.add(type(value))


def packed(function: tvm_ffi.Function) -> PackedFunc:
    """The same function as a `PackedFunc`."""
    return function if isinstance(function, PackedFunc) else make_packed(PackedFunc, function)


def make_packed(cls: type[PackedFunc], function: tvm_ffi.Function) -> Any:
    """The same function as one of a class of packed functions."""
    plain = function.plain if isinstance(function, PackedFunc) else function
    out: Any = cls.__new__(cls)
    out.__move_handle_from__(duplicate(plain))
    out._plain = plain
    return out


for _plain in (type(None), int, float, bool, str, bytes):
    _BASE_WRAPPERS[_plain] = None
_BASE_WRAPPERS[PackedFunc] = None
_WRAPPERS.update(_BASE_WRAPPERS)
register_wrapper(tvm_ffi.Function, packed)
