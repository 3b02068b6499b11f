"""What a session's client holds of the other side: devices, tensors, functions, modules and other objects.

Each keeps the session open and is freed there when nobody needs it here any more.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from weft import ffi, runtime
from weft.error import DTypeMismatch, InvalidArgument, ShapeMismatch, own_errors
from weft.rpc import codec
from weft.rpc.base import RPC_SESS_MASK
from weft.rpc.endpoint import Endpoint
from weft.rpc.machine import RemoteVirtualMachine
from weft.runtime.module import MissingFunction


class RemoteEndpoint(Endpoint):
    """An endpoint that makes what it receives into the classes of this module, and takes them as arguments."""

    def wrap(self, values: Sequence[Any]) -> Any:
        """What a server returned."""
        return _wrap(self, values)

    def outgoing(self, value: Any) -> Any:
        """An argument as the wire has it."""
        return _outgoing(self, value)


class RemoteDevice(runtime.Device):
    """A device of the machine that a session is with."""

    __slots__ = ("_rpc_sess", "endpoint")

    def __init__(self, endpoint: Endpoint, kind: int, index: int, session: Any = None) -> None:
        super().__init__((endpoint.number + 1) * RPC_SESS_MASK + kind, index)
        self.endpoint, self._rpc_sess = endpoint, session

    @property
    def there(self) -> codec.WireDevice:
        """The device as its own machine calls it."""
        return codec.WireDevice(self.device_type % RPC_SESS_MASK, self.device_id)

    @property
    def type(self) -> str:
        """Name of the kind, ``"cpu"``, behind the session's."""
        return f"remote[{self.endpoint.number}]:{runtime.Device(*self.there).type}"

    @property
    def exist(self) -> bool:
        """Whether the machine has the device."""
        return bool(self._attribute_there(0))

    def sync(self, stream: int | None = None) -> None:
        """Wait until all work on the device, or on one of its streams, is done."""
        self.endpoint.system(codec.RPCCode.DEV_STREAM_SYNC, self.there, codec.Opaque(stream or 0))

    def _attribute_there(self, number: int) -> Any:
        return self.endpoint.system(codec.RPCCode.DEV_GET_ATTR, self.there, number)

    def _attribute(self, what: str) -> Any:
        """What the device says of itself, where the protocol has a number for that."""
        return self._attribute_there(codec.DEVICE_ATTRIBUTES.index(what)) if what in codec.DEVICE_ATTRIBUTES else None

    def create_raw_stream(self) -> int:
        """Make a stream: work on it is done in order; returns its handle."""
        return codec.handle(self.endpoint.system(codec.RPCCode.DEV_CREATE_STREAM, self.there) or 0)

    def free_raw_stream(self, stream: int) -> None:
        """Destroy a stream of :meth:`create_raw_stream`."""
        self.endpoint.system(codec.RPCCode.DEV_FREE_STREAM, self.there, codec.Opaque(stream))

    def set_raw_stream(self, stream: int) -> None:
        """Make a stream the one that copies and kernels of the session use; 0 is the default."""
        self.endpoint.system(codec.RPCCode.DEV_SET_STREAM, self.there, codec.Opaque(stream))

    def allocate(self, shape: tuple[int, ...], dtype: str, mem_scope: str | None) -> RemoteTensor:
        """Make a tensor there, whose elements are not set."""
        if any(d < 0 for d in shape):
            raise InvalidArgument("a tensor has a negative dimension", found=str(shape))
        wire = codec.WireTensor(0, self.there, dtype, shape)
        data = codec.handle(self.endpoint.system(codec.RPCCode.DEV_ALLOC_DATA_WITH_SCOPE, wire, mem_scope))
        owner = _Owner(self.endpoint, codec.RPCCode.DEV_FREE_DATA, self.there, codec.Opaque(data))
        return RemoteTensor(_RemoteArray(self, wire._replace(data=data), owner))


class _Owner:
    """What the server keeps for the client; it is freed with this."""

    __slots__ = ("_free", "endpoint")

    def __init__(self, endpoint: Endpoint, *free: Any) -> None:
        self.endpoint, self._free = endpoint, free

    def __del__(self) -> None:
        self.endpoint.free(*self._free)


class _RemoteArray:
    """Where and how a tensor lies; to `Tensor` it is what a native tensor is."""

    __slots__ = ("device", "owner", "wire")

    def __init__(self, device: RemoteDevice, wire: codec.WireTensor, owner: _Owner) -> None:
        self.device, self.wire, self.owner = device, wire, owner

    @property
    def shape(self) -> tuple[int, ...]:
        return self.wire.shape

    @property
    def dtype(self) -> str:
        return self.wire.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        shape = self.wire.shape
        return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))

    @property
    def n_bytes(self) -> int:
        return codec.element_bytes(self.wire.dtype, math.prod(self.wire.shape))

    def is_contiguous(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return self.wire.data

    def same_as(self, other: Any) -> bool:
        return self is other

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError(f"this tensor lies on {self.device}; .numpy() fetches it")

    def transfer(self, source: Any, target: Any) -> None:
        """Copy elements between two tensors, one of which this is; see `weft.runtime.tensor`."""
        if tuple(source.shape) != tuple(target.shape):
            raise ShapeMismatch(
                "copy: shapes differ", expected=str(tuple(target.shape)), found=str(tuple(source.shape))
            )
        if str(source.dtype) != str(target.dtype):
            raise DTypeMismatch("copy: dtypes differ", expected=str(target.dtype), found=str(source.dtype))
        if not isinstance(source, _RemoteArray):
            here = runtime.Tensor(source)
            if not here.is_contiguous() or here.device.device_type != runtime.Device.kDLCPU:
                here = runtime.tensor(np.ascontiguousarray(here.numpy()))
            target.device.endpoint.copy_to(target.wire, _elements(here))
        elif not isinstance(target, _RemoteArray):
            whole = runtime.Tensor(target)
            here = whole if whole.is_contiguous() and whole.device.device_type == runtime.Device.kDLCPU else None
            into = here or runtime.empty(source.shape, source.dtype)
            source.device.endpoint.copy_from(source.wire, _elements(into))
            if here is None:
                whole.copyfrom(into)
        elif source.device.endpoint is target.device.endpoint:
            source.device.endpoint.system(codec.RPCCode.COPY_AMONG_REMOTE, source.wire, target.wire, codec.Opaque(0))
        else:
            raise InvalidArgument(
                "tensors of two sessions are copied through this process", help="target.copyfrom(source.numpy())"
            )


_view = tvm_ffi.get_global_func("weft.tensor_view")


def _elements(value: runtime.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    size = codec.element_bytes(str(value.dtype), math.prod(value.shape))
    if not size:
        return memoryview(bytearray())
    # By address: elements of less than a byte, and types that NumPy lacks, have bytes too.
    view = memoryview((ctypes.c_char * size).from_address(value.data_ptr())).cast("B")
    return view


class RemoteTensor(runtime.Tensor):
    """A tensor of another machine; a function of that machine takes it, and :meth:`numpy` fetches it."""

    handle: _RemoteArray

    def __tvm_ffi_object__(self) -> Any:
        """Functions of this process do not take it."""
        raise InvalidArgument(
            f"this tensor lies on {self.device}, where functions of this process do not reach",
            help="use .numpy(), or call a function of the session",
        )

    @property
    def device(self) -> RemoteDevice:
        """Where the data lies."""
        return self.handle.device

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.handle.n_bytes

    def numpy(self) -> np.ndarray[Any, Any]:
        """Fetch the elements."""
        return self._converted()

    def _converted(self) -> np.ndarray[Any, Any]:
        with own_errors("fetching a tensor"):
            out = np.empty(self.shape, runtime.numpy_dtype(self.dtype))
        if out.nbytes != self.handle.n_bytes:
            raise DTypeMismatch(f"NumPy has no elements of {self.dtype}", help="copy it to a tensor of this process")
        if out.nbytes:
            view = out.reshape(-1).view(np.uint8).data
            self.handle.device.endpoint.copy_from(self.handle.wire, view)
        return out

    def _create_view(self, shape: Any, dtype: Any = None, relative_byte_offset: int = 0) -> RemoteTensor:
        if relative_byte_offset:
            raise InvalidArgument(
                "a view of a remote tensor begins where the tensor does", expected="0", found=str(relative_byte_offset)
            )
        array = self.handle
        wire = array.wire._replace(shape=tuple(int(d) for d in shape), dtype=dtype or array.dtype)
        view = _RemoteArray(array.device, wire, array.owner)
        if view.n_bytes != array.n_bytes:
            raise ShapeMismatch(
                "a view has as many bytes as its tensor",
                expected=f"{array.n_bytes}",
                found=f"{view.n_bytes}: {wire.dtype}{wire.shape}",
            )
        return RemoteTensor(view)

    def __dlpack__(self, **options: Any) -> Any:
        """There is no capsule over memory of another machine."""
        return self.handle.__dlpack__(**options)

    def __setitem__(self, index: Any, value: Any) -> None:
        data = self.numpy()
        data[index] = np.asarray(value)
        self.copyfrom(data)


class RemoteFunction(ffi.PackedFunc):
    """A function of another machine."""

    __slots__ = ("_owner", "endpoint", "handle")
    endpoint: Endpoint
    handle: int
    _owner: _Owner

    def __call__(self, *args: Any) -> Any:
        """Call the function there."""
        endpoint = self.endpoint
        for a in args:
            if type(a) not in _NUMBERS:
                return endpoint.call(self.handle, [a if type(a) in _PLAIN else _outgoing(endpoint, a) for a in args])
        return endpoint.call_plain(self.handle, args)


def _function(endpoint: Endpoint, handle: int) -> RemoteFunction:
    owner = _Owner(endpoint, codec.RPCCode.FREE_HANDLE, codec.Opaque(handle))

    def call(*args: Any) -> Any:
        return owner.endpoint.call(handle, [_outgoing(owner.endpoint, a) for a in args])

    out = RemoteFunction.__new__(RemoteFunction)
    out._plain = tvm_ffi.convert(call)
    out.__move_handle_from__(_same(out._plain))
    out.endpoint, out.handle, out._owner = endpoint, handle, owner
    return out


_same = ffi.builtin("copy").plain


class RPCObjectRef:
    """An object of another machine that only functions of that machine can use."""

    __slots__ = ("_owner", "handle")

    def __init__(self, owner: _Owner, handle: int) -> None:
        self._owner, self.handle = owner, handle

    @property
    def endpoint(self) -> Endpoint:
        """The session."""
        return self._owner.endpoint

    def __repr__(self) -> str:
        return f"RPCObjectRef({self.handle:#x})"


class RemoteModule(runtime.Module):
    """A module of another machine, or the session itself as one: its functions are the global ones."""

    __slots__ = ("_owner", "endpoint", "module_handle")

    def __init__(self, endpoint: Endpoint, handle: int = 0) -> None:
        self.endpoint, self.module_handle = endpoint, handle
        self._owner = _Owner(endpoint, codec.RPCCode.FREE_HANDLE, codec.Opaque(handle)) if handle else None
        self._entry = None

    @property
    def kind(self) -> str:
        """``"rpc"``, whatever it is there."""
        return "rpc"

    type_key = kind

    def __tvm_ffi_object__(self) -> Any:
        """Functions of this process do not take it."""
        raise InvalidArgument("this module is of another machine, where functions of this process do not reach")

    def _server(self, name: str) -> RemoteFunction:
        found = global_function(self.endpoint, name)
        if found is None:
            raise InvalidArgument(f"the server has no function '{name}'", where=self.endpoint.name)
        return found

    def get_function(self, name: str, query_imports: bool = True) -> RemoteFunction:
        """Return a function; an InvalidArgument, which is an AttributeError too, as in TVM, where there is none."""
        if name == "CloseRPCConnection":
            return ffi.convert_func(self.endpoint.close)  # pyright: ignore[reportReturnType]
        if self.module_handle:
            found = self._server("tvm.rpc.server.ModuleGetFunction")(self, name, True)
        else:
            found = global_function(self.endpoint, name)
        if found is None:
            raise MissingFunction(f"there is no function '{name}'", where=self.endpoint.name)
        return codec.answered(found, RemoteFunction)

    def __getitem__(self, name: str) -> RemoteFunction:
        return self.get_function(name)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether the module has a function `name`."""
        try:
            self.get_function(name)
        except MissingFunction:
            return False
        return True

    @property
    def imports(self) -> list[runtime.Module]:
        """A client does not see them."""
        return []

    imported_modules = imports

    def import_module(self, module: Any) -> None:
        """Add a module of the same session to the imports."""
        self._server("tvm.rpc.server.ImportModule")(self, module)

    @property
    def entry_name(self) -> str:
        """The name of the entry function: where the server can say which it is that, else ``main``."""
        found = global_function(self.endpoint, "weft.rpc.module_entry_name")
        return "main" if found is None else str(found(self))

    @property
    def entry_func(self) -> RemoteFunction:
        """The entry function."""
        if self._entry is None:
            self._entry = self.get_function(self.entry_name)
        return self._entry  # pyright: ignore[reportReturnType]

    def function_names(self) -> list[str]:
        """A client does not see them."""
        return []

    def load_module(self, name: str) -> RemoteModule:
        """Open a library of the session's folder."""
        return codec.answered(self._server("tvm.rpc.server.load_module")(name), RemoteModule)

    def virtual_machine(self, device: Any, memory_cfg: Any = None) -> RemoteVirtualMachine:
        """Make the machine that runs this executable where it lies."""
        return RemoteVirtualMachine(self, device, memory_cfg)

    def time_evaluator(
        self,
        func_name: str,
        dev: Any = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Any:
        """Return a function that times calls of `func_name` where it lies; see :meth:`Module.time_evaluator`."""
        where = dev if dev is not None else RemoteDevice(self.endpoint, runtime.Device.kDLCPU, 0)
        if not isinstance(where, RemoteDevice) or where.endpoint is not self.endpoint:
            raise InvalidArgument(
                "a function is timed by the clock of a device of its session",
                found=str(where),
                help="pass remote.cpu()",
            )
        kind, index = where.there
        timed = self._server("runtime.RPCTimeEvaluator")(
            self if self.module_handle else None,
            func_name,
            kind,
            index,
            number,
            repeat,
            min_repeat_ms,
            limit_zero_time_iterations,
            cooldown_interval_ms,
            repeats_to_cooldown,
            cache_flush_bytes,
            f_preproc,
        )

        def evaluate(*args: Any) -> runtime.BenchmarkResult:
            data = codec.answered(timed(*args), bytes)
            if len(data) % 8:
                raise codec.malformed("times that are no numbers")
            return runtime.BenchmarkResult(struct.unpack(f"={len(data) // 8}d", data))

        return evaluate

    def same_as(self, other: Any) -> bool:
        """Whether both are the same module of the same session."""
        return isinstance(other, RemoteModule) and (self.endpoint, self.module_handle) == (
            other.endpoint,
            other.module_handle,
        )

    def __repr__(self) -> str:
        return f"RemoteModule({self.endpoint.name})"


def global_function(endpoint: Endpoint, name: str) -> RemoteFunction | None:
    """A global function of the server."""
    handle = endpoint.system(codec.RPCCode.GET_GLOBAL_FUNC, name)
    return _function(endpoint, codec.handle(handle)) if handle else None


# ---- values both ways ------------------------------------------------------------------------------------------------


def _wrap(endpoint: Endpoint, values: Sequence[Any]) -> Any:
    """What a server returned: the index of its type, then itself or its handle."""
    kind, value = values[0], values[1]
    if type(value) in _PLAIN:
        return value
    if isinstance(value, codec.WireTensor):
        if min(value.shape, default=0) < 0 or codec.element_bytes(value.dtype, math.prod(value.shape)) > sys.maxsize:
            raise codec.malformed(f"a tensor of shape {value.shape}")
        handle = codec.Opaque(codec.handle(values[2] if len(values) > 2 else None))
        device = RemoteDevice(endpoint, *value.device)
        return RemoteTensor(_RemoteArray(device, value, _Owner(endpoint, codec.RPCCode.FREE_HANDLE, handle)))
    if kind == codec.TypeIndex.FUNCTION:
        return _function(endpoint, codec.handle(value))
    if kind == codec.TypeIndex.MODULE:
        return RemoteModule(endpoint, codec.handle(value))
    if isinstance(value, codec.WireDevice):
        return RemoteDevice(endpoint, *value)
    if isinstance(value, codec.Opaque) and codec.answered(kind, int) >= codec.TypeIndex.OBJECT:
        return RPCObjectRef(_Owner(endpoint, codec.RPCCode.FREE_HANDLE, value), int(value))
    return value


_NUMBERS = frozenset((type(None), bool, int, float))
_PLAIN = frozenset((type(None), bool, int, float, str, bytes, bytearray, tvm_ffi.dtype))


def _own(endpoint: Endpoint, other: Endpoint, what: str) -> None:
    if other is not endpoint:
        raise InvalidArgument(f"a {what} of another session", expected=endpoint.name, found=other.name)


def _outgoing(endpoint: Endpoint, value: Any) -> Any:
    """An argument as the wire has it; an InvalidArgument where it lies in this process, or in another session."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, RemoteTensor):
        _own(endpoint, value.handle.device.endpoint, "tensor")
        return value.handle.wire
    if isinstance(value, RemoteDevice):
        _own(endpoint, value.endpoint, "device")
        return value.there
    if isinstance(value, RemoteModule):
        _own(endpoint, value.endpoint, "module")
        return codec.ModuleHandle(value.module_handle)
    if isinstance(value, RemoteFunction):
        _own(endpoint, value.endpoint, "function")
        return codec.FunctionHandle(value.handle)
    if isinstance(value, RPCObjectRef):
        _own(endpoint, value.endpoint, "object")
        return codec.ObjectHandle(value.handle)
    for cls, convert in _CONVERSIONS:
        if isinstance(value, cls):
            return convert(value)
    if isinstance(value, (runtime.Tensor, tvm_ffi.Tensor, np.ndarray, runtime.Device, tvm_ffi.Device, runtime.Module)):
        raise InvalidArgument(
            "a function of another machine takes what lies there",
            found=type(value).__name__,
            help="make tensors with runtime.tensor(array, remote.cpu())",
        )
    if callable(value):
        return codec.FunctionHandle(endpoint.callback(value))
    raise InvalidArgument("a function of another machine does not take this", found=type(value).__name__)


_CONVERSIONS: list[tuple[type, Callable[[Any], Any]]] = [
    (tvm_ffi.dtype, lambda v: v),
    (str, str),
    (bytes, bytes),
    (memoryview, lambda v: v.cast("B")),
    (bool, bool),
    (int, int),
    (float, float),
    (np.generic, lambda v: v.item()),
]
