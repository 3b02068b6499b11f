"""Operators of the lowered form: what the virtual machine's code generator and the passes before it work on.

A lowered function is in A-normal form; beside Relay's own nodes it has these calls. TIR functions stand in the module
beside Relay functions and are referred to by ``GlobalVar``. "vector" is a rank-1 int64 tensor on the host, "scalar" a
rank-0 int64 tensor (or an int64 scalar of the machine: they are read the same), either a variable or a constant.

===================================================  =======  ==========================================================
call                                                 result   meaning
===================================================  =======  ==========================================================
``vm.bind_dims((tensors), (values))``                ()       names dimensions and elements for the calls behind it
``vm.call_kernel(@f, (inputs))``                     tensors  call of a TIR function whose outputs are not allocated yet
``vm.view(x)``                                       tensor   the same elements under another shape
``vm.invoke_tvm_op(@f, (inputs), (outputs))``        ()       call of a TIR function that writes `outputs`
``vm.shape_of(x)``                                   vector   the shape of a tensor
``vm.reshape_tensor(x, shape)``                      tensor   the same memory under another shape
``memory.alloc_storage(size)``                       storage  `size` bytes, a scalar
``memory.alloc_tensor(storage, shape)``              tensor   a tensor inside a storage, `offset` bytes from its start
``memory.kill(x)``                                   ()       a variable is not used any more
``device_copy(x)``                                   tensor   a copy on another device
===================================================  =======  ==========================================================

The first three are made by LowerRegions and gone after ManifestAlloc; the others are made by ManifestAlloc and those
behind it. ``shape`` of ``alloc_tensor`` and ``reshape_tensor`` is a vector; where all dimensions are known it is a
constant and they stand in ``const_shape`` and ``newshape``, too. ``device_index`` is the place of a device in the
machine's list.
"""

from __future__ import annotations

from weft.error import TypeInferenceError
from weft.ir import Attrs, Type, as_shape
from weft.ir import TensorType as IRTensorType
from weft.relay.op.registry import declare
from weft.relay.types import Any, TensorType, unit_type


def tensor_of(dims: tuple[int, ...], dtype: str) -> TensorType:
    """Return the type of a tensor; a dimension of -1 is one that only run time knows."""
    return TensorType(as_shape(Any() if d == -1 else d for d in dims), dtype)


def _stated(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return attrs["ret_type"]


def _unit(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return unit_type()


def _shape_of(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return TensorType(as_shape((_tensor(types[0], "vm.shape_of").ndim,)), attrs["dtype"])


def _reshaped(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return tensor_of(attrs["newshape"], _tensor(types[0], "vm.reshape_tensor").dtype)


def _tensor(ty: Type, op: str) -> IRTensorType:
    if not isinstance(ty, IRTensorType):
        raise TypeInferenceError(f"'{op}' takes a tensor", found=str(ty))
    return ty


declare(
    "vm.bind_dims",
    "tensors:tensors values:tensors",
    {"shapes": (), "elements": (), "derived": (), "checks": ()},
    infer=_unit,
    pure=False,
    doc="""Say what the symbolic scalars in the calls behind it stand for.

    ``shapes[i]`` is the shape of tensor i, ``elements[j]`` the elements of value tensor j; a bare variable among them
    is defined there. ``derived`` are pairs of further variables and what they are in terms of these. ``checks`` are
    relations that have to hold: what is found, what is expected, the error's class and the beginning of its message.
    """,
)
declare(
    "vm.call_kernel",
    "kernel:function inputs:tensors",
    {"ret_type": None, "shapes": None, "scalars": (), "device_index": 0},
    infer=_stated,
    doc="""Call a TIR function in destination-passing style: inputs, outputs, scalars.

    ``ret_type`` is the type of the result, a tensor or a tuple of them; ``shapes[i]`` the shape of output i in the
    terms of the last ``vm.bind_dims``, ``scalars`` the function's last arguments in the same terms. ``device_index`` is
    where its outputs lie.
    """,
)
declare(
    "vm.view",
    "data",
    {"ret_type": None, "shapes": None},
    infer=_stated,
    doc="The same elements under another shape, ``shapes[0]`` in the terms of the last ``vm.bind_dims``.",
)
declare(
    "vm.invoke_tvm_op",
    "kernel:function inputs:tensors outputs:tensors",
    infer=_unit,
    pure=False,
    doc="Call a TIR function on inputs, then on outputs, which are allocated and get written.",
)
declare("vm.shape_of", "data", {"dtype": "int64"}, infer=_shape_of, doc="The shape of a tensor as an int64 vector.")
declare(
    "vm.reshape_tensor",
    "data shape",
    {"newshape": ()},
    infer=_reshaped,
    doc="The same memory under another shape; ``newshape`` has -1 for the dimensions that only `shape` knows.",
)
