"""Tensors: n-dimensional arrays that native code and Python share without copies.

`Tensor` holds a tvm-ffi tensor and is accepted wherever one is. It is its own class, because the Python class of
tvm-ffi's tensor belongs to whoever claimed it first in the process.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from itertools import repeat
from types import SimpleNamespace
from typing import Any, Protocol

import ml_dtypes
import msgspec
import numpy as np
import tvm_ffi

from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch
from weft.ffi import register_argument, register_check, register_wrapper
from weft.runtime.device import Device, device
from weft.runtime.weight_file import stored
from weft.spelling import also_called

# Types that NumPy knows through ml_dtypes and DLPack's NumPy exporter does not: they travel as bits.
_ML_DTYPES: dict[np.dtype[Any], str] = {
    np.dtype(getattr(ml_dtypes, name)): name
    for name in (
        "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
        "float8_e5m2fnuz float8_e8m0fnu"
    ).split()
    if hasattr(ml_dtypes, name)
}
_BITS = {1: "uint8", 2: "uint16"}
_NUMPY: dict[str, np.dtype[Any]] = {name: dtype for dtype, name in _ML_DTYPES.items()}

_empty = tvm_ffi.get_global_func("weft.tensor_empty")
_view = tvm_ffi.get_global_func("weft.tensor_view")
_copy = tvm_ffi.get_global_func("weft.tensor_copy")


def _dimension(d: Any) -> int:
    """A dimension; numbers with a fraction are none, whole floats are, as NumPy's arithmetic often makes them."""
    if isinstance(d, float) and not d.is_integer():
        raise InvalidArgument("a dimension is a whole number", found=repr(d))
    return int(d)


class DType(str):
    """A dtype as its name, which NumPy accepts as a dtype too."""

    __slots__ = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype; this attribute makes ``np.dtype(self)`` work for the names that NumPy does not have."""
        return numpy_dtype(str(self))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a Weft dtype, ml_dtypes included.

    Raises
    ------
    DTypeMismatch
        When NumPy has none, for example ``"handle"``.
    """
    found = _NUMPY.get(name)
    if found is None:
        try:
            found = np.dtype(name)
        except TypeError:
            raise DTypeMismatch(f"NumPy has no dtype '{name}'") from None
        _NUMPY[name] = found
    return found


class Tensor(msgspec.Struct, eq=False, gc=False):
    """An n-dimensional array in native memory.

    Made by :func:`tensor`, :func:`empty`, :func:`from_dlpack`, or returned from a function of the runtime. (A msgspec
    struct, because one is made in 20 ns where a class with slots takes 65, and each call of a function makes one.)

    Parameters
    ----------
    handle : tvm_ffi.Tensor
        The native tensor.
    """

    handle: Any

    @staticmethod
    def elements_of(array: tvm_ffi.Array[Any], places: range) -> list[Any]:
        """Those elements of a native array, in Weft's classes; the class's iterator takes three times as long."""
        found = map(_element_of, repeat(array), places)
        return [Tensor(v) if type(v) is _HANDLE else _wrap_item(v) for v in found]

    def __tvm_ffi_object__(self) -> tvm_ffi.Tensor:
        """The tvm-ffi tensor, which native functions receive."""
        return self.handle

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return tuple(self.handle.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.handle.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps between elements along each dimension, in elements."""
        return tuple(self.handle.strides)

    @property
    def dtype(self) -> DType:
        """The dtype, a ``str`` such as ``"float32"``."""
        name = self.handle.dtype
        return DType(f"{name}{name.bits}" if name[-1] == "]" else name)  # registered types lack their bits

    @property
    def device(self) -> Device:
        """Where the data lies."""
        return Device(*self.handle.__dlpack_device__())

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.handle.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        dtype = self.handle.dtype
        return self.size * -(-dtype.bits * dtype.lanes // 8)

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self.handle.data_ptr()

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.handle.is_contiguous()

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy array over the same memory, which it keeps alive; bfloat16 and float8 come as ml_dtypes.

        What lies on another device than the CPU is copied.
        """
        try:
            return np.from_dlpack(self.handle)
        except (RuntimeError, BufferError):  # another device, vectors, or a dtype that is not NumPy's own
            lanes = self.handle.dtype.lanes
            return self._converted() if lanes == 1 else self._by_lanes(lanes).numpy()

    def _by_lanes(self, lanes: int) -> Tensor:
        """The same memory with scalar elements, whose last dimension is that of the lanes."""
        return self._create_view((*self.shape, lanes), str(self.dtype).rsplit("x", 1)[0])

    def _converted(self) -> np.ndarray[Any, Any]:
        """A NumPy array of what NumPy does not take as it is."""
        handle = self.handle
        if handle.__dlpack_device__()[0] != Device.kDLCPU:
            handle = self.copyto(Device(Device.kDLCPU)).handle
        dtype = _NUMPY.get(str(handle.dtype))
        if dtype is not None and dtype in _ML_DTYPES:
            return np.from_dlpack(_view(handle, tuple(handle.shape), _BITS[dtype.itemsize], 0)).view(dtype)
        try:
            return np.from_dlpack(handle)
        except (RuntimeError, BufferError):
            raise DTypeMismatch(f"NumPy has no dtype '{self.dtype}'") from None

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """TVM's older name of :meth:`numpy`."""
        return self.numpy()

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.numpy().item()

    @also_called(source_array="source")
    def copyfrom(self, source: Any) -> Tensor:
        """Copy the elements of `source`, anything array-like of the same shape, into this tensor.

        Returns
        -------
        Tensor
            This tensor.
        """
        if not isinstance(source, (Tensor, tvm_ffi.Tensor)):
            lanes = tvm_ffi.dtype(str(self.dtype)).lanes
            if lanes > 1:
                self._by_lanes(lanes).copyfrom(source)
                return self
            source = np.asarray(unmasked(source))
            bits = self.dtype == "bfloat16" and source.dtype == np.uint16
            kind = numpy_dtype(self.dtype)
            source = source.view(kind) if bits else source.astype(kind, copy=False)
        handle = _to_handle(source)
        if tuple(handle.shape) != self.shape:
            raise ShapeMismatch("copyfrom: shapes differ", expected=str(self.shape), found=str(tuple(handle.shape)))
        if str(handle.dtype) != str(self.dtype):
            raise DTypeMismatch("copyfrom: dtypes differ", expected=str(self.dtype), found=str(handle.dtype))
        _transfer(handle, self.handle)
        return self

    def copyto(self, target: Any, mem_scope: str | None = None) -> Tensor:
        """Copy the elements into `target`, a tensor of the same shape or a device; returns the target tensor.

        Raises
        ------
        InvalidArgument
            When `mem_scope` is none of ``"global"``: devices have one kind of memory here.
        """
        if mem_scope not in (None, "", "global"):
            raise InvalidArgument("tensors lie in global memory", expected="mem_scope='global'", found=repr(mem_scope))
        if isinstance(target, Tensor):
            target.copyfrom(self)
            return target
        out = empty(self.shape, self.dtype, device(target))
        _transfer(self.handle, out.handle)
        return out

    def _create_view(self, shape: Any, dtype: Any = None, relative_byte_offset: int = 0) -> Tensor:
        """Some of the same memory as a tensor of another shape or dtype.

        Parameters
        ----------
        shape : sequence of int
            Dimensions of the view.
        dtype : str, optional
            By default that of this tensor.
        relative_byte_offset : int
            Where the view begins, in bytes behind the first element of this tensor.

        Raises
        ------
        InvalidArgument
            When the view would lie in part outside of this tensor.
        """
        dims, kind = tuple(_dimension(d) for d in shape), str(dtype or self.dtype)
        code = tvm_ffi.dtype(kind)
        begin = int(relative_byte_offset)
        end = begin + math.prod(dims) * -(-code.bits * code.lanes // 8)
        if begin < 0 or end > self.nbytes:
            raise InvalidArgument(
                f"cannot view a tensor {self.dtype}{list(self.shape)} as {kind}{list(dims)}: the Tensor being viewed "
                f"only contains {self.nbytes} bytes, and the view would occupy bytes {begin} <= i_byte < {end}"
            )
        return Tensor(_view(self.handle, dims, kind, begin))

    def reshape(self, *shape: Any) -> Tensor:
        """The same memory under another shape of the same size."""
        dims = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if math.prod(map(_dimension, dims)) != self.size:
            raise ShapeMismatch(f"cannot view {self.dtype}{list(self.shape)} as {self.dtype}{list(dims)}")
        return self._create_view(tuple(dims))

    def __dlpack__(self, **options: Any) -> Any:
        """DLPack capsule over the same memory."""
        return self.handle.__dlpack__(**options)

    to_dlpack = __dlpack__

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's pair of device numbers."""
        return self.handle.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        out = self.numpy()
        return np.array(out, dtype=dtype, copy=copy) if dtype is not None or copy else out

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        return self.numpy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        data = self.numpy()
        data[index] = np.asarray(unmasked(value))
        if self.device.device_type != Device.kDLCPU:
            self.copyfrom(data)

    def __reduce__(self) -> Any:
        return (tensor, (np.array(self.numpy()),))

    def same_as(self, other: Tensor) -> bool:
        """Whether both are the same native object."""
        return self.handle.same_as(other.handle)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same native object; elements are compared by what :meth:`numpy` gives."""
        return isinstance(other, Tensor) and self.handle.same_as(other.handle)

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype}, device={self.device})\n{self.numpy()!r}"


def unmasked(value: object) -> Any:
    """Return a value; an InvalidArgument of an array of which elements are masked, which those of tensors are not."""
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray and np.ma.is_masked(value):
        found = f"{np.ma.count_masked(value)} masked elements"
        raise InvalidArgument("an array of which elements are masked", found=found, help="give array.filled(number)")
    return value


def _array_handle(value: np.ndarray[Any, Any]) -> tvm_ffi.Tensor:
    """A tensor over a NumPy array, copied when it is read-only or its dtype needs it."""
    unmasked(value)
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    name = _ML_DTYPES.get(value.dtype)
    if name is not None:
        bits = np.ascontiguousarray(value).reshape(value.shape).view(_BITS[value.dtype.itemsize])
        if not bits.flags.writeable:
            bits = bits.copy()
        return _view(tvm_ffi.from_dlpack(bits), tuple(value.shape), name, 0)
    if not value.flags.writeable:
        value = value.copy(order="C")
    try:
        if value.dtype.kind == "c":
            raise BufferError("DLPack has complex numbers, kernels have not")
        return tvm_ffi.from_dlpack(value)
    except BufferError as e:
        if any(s % max(value.itemsize, 1) for s in value.strides):  # strides that are no whole number of elements
            return tvm_ffi.from_dlpack(np.ascontiguousarray(value))
        raise DTypeMismatch("this array cannot become a tensor", found=f"dtype {value.dtype}") from e


def _transfer(source: Any, target: Any) -> None:
    """Copy elements between tensors' handles; one that is not native knows how."""
    for end in (source, target):
        if not isinstance(end, tvm_ffi.Tensor):
            end.transfer(source, target)
            return
    _copy(source, target)


_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_memory_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_capsule_memory = _memory_of(("PyCapsule_GetPointer", ctypes.pythonapi))


def _looked_at(give: Callable[..., object]) -> Callable[..., object]:
    """A ``__dlpack__`` that looks at the dimensions in the capsule: tvm-ffi believes them."""

    def lend(**how: object) -> object:
        capsule = give(**how)
        name = _name_of(capsule)
        if name not in (b"dltensor", b"dltensor_versioned"):  # of something else, or taken before: tvm-ffi says so
            return capsule
        ndim = _capsule_memory(capsule, name) + (48 if name == b"dltensor_versioned" else 16)
        rank, shape = ctypes.c_int32.from_address(ndim).value, ctypes.c_void_p.from_address(ndim + 8).value or 0
        if not 0 <= rank <= 64 or (rank and not shape):
            raise ValueError(f"a capsule of {rank} dimensions, with the shape at {shape:#x}")
        if rank and min(extents := [*(ctypes.c_int64 * rank).from_address(shape)]) < 0:
            raise ValueError(f"a capsule of the shape {extents}")
        return capsule

    return lend


def _to_handle(value: Any) -> tvm_ffi.Tensor:
    if isinstance(value, Tensor):
        return value.handle
    if isinstance(value, tvm_ffi.Tensor):
        return value
    if isinstance(value, np.ndarray):
        return _array_handle(value)
    if hasattr(value, "__dlpack__") and not isinstance(value, type):
        if getattr(value, "is_neg", bool)():  # PyTorch exports the memory, and not that its numbers count negated
            raise InvalidArgument("a tensor with the negative bit is not in memory", help="give x.resolve_neg()")
        dtype = getattr(value, "dtype", None)
        if getattr(dtype, "is_complex", getattr(dtype, "kind", "") == "c"):  # DLPack has them, kernels have not
            raise DTypeMismatch("this array cannot become a tensor", found=f"dtype {dtype}", help="give its parts")
        try:
            return tvm_ffi.from_dlpack(
                value if hasattr(value, "is_neg") else SimpleNamespace(__dlpack__=_looked_at(value.__dlpack__))
            )
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as e:  # as libraries raise them
            found = f"{type(value).__name__}: {next(iter(str(e).splitlines()), type(e).__name__)}"
            raise InvalidArgument(
                "memory that its library does not share", found=found, help="give an array of it"
            ) from e
    return _array_handle(np.asarray(value))


def tensor(arr: object, device: Device | None = None, mem_scope: str | None = None) -> Tensor:
    """Make a tensor with a copy of `arr` in 64-byte aligned memory.

    Parameters
    ----------
    arr : array_like
        A NumPy array, a tensor, or nested lists of numbers.
    device : Device, optional
        Where to put it; the CPU by default.
    mem_scope : str, optional
        Only ``None`` and ``"global"`` exist.
    """
    handle = _to_handle(arr if isinstance(arr, (Tensor, tvm_ffi.Tensor, np.ndarray)) else np.asarray(arr))
    out = empty(tuple(handle.shape), str(handle.dtype), device, mem_scope)
    _transfer(handle, out.handle)
    return out


array = tensor


def empty(
    shape: Sequence[int] | int,
    dtype: str | type | np.dtype[Any] = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> Tensor:
    """Make a tensor without setting its elements, in 64-byte aligned memory of the runtime's pool."""
    dims = (int(shape),) if isinstance(shape, int) else tuple(map(_dimension, shape))
    name = _ML_DTYPES.get(dtype) if isinstance(dtype, np.dtype) else None
    name = name or str(np.dtype(dtype) if isinstance(dtype, type) else dtype)
    made = device.allocate(dims, name, mem_scope) if isinstance(device, Device) else None
    if made is not None:
        return made
    if mem_scope not in (None, "global"):
        raise InvalidArgument("unknown memory scope", expected="'global'", found=repr(mem_scope))
    kind, index = (1, 0) if device is None else Device(device).__dlpack_device__()
    return Tensor(_empty(dims, name, tvm_ffi.Device(kind, index)))


class _SupportsDLPack(Protocol):
    def __dlpack__(self) -> Any: ...


@also_called(ext_tensor="source", dltensor="source")
def from_dlpack(source: _SupportsDLPack) -> Tensor:
    """A tensor over the memory of anything with ``__dlpack__``, or of its capsule, which it keeps alive."""
    is_capsule = type(source).__name__ == "PyCapsule"
    return Tensor(_to_handle(SimpleNamespace(__dlpack__=lambda **_: source) if is_capsule else source))


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array that is contiguous and begins at a multiple of 64 bytes, so that executables can share it.

    It is the array itself, or a copy.
    """
    if array.flags.c_contiguous and array.ctypes.data % 64 == 0:
        return array
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    out = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def constant_view(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor over an array's memory, which it keeps alive.

    A read-only array is not copied, so nobody may write to the tensor. Inside ``weights_in_files`` it may be over a
    copy in a file.
    """
    array = stored(unmasked(array))
    if array.flags.writeable or not array.flags.c_contiguous or not array.nbytes or not array.dtype.isnative:
        return Tensor(_array_handle(array))
    memory: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory.owner = array  # type: ignore[attr-defined]
    return Tensor(_array_handle(np.frombuffer(memory, array.dtype).reshape(array.shape)))


def _convert_argument(value: Any) -> Any:
    """Arrays that tvm-ffi refuses as they are; everything else stays itself."""
    if isinstance(value, np.ndarray):
        return _array_handle(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        items = [_convert_argument(v) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if hasattr(value, "__dlpack__") and not isinstance(value, type):
        _to_handle(value)  # raises, and says why, where a library does not share its memory
    return value


def _check_unwritten(place: int, given: Any, taken: Any) -> None:
    """Refuse to lose what a function wrote into the copy of an array that could not be written itself."""
    if not isinstance(given, np.ndarray) or not isinstance(taken, tvm_ffi.Tensor):
        return
    found = Tensor(taken).numpy()
    if found.size == 0 or found.ctypes.data == given.ctypes.data:
        return
    before = given if given.dtype.isnative else given.astype(given.dtype.newbyteorder("="))
    if np.ascontiguousarray(before).tobytes() != np.ascontiguousarray(found).tobytes():
        why = "is read-only" if not given.flags.writeable else "has a layout or byte order that is copied first"
        raise InvalidArgument(
            f"argument {place}: the function writes this array, which {why}",
            expected="an array that can be written in place",
            found=f"shape {given.shape}, {given.dtype}, writeable={given.flags.writeable}",
            help="give a copy, array.copy(), and use that afterwards",
        )


class Results(tuple[Any, ...]):
    """What a function returns as an array: a tuple that programs also take for a ``tvm_ffi.Array``."""

    __slots__ = ()


tvm_ffi.Array.register(Results)  # pyright: ignore[reportAttributeAccessIssue] - of its metaclass


_HANDLE = tvm_ffi.Tensor
_size_of, _element_of = map(tvm_ffi.get_global_func, ("ffi.ArraySize", "ffi.ArrayGetItem"))


def _wrap_array(value: Any) -> Results:
    return Results(Tensor.elements_of(value, range(_size_of(value))))


def _wrap_item(value: Any) -> Any:
    if isinstance(value, tvm_ffi.Tensor):
        return Tensor(value)
    if isinstance(value, tvm_ffi.Array):
        return _wrap_array(value)
    return Results(map(_wrap_item, value)) if isinstance(value, tvm_ffi.List) else value


register_wrapper(tvm_ffi.Tensor, Tensor, usual=True)
register_wrapper(tvm_ffi.Array, _wrap_array)
register_argument(_convert_argument)
register_check(_check_unwritten)
