"""PrimFunc: a function over buffers and scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import force_setattr

from weft import ir
from weft._aliases import names_of
from weft.tir.buffer import Buffer
from weft.tir.stmt import AllocBuffer, Block, BlockRealize, BufferStore, DeclBuffer, Evaluate, Stmt


class BufferMap(tuple[tuple[ir.Var, Buffer], ...]):
    """Parameters and their buffers, in pairs; also a mapping: ``func.buffer_map[param]``, ``.items()``."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, ir.Var):
            return tuple.__getitem__(self, key)
        found = next((b for p, b in self if p is key), None)
        if found is None:
            raise KeyError(key)
        return found

    def keys(self) -> list[ir.Var]:
        """List the parameters that have buffers."""
        return [p for p, _ in self]

    def values(self) -> list[Buffer]:
        """List the buffers."""
        return [b for _, b in self]

    def items(self) -> list[tuple[ir.Var, Buffer]]:
        """List both."""
        return list(self)

    def get(self, key: ir.Var, default: Any = None) -> Any:
        """Return the buffer of a parameter, or `default`."""
        return next((b for p, b in self if p is key), default)


class PrimFunc(ir.BaseFunc):
    """A TIR function.

    ``buffer_map`` pairs a handle parameter with the buffer that it is; a symbolic dimension of such a buffer that is
    not itself a parameter takes its value from the argument. Attributes used here: ``global_symbol`` (exported name),
    ``tir.noalias`` (bool: buffers of different parameters do not overlap), ``op_pattern``, ``tir.stream_outputs``
    (bool: nobody reads the results while a cache would hold them).
    """

    __uncompared__ = ("ty",)  # it follows from the rest

    params: tuple[ir.Var, ...]
    body: Stmt
    ret_type: Any = None
    buffer_map: tuple[tuple[ir.Var, Buffer], ...] = BufferMap()
    attrs: ir.Attrs = ir.NO_ATTRS

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The name that the function is exported by."""
        symbol = self.attrs.get("global_symbol")
        if symbol is None:
            raise AttributeError("a private function has no name")
        return symbol

    @property
    def ty_of_references(self) -> ir.FuncType:
        """A function of any arguments, which gives nothing unless it returns a scalar."""
        return opaque_type(self.ret_type)

    def __post_init__(self) -> None:
        if type(self.attrs) is not ir.Attrs:
            force_setattr(self, "attrs", ir.Attrs.of(self.attrs))
        if "s_tir" in self.attrs:  # a note of TVM's for functions that schedules take, which all are here
            force_setattr(self, "attrs", self.attrs.without("s_tir"))
        if (
            type(self.params) is tuple
            and type(self.buffer_map) is BufferMap
            and {ir.Var, ir.SizeVar}.issuperset(map(type, self.params))
        ):
            return
        given: Any = self.buffer_map or ()  # TVM's programs give a dictionary, and buffers among the parameters
        buffers = list(given.items() if isinstance(given, Mapping) else given)
        params: list[ir.Var] = []
        listed: Any = self.params
        for p in (p.asobject() if hasattr(p, "asobject") else p for p in listed):
            handle = ir.Var(p.name, "handle") if isinstance(p, Buffer) else p
            params.append(handle)
            if isinstance(p, Buffer):
                buffers.append((handle, p))
        force_setattr(self, "params", tuple(params))
        force_setattr(self, "buffer_map", BufferMap(buffers))

    def buffer_of(self, param: ir.Var) -> Buffer | None:
        """Return the buffer of a parameter, or None for a scalar."""
        return self.buffer_map.get(param)  # type: ignore[attr-defined]

    def with_body(self, new_body: Stmt, span: Any = None) -> PrimFunc:
        """Return the function with another body."""
        return self.replace(body=new_body, span=span or self.span)

    @property
    def root(self) -> Block:
        """The root block of a scheduled function."""
        assert isinstance(self.body, BlockRealize)
        return self.body.block


def opaque_type(ret_type: ir.Type | str | None) -> ir.FuncType:
    """Return the type of a function of any arguments that returns `ret_type`, None for nothing."""
    given = ret_type if isinstance(ret_type, ir.PrimType) else ir.AnyType()
    return ir.FuncType(None, ir.TupleType(()) if ret_type is None else given)


def dtype_of_call(func: ir.GlobalVar) -> str:
    """Return the data type of a call of a function in a kernel: "void" where it returns no scalar."""
    returned = func.ty.ret if isinstance(func.ty, ir.FuncType) else None
    return returned.dtype if isinstance(returned, ir.PrimType) else "void"


def signature_type(func: PrimFunc) -> ir.FuncType:
    """Return the type of a function: tensors for its buffers, and whether it changes nothing outside of itself."""
    buffers = dict(func.buffer_map)

    def of(param: ir.Var) -> ir.Type:
        buffer = buffers.get(param)
        if buffer is None:
            return param.ty  # type: ignore[attr-defined]
        return ir.tensor_type(tuple(ir.cast("int64", d) for d in buffer.shape), str(buffer.dtype))

    ret = getattr(func.ret_type, "dtype", None)
    result = ir.TupleType(()) if ret in (None, "void") else ir.PrimType(ret)
    return ir.FuncType(tuple(of(p) for p in func.params), result, _is_pure(func))


def _is_pure(func: PrimFunc) -> bool:
    own = {b for n in ir.find(func.body, Block) for b in n.alloc_buffers}
    own |= {n.buffer for n in ir.find(func.body, AllocBuffer, DeclBuffer)}
    for n in ir.walk(func.body):
        if isinstance(n, BufferStore) and n.buffer not in own:
            return False
        if (
            isinstance(n, Evaluate)
            and isinstance(n.value, ir.CallIntrin)
            and getattr(n.value.op, "name", "") != "tir.ret"
        ):
            return False
    return True


__getattr__ = names_of(__name__, {"TensorIntrin": "weft.tir.schedule.tensorize"})
