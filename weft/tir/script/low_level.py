"""Calls of lowered programs by TVM's names: stacks of packed arguments, thread primitives, handles.

They build calls of the operator ``tir.<name>``; a target that has no rule for one says so when it is built.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.ir import CallIntrin, DataType, Op, PrimExpr, as_expr, const
from weft.spelling import also_called, in_order, signature
from weft.tir.buffer import Buffer
from weft.tir.intrin import INTRINSICS
from weft.tir.script.dtypes import DTypeLike
from weft.tir.typing import Value


def _call(name: str, dtype: str, args: tuple[Any, ...]) -> PrimExpr:
    nodes = tuple(a.data if isinstance(a, Buffer) else as_expr(a) for a in args)
    return CallIntrin(DataType(dtype), Op.get(f"tir.{name}"), nodes)


_PARAMETERS = {
    name: tuple(parameters)
    for name, *parameters in map(
        str.split,
        """
        TVMBackendAllocWorkspace device_type device_id nbytes dtype_code_hint dtype_bits_hint
        TVMBackendFreeWorkspace device_type device_id ptr
        create_barriers barrier_count
        dp4a vec1 vec2 acc
        end_profile_intrinsic id
        ignore_loop_partition predicate
        isnullptr x
        lookup_param param_name
        mma_fill local_size local_ptr offset
        ptx_mma shape A_layout B_layout A_dtype B_dtype C_dtype multiplicand_a a_index multiplicand_b b_index \
accumulator c_index saturate operator
        ptx_mma_sp shape A_layout B_layout A_dtype B_dtype C_dtype multiplicand_a a_index multiplicand_b b_index \
accumulator c_index metadata meta_index sparse_selector saturate
        mma_store m n dst_ptr src_ptr src_offset dst_stride
        ptx_arrive_barrier barrier_id
        ptx_arrive_barrier_expect_tx barrier_id byte_count
        ptx_cp_async shared_ptr shared_offset global_ptr global_offset bytes
        ptx_cp_async_barrier barrier_id
        ptx_cp_async_bulk shared_ptr shared_offset global_ptr global_offset bytes barrier_id
        ptx_init_barrier_thread_count barrier_id thread_count
        ptx_ldmatrix trans num type local_ptr local_offset smem_ptr smem_offset
        ptx_wait_barrier barrier_id
        ptx_wait_group num
        q_multiply_shift x y q s
        q_multiply_shift_per_axis x y ls rs q is_lshift_required is_rshift_required
        start_profile_intrinsic id
        tvm_access_ptr ptype data offset extent rw_mask
        tvm_bmma_sync fragment_d index_d fragment_a index_a fragment_b index_b fragment_c index_c
        tvm_check_return expected return_unexpected nested_call
        tvm_fill_fragment fragment m n k index value
        tvm_load_matrix_sync fragment m n k index buffer_ptr stride layout
        tvm_mma_sync fragment_d index_d fragment_a index_a fragment_b index_b fragment_c index_c
        tvm_stack_make_array data shape strides ndim arr_dtype elem_offset
        tvm_store_matrix_sync fragment m n k index buffer_ptr stride layout
        tvm_struct_set arr index field value
        tvm_thread_invariant cond
        tvm_warp_shuffle mask value warp_id width warp_size
        tvm_warp_shuffle_down mask value offset width warp_size
        tvm_warp_shuffle_up mask value offset width warp_size
        """.strip().splitlines(),
    )
}
"""What a call's arguments are called."""


def _of_type(name: str, result: str) -> Callable[..., PrimExpr]:
    """Make the constructor of a call with one result type, which ``dtype=`` may say otherwise."""

    def build(*args: Any, dtype: str | None = None, **named: Any) -> PrimExpr:
        return _call(name, dtype or result, in_order(name, _PARAMETERS.get(name, ()), args, named) if named else args)

    return _described(build, name)


def _like(name: str, place: int) -> Callable[..., PrimExpr]:
    """Make the constructor of a call whose result has the type of an argument."""

    def build(*args: Any, **named: Any) -> PrimExpr:
        args = in_order(name, _PARAMETERS.get(name, ()), args, named) if named else args
        return _call(name, as_expr(args[place]).dtype, args)

    return _described(build, name)


def _described(build: Callable[..., PrimExpr], name: str) -> Callable[..., PrimExpr]:
    build.__name__ = name
    build.__doc__ = f"Call ``tir.{name}``."
    if name in _PARAMETERS:
        build.__signature__ = signature(_PARAMETERS[name])  # type: ignore[attr-defined]
    return build


def tvm_struct_get(arr: Value, index: Value, field: Value, dtype: str) -> PrimExpr:
    """Read a field of a structure."""
    return _call("tvm_struct_get", dtype, (arr, index, field))


def tvm_stack_alloca(dtype_str: str, num: Value, dtype: str = "handle") -> PrimExpr:
    """Reserve room on the stack."""
    return _call("tvm_stack_alloca", dtype, (dtype_str, num))


def type_annotation(dtype: DTypeLike) -> PrimExpr:
    """Carry a data type as an argument."""
    return _call("type_annotation", str(getattr(dtype, "dtype", dtype)), ())


def get_active_lane_mask(dtype: str, base: Value, limit: Value) -> PrimExpr:
    """Return which lanes from `base` on are below `limit`."""
    return _call("get_active_lane_mask", dtype, (base, limit))


@also_called(buffer_load="value", obj="value")
def address_of(value: Buffer | PrimExpr, *, dtype: str | None = None) -> PrimExpr:
    """Return the address of an element of a buffer; of a buffer, that of its first."""
    first = value[(0,) * len(value.shape)] if isinstance(value, Buffer) else value
    return _call("address_of", "handle", (first,))


def vectorlow(dtype: str, vec: Value) -> PrimExpr:
    """Return the lower half of a vector."""
    return _call("vectorlow", dtype, (vec,))


def vectorhigh(dtype: str, vec: Value) -> PrimExpr:
    """Return the upper half of a vector."""
    return _call("vectorhigh", dtype, (vec,))


def vectorcombine(dtype: str, vec1: Value, vec2: Value) -> PrimExpr:
    """Put two vectors behind each other."""
    return _call("vectorcombine", dtype, (vec1, vec2))


def assume(cond: Value) -> PrimExpr:
    """State what is true, for passes that simplify; nothing is tested."""
    return _call("assume", "bool", (cond,))


def nan(dtype: str) -> PrimExpr:
    """Return the value that is no number."""
    return const(float("nan"), dtype)


_BY_DTYPE = frozenset(
    """call_extern call_pure_extern call_intrin call_pure_intrin call_llvm_intrin call_llvm_pure_intrin reinterpret
    infinity max_value min_value vectorlow vectorhigh vectorcombine""".split()
)


def typed(build: Callable[..., Any]) -> Any:
    """Let a constructor take ``dtype=``, as texts of older releases write it.

    It is the first argument of those that have one; of others, whose operands decide, it says nothing new, unless they
    have more operands than are computed with: such a call stays as it is written, for passes that see its accesses.
    """

    @functools.wraps(build)
    def build_typed(*args: Any, dtype: str | None = None, **named: Any) -> Any:
        if dtype is not None and build.__name__ in _BY_DTYPE:
            args = (dtype or "void", *args)
        rule = INTRINSICS.get(build.__name__)
        if dtype and rule is not None and len(args) > rule.n_args:
            return _call(rule.name, dtype, args)
        return build(*args, **named)

    return build_typed


CALLS: dict[str, Callable[..., Any]] = {
    **{
        n: _of_type(n, "handle")
        for n in (
            "tvm_stack_make_shape tvm_stack_make_array tvm_access_ptr tvm_thread_allreduce tvm_tuple "
            "tvm_throw_last_error tvm_load_matrix_sync tvm_store_matrix_sync tvm_mma_sync tvm_fill_fragment "
            "lookup_param mma_store mma_fill ptx_mma ptx_ldmatrix ptx_cp_async undef tvm_bmma_sync "
            "TVMBackendAllocWorkspace ptx_mma_sp ptx_cp_async_bulk start_profile_intrinsic end_profile_intrinsic "
            "mem_copy"
        ).split()
    },
    **{
        n: _of_type(n, "int32")
        for n in (
            "tvm_struct_set tvm_storage_sync q_multiply_shift q_multiply_shift_per_axis continue_loop break_loop "
            "thread_return TVMBackendFreeWorkspace call_packed_lowered call_cpacked_lowered "
            "ptx_init_barrier_thread_count ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier "
            "ptx_cp_async_barrier create_barriers call_cpacked tvm_call_cpacked tvm_context_id tvm_check_return "
            "dp4a"
        ).split()
    },
    **{n: _of_type(n, "bool") for n in ("ignore_loop_partition", "isnullptr", "tvm_thread_invariant")},
    **{n: _like(n, 1) for n in ("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down")},
    "ptx_commit_group": _of_type("ptx_commit_group", "void"),
    "ptx_wait_group": _of_type("ptx_wait_group", "void"),
    "tvm_warp_activemask": _of_type("tvm_warp_activemask", "uint32"),
    **{
        f.__name__: f
        for f in (
            tvm_struct_get,
            tvm_stack_alloca,
            type_annotation,
            get_active_lane_mask,
            nan,
            address_of,
            assume,
            vectorlow,
            vectorhigh,
            vectorcombine,
        )
    },
}
"""The constructor of each call."""
