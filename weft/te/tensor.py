"""Tensors and the operations that make them: the nodes of a tensor-expression graph.

A :class:`Tensor` is output `value_index` of an :class:`Operation`; an operation knows the tensors it reads. Indexing
a tensor gives a scalar expression (:class:`~weft.tir.ProducerLoad`), so that bodies are written as Python lambdas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from weft import ir
from weft.error import InvalidArgument
from weft.operators import operator, operators
from weft.tir import Buffer, ProducerLoad, Stmt

_OUTPUTS: WeakValueDictionary[tuple[Operation, int], Tensor] = WeakValueDictionary()


class Operation(ir.Node):
    """What makes tensors. Identity distinguishes operations."""

    name: str
    tag: str = ""
    attrs: ir.Attrs = ir.NO_ATTRS

    def output(self, index: int) -> Tensor:
        """Return output `index`; the same object each time."""
        known = _OUTPUTS.get((self, index))
        if known is None:
            known = Tensor(self, index, self.output_shape(index), self.output_dtype(index))
            _OUTPUTS[self, index] = known
        return known

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return 1

    @property
    def input_tensors_tuple(self) -> tuple[Tensor, ...]:
        """The tensors that this operation reads, each once, in order of first use."""
        return ()

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors that this operation reads, each once, in order of first use."""
        return list(self.input_tensors_tuple)

    def output_shape(self, index: int) -> tuple[ir.PrimExpr, ...]:
        """The shape of an output."""
        raise NotImplementedError

    def output_dtype(self, index: int) -> str:
        """The data type of an output."""
        raise NotImplementedError


def producers(op: Operation) -> list[Operation]:
    """List the operations whose tensors an operation reads, in order of first use."""
    return [t.op for t in op.input_tensors_tuple]


class PlaceholderOp(Operation, kw_only=True):
    """An input."""

    shape: tuple[ir.PrimExpr, ...] = ()
    dtype: str = "float32"

    def output_shape(self, index: int) -> tuple[ir.PrimExpr, ...]:
        """The shape of an output."""
        return self.shape

    def output_dtype(self, index: int) -> str:
        """The data type of an output."""
        return self.dtype


class BaseComputeOp(Operation, kw_only=True):
    """An operation over iteration variables."""

    axis: tuple[ir.IterVar, ...] = ()

    @property
    def reduce_axis(self) -> tuple[ir.IterVar, ...]:
        """The reduction variables."""
        return ()


class ComputeOp(BaseComputeOp, kw_only=True):
    """Each element computed by an expression; with several outputs, one expression each over the same variables."""

    body: tuple[ir.PrimExpr, ...] = ()

    @property
    def num_outputs(self) -> int:
        """How many tensors the operation gives."""
        return len(self.body)

    @property
    def reduce_axis(self) -> tuple[ir.IterVar, ...]:
        """The reduction variables of the sums."""
        return getattr(self.body[0], "axis", ())  # of a reduction, or of an intrinsic that steps along it

    @property
    def input_tensors_tuple(self) -> tuple[Tensor, ...]:
        """The tensors read, each once."""
        return tuple(dict.fromkeys(n.producer for n in ir.find(self.body, ProducerLoad)))

    def output_shape(self, index: int) -> tuple[ir.PrimExpr, ...]:
        """The shape of an output."""
        return tuple(iv.dom.extent for iv in self.axis)  # type: ignore[union-attr]

    def output_dtype(self, index: int) -> str:
        """The data type of an output."""
        return self.body[index].dtype


class ScanOp(Operation, kw_only=True):
    """A recurrence: ``state[t]`` from ``state[t - 1]``, beginning with `init`."""

    scan_axis: ir.IterVar | None = None
    init: tuple[Any, ...] = ()
    update: tuple[Any, ...] = ()
    state_placeholder: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()

    @property
    def num_outputs(self) -> int:
        """How many tensors the operation gives."""
        return len(self.update)

    @property
    def input_tensors_tuple(self) -> tuple[Tensor, ...]:
        """The tensors read, each once."""
        return (*self.init, *self.update)

    def output_shape(self, index: int) -> tuple[ir.PrimExpr, ...]:
        """The shape of an output."""
        return self.state_placeholder[index].shape

    def output_dtype(self, index: int) -> str:
        """The data type of an output."""
        return self.state_placeholder[index].dtype


class ExternOp(Operation, kw_only=True):
    """Outputs filled by a statement over buffers of the inputs and outputs."""

    inputs: tuple[Any, ...] = ()
    input_placeholders: tuple[Buffer, ...] = ()
    output_placeholders: tuple[Buffer, ...] = ()
    body: Stmt | None = None

    @property
    def num_outputs(self) -> int:
        """How many tensors the operation gives."""
        return len(self.output_placeholders)

    @property
    def input_tensors_tuple(self) -> tuple[Tensor, ...]:
        """The tensors read, each once."""
        return tuple(dict.fromkeys(self.inputs))

    def output_shape(self, index: int) -> tuple[ir.PrimExpr, ...]:
        """The shape of an output."""
        return self.output_placeholders[index].shape

    def output_dtype(self, index: int) -> str:
        """The data type of an output."""
        return self.output_placeholders[index].dtype


_TENSOR_BINARY: list[Any] = []
_TENSOR_CONVERT: list[Any] = []


def install_tensor_arithmetic(apply: Callable[..., Any], convert: Callable[..., Any]) -> None:
    """Make ``apply(op, a, b)`` what operators on whole tensors mean, and ``convert(x, dtype)`` what ``astype`` does.

    ``topi`` brings both.
    """
    _TENSOR_BINARY[:] = [apply]
    _TENSOR_CONVERT[:] = [convert]


def _binary(op: Any, a: Any, b: Any) -> Any:
    """Apply to elements; whole tensors broadcast through the function that ``topi`` installs."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        if not _TENSOR_BINARY:
            raise InvalidArgument(
                "arithmetic on whole tensors needs weft.topi", help="import weft.topi, or index the tensors"
            )
        return _TENSOR_BINARY[0](op, a, b)
    return op(a.asobject() if isinstance(a, TensorSlice) else a, b.asobject() if isinstance(b, TensorSlice) else b)


class _ScalarOperators:
    """Arithmetic on tensors and slices, which stand for the element they denote."""

    __slots__ = ()

    __add__, __radd__ = operators(_binary, ir.add)
    __sub__, __rsub__ = operators(_binary, ir.sub)
    __mul__, __rmul__ = operators(_binary, ir.mul)
    __truediv__, __rtruediv__ = operators(_binary, ir.div)
    __floordiv__, __rfloordiv__ = operators(_binary, ir.floordiv)
    __mod__, __rmod__ = operators(_binary, ir.floormod)
    __lt__ = operator(_binary, ir.less)
    __le__ = operator(_binary, ir.less_equal)
    __gt__ = operator(_binary, ir.greater)
    __ge__ = operator(_binary, ir.greater_equal)

    def __neg__(self) -> Any:
        return _binary(ir.mul, self, -1)


class TensorSlice(_ScalarOperators):
    """A tensor with some leading indices given."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: Any) -> None:
        self.tensor = tensor
        self.indices = tuple(indices) if isinstance(indices, tuple) else (indices,)

    __iter__ = None

    def __getitem__(self, indices: Any) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[self.indices + more]

    def asobject(self) -> ir.PrimExpr:
        """Return the element as an expression."""
        return self.tensor(*self.indices)

    def astype(self, dtype: str) -> ir.PrimExpr:
        """Return the element converted to another data type."""
        return self.asobject().astype(dtype)

    @property
    def dtype(self) -> str:
        """The data type of the element."""
        return self.tensor.dtype


class Tensor(_ScalarOperators):
    """Output `value_index` of `op`: a shape and a data type, and elements by index.

    It is not an IR node: walks over scalar expressions end at tensors instead of entering the graph behind them.
    """

    __slots__ = ("__weakref__", "dtype", "op", "shape", "value_index")
    __saved_fields__ = ("op", "value_index")

    def __init__(self, op: Operation, value_index: int, shape: tuple[ir.PrimExpr, ...], dtype: str) -> None:
        self.op, self.value_index, self.shape, self.dtype = op, value_index, shape, dtype

    def astype(self, dtype: str) -> Tensor:
        """Convert the elements to another data type."""
        if not _TENSOR_CONVERT:
            raise InvalidArgument("converting whole tensors needs weft.topi", help="import weft.topi, or index it")
        return _TENSOR_CONVERT[0](self, dtype)

    @staticmethod
    def from_saved(op: Operation, value_index: int) -> Tensor:
        """Return the tensor that was saved as an output of `op`."""
        return op.output(value_index)

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape=({', '.join(map(str, self.shape))}), dtype={self.dtype})"

    def __call__(self, *indices: Any) -> ir.PrimExpr:
        """Return element `indices`."""
        flat = indices[0] if len(indices) == 1 and isinstance(indices[0], (tuple, list)) else indices
        if len(flat) != len(self.shape):
            raise InvalidArgument(
                f"tensor '{self.name}' takes another number of indices",
                expected=str(len(self.shape)),
                found=str(len(flat)),
            )
        at = tuple(ir.as_expr(i) for i in flat)
        for i in at:
            if i.dtype[:3] not in ("int", "uin", "boo"):
                raise InvalidArgument(
                    f"an index of tensor '{self.name}' is no integer",
                    found=f"{i}: {i.dtype}",
                    help="convert it, i.astype('int32')",
                )
        return ProducerLoad(self, at)

    __iter__ = None  # or Python would count upwards without end

    def __getitem__(self, indices: Any) -> Any:
        """Return the element at all of the indices; what is left to index after the first few; or a region."""
        given = indices if isinstance(indices, tuple) else (indices,)
        region = len(given) < len(self.shape) or any(isinstance(i, slice) for i in given)
        return TensorSlice(self, given) if region else self(*given)

    @property
    def name(self) -> str:
        """The operation's name, numbered when it has several outputs."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}_v{self.value_index}"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def axis(self) -> tuple[ir.IterVar, ...]:
        """The iteration variables of the operation."""
        return self.op.axis  # type: ignore[attr-defined]
