"""Helper functions that objects of a library share: the runtime's services, with a fallback where it is not loaded.

Generated code refers to ``weft_*`` weakly. With the runtime in the process they are its functions; without it a
library still loads and runs: loops run on one thread, scratch memory comes from the C library, and a failed check
raises a fixed message through tvm-ffi.

A module of its own has them inside. The kernels of a model declare them, and one object beside them defines them
(:func:`define_all`): compiling them again for each kernel took a third of LLVM's time.
"""

from __future__ import annotations

from enum import IntEnum

from weft.target.llvm.emitter import ModuleEmitter
from weft.target.llvm.types import tensor_member


class Failure(IntEnum):
    """What is wrong with an argument, as the runtime's ``weft_arg_error`` numbers it."""

    COUNT = 0
    NOT_TENSOR = 1
    DTYPE = 2
    NDIM = 3
    SHAPE = 4
    STRIDES = 5
    DEVICE = 6
    ALIGN = 7
    NOT_INT = 8
    NOT_FLOAT = 9
    SYMBOLIC = 10
    RANGE = 11
    DEVICE_ID = 12


def weak(module: ModuleEmitter, result: str, name: str, params: str) -> None:
    """Declare a function that may be missing in the process."""
    module.declare(name, f"declare extern_weak {result} @{name}({params})")


def parallel_for(module: ModuleEmitter) -> str:
    """Run a loop's body in pieces, on the runtime's threads where there are some."""

    def body() -> str:
        weak(module, "i32", "weft_parallel_for", "ptr, ptr, i64, i64")
        return """  %here = icmp ne ptr @weft_parallel_for, null
  br i1 %here, label %pool, label %serial
pool:
  %rc = call i32 @weft_parallel_for(ptr %body, ptr %ctx, i64 %extent, i64 %grain)
  ret i32 %rc
serial:
  %any = icmp sgt i64 %extent, 0
  br i1 %any, label %run, label %out
run:
  %alone = call i32 %body(i64 0, i64 %extent, ptr %ctx)
  ret i32 %alone
out:
  ret i32 0"""

    return module.service("parallel_for", "i32", _PARALLEL, body)


def parallel_forwards(module: ModuleEmitter) -> str:
    """Run a loop's body in pieces that threads take in ascending order."""
    usual = parallel_for(module)

    def body() -> str:
        weak(module, "i32", "weft_parallel_forwards", "ptr, ptr, i64, i64")
        return f"""  %here = icmp ne ptr @weft_parallel_forwards, null
  br i1 %here, label %pool, label %older
pool:
  %rc = call i32 @weft_parallel_forwards(ptr %body, ptr %ctx, i64 %extent, i64 %grain)
  ret i32 %rc
older:
  %any = call i32 {usual}(ptr %body, ptr %ctx, i64 %extent, i64 %grain)
  ret i32 %any"""

    return module.service("parallel_forwards", "i32", _PARALLEL, body)


_PARALLEL = "ptr %body, ptr %ctx, i64 %extent, i64 %grain"


def workspace_alloc(module: ModuleEmitter) -> str:
    """Allocate scratch memory, 64-byte aligned, or return null."""

    def body() -> str:
        size = module.size_type
        weak(module, "ptr", "weft_workspace_alloc", "i64")
        module.declare("aligned_alloc", f"declare ptr @aligned_alloc({size}, {size})")
        return f"""  %here = icmp ne ptr @weft_workspace_alloc, null
  br i1 %here, label %cached, label %plain
cached:
  %p = call ptr @weft_workspace_alloc(i64 %nbytes)
  ret ptr %p
plain:
  %more = add i64 %nbytes, 64
  %size = and i64 %more, -64
  {"%bytes = trunc i64 %size to i32" if size == "i32" else ""}
  %q = call ptr @aligned_alloc({size} 64, {size} {"%bytes" if size == "i32" else "%size"})
  ret ptr %q"""

    return module.service("workspace_alloc", "noalias ptr", "i64 %nbytes", body)


def workspace_free(module: ModuleEmitter) -> str:
    """Give scratch memory back."""

    def body() -> str:
        weak(module, "void", "weft_workspace_free", "ptr")
        module.declare("free", "declare void @free(ptr)")
        return """  %here = icmp ne ptr @weft_workspace_free, null
  br i1 %here, label %cached, label %plain
cached:
  call void @weft_workspace_free(ptr %p)
  ret void
plain:
  call void @free(ptr %p)
  ret void"""

    return module.service("workspace_free", "void", "ptr %p", body)


def set_error(module: ModuleEmitter) -> str:
    """Raise an error; the value is -1."""

    def body() -> str:
        weak(module, "i32", "weft_set_error", "ptr, ptr")
        weak(module, "void", "TVMFFIErrorSetRaisedFromCStr", "ptr, ptr")
        return """  %here = icmp ne ptr @weft_set_error, null
  br i1 %here, label %full, label %other
full:
  %rc = call i32 @weft_set_error(ptr %kind, ptr %message)
  ret i32 %rc
other:
  %ffi = icmp ne ptr @TVMFFIErrorSetRaisedFromCStr, null
  br i1 %ffi, label %plain, label %out
plain:
  call void @TVMFFIErrorSetRaisedFromCStr(ptr %kind, ptr %message)
  br label %out
out:
  ret i32 -1"""

    return module.service("set_error", "i32", "ptr %kind, ptr %message", body, "#2")


def arg_error(module: ModuleEmitter) -> str:
    """Raise the error of a failed check of an argument; the value is -1."""

    def body() -> str:
        weak(module, "i32", "weft_arg_error", "ptr, i32, i32, i64, i64, ptr, i32")
        type_error, value_error = module.string("TypeError"), module.string("ValueError")
        return f"""  %here = icmp ne ptr @weft_arg_error, null
  br i1 %here, label %full, label %plain
full:
  %rc = call i32 @weft_arg_error(ptr %signature, i32 %arg, i32 %code, i64 %dim, i64 %expected, ptr %args, i32 %n)
  ret i32 %rc
plain:
  %is_value = icmp ugt i32 %code, {Failure.NDIM:d}
  %kind = select i1 %is_value, ptr {value_error}, ptr {type_error}
  %set = call i32 {set_error(module)}(ptr %kind, ptr %text)
  ret i32 %set"""

    params = "ptr %text, ptr %signature, i32 %arg, i32 %code, i64 %dim, i64 %expected, ptr %args, i32 %n"
    return module.service("arg_error", "i32", params, body, "#2")


SPEC = "{ i32, i32, i32, i16, i16, [0 x i64] }"
"""What a tensor has to be: its rank, its dtype in one word, its kind of device, which bits of its address are 0,
whether it is compact, and its extents, -1 where they may be any."""


def tensor(module: ModuleEmitter) -> str:
    """Check a tensor argument; return its DLTensor, or null where an error has been raised.

    Strides of dimensions of one element do not matter, nor any of an empty tensor.
    """
    params = "ptr %args, i32 %n, i32 %arg, ptr %spec, ptr %text, ptr %signature"
    return module.service("tensor", "ptr", params, lambda: _tensor(module), "noinline #0")


def _tensor(module: ModuleEmitter) -> str:
    given = "ptr %text, ptr %signature, i32 %arg, i32 %code, i64 %dim, i64 %expected, ptr %args, i32 %n"
    return f"""entry:
  %slot = getelementptr inbounds {{ i32, i32, i64 }}, ptr %args, i32 %arg
  %kind = load i32, ptr %slot
  %is_object = icmp eq i32 %kind, 70
  %is_pointer = icmp eq i32 %kind, 7
  %is_tensor = or i1 %is_object, %is_pointer
  br i1 %is_tensor, label %tensor, label %refused, !prof !0
tensor:
  %place = getelementptr inbounds {{ i32, i32, i64 }}, ptr %slot, i32 0, i32 2
  %value = load ptr, ptr %place
  %inside = getelementptr inbounds i8, ptr %value, i64 24
  %found = select i1 %is_object, ptr %inside, ptr %value
{_compared("ndim", 0, "rank")}
rank:
{_compared("dtype", 1, "typed")}
typed:
{_compared("device_type", 2, "here")}
here:
{_EXTENTS}
{_START}
refused:
  %code = phi i32 [ {Failure.NOT_TENSOR:d}, %entry ], [ {Failure.NDIM:d}, %tensor ], [ {Failure.DTYPE:d}, %rank ],
    [ {Failure.DEVICE:d}, %typed ], [ {Failure.SHAPE:d}, %axis ], [ {Failure.STRIDES:d}, %sparse ],
    [ {Failure.ALIGN:d}, %start ], [ {Failure.ALIGN:d}, %look ]
  %dim = phi i64 [ -1, %entry ], [ -1, %tensor ], [ -1, %rank ], [ -1, %typed ], [ %d, %axis ], [ -1, %sparse ],
    [ -1, %start ], [ -1, %look ]
  %expected = phi i64 [ 0, %entry ], [ %wide.ndim, %tensor ], [ %wide.dtype, %rank ], [ %wide.device_type, %typed ],
    [ %want, %axis ], [ 0, %sparse ], [ %alignment, %start ], [ %alignment, %look ]
  %raised = call i32 {arg_error(module)}({given})
  ret ptr null"""


def _compared(member: str, field: int, then: str) -> str:
    """The end of a block, which goes on where a member of a tensor is what the specification says."""
    return f"""  %at_want.{member} = getelementptr inbounds {SPEC}, ptr %spec, i64 0, i32 {field}
  %want.{member} = load i32, ptr %at_want.{member}
  %wide.{member} = zext i32 %want.{member} to i64
  %at.{member} = {tensor_member("%found", member)}
  %is.{member} = load i32, ptr %at.{member}
  %ok.{member} = icmp eq i32 %is.{member}, %want.{member}
  br i1 %ok.{member}, label %{then}, label %refused, !prof !0"""


_EXTENTS = f"""  %at_shape = {tensor_member("%found", "shape")}
  %shape = load ptr, ptr %at_shape
  %rank64 = zext i32 %want.ndim to i64
  %flat = icmp eq i64 %rank64, 0
  br i1 %flat, label %start, label %axis
axis:
  %d = phi i64 [ 0, %here ], [ %d.next, %fits ]
  %at_want = getelementptr inbounds {SPEC}, ptr %spec, i64 0, i32 5, i64 %d
  %want = load i64, ptr %at_want
  %at_extent = getelementptr inbounds i64, ptr %shape, i64 %d
  %extent = load i64, ptr %at_extent
  %same = icmp eq i64 %want, %extent
  %open = icmp slt i64 %want, 0
  %good = or i1 %same, %open
  br i1 %good, label %fits, label %refused, !prof !0
fits:
  %d.next = add nuw nsw i64 %d, 1
  %more = icmp ult i64 %d.next, %rank64
  br i1 %more, label %axis, label %strides
strides:
  %at_compact = getelementptr inbounds {SPEC}, ptr %spec, i64 0, i32 4
  %compact = load i16, ptr %at_compact
  %loose = icmp eq i16 %compact, 0
  %at_strides = {tensor_member("%found", "strides")}
  %stride_list = load ptr, ptr %at_strides
  %absent = icmp eq ptr %stride_list, null
  %unasked = or i1 %loose, %absent
  br i1 %unasked, label %start, label %stride
stride:
  %e = phi i64 [ %rank64, %strides ], [ %e.next, %stride ]
  %step = phi i64 [ 1, %strides ], [ %step.next, %stride ]
  %gaps = phi i1 [ false, %strides ], [ %gaps.next, %stride ]
  %empty = phi i1 [ false, %strides ], [ %empty.next, %stride ]
  %e.next = sub nuw nsw i64 %e, 1
  %at_stride = getelementptr inbounds i64, ptr %stride_list, i64 %e.next
  %stride.found = load i64, ptr %at_stride
  %at_length = getelementptr inbounds i64, ptr %shape, i64 %e.next
  %length = load i64, ptr %at_length
  %long = icmp sgt i64 %length, 1
  %off = icmp ne i64 %stride.found, %step
  %gap = and i1 %long, %off
  %gaps.next = or i1 %gaps, %gap
  %nothing = icmp eq i64 %length, 0
  %empty.next = or i1 %empty, %nothing
  %step.next = mul i64 %step, %length
  %outer = icmp ne i64 %e.next, 0
  br i1 %outer, label %stride, label %sparse
sparse:
  %refuse = icmp ugt i1 %gaps.next, %empty.next
  br i1 %refuse, label %refused, label %start, !prof !2"""
"""Extents and strides, once the rank is right. An extent of zero is looked for, as a product of many may wrap to it."""

_START = f"""start:
  %at_data = {tensor_member("%found", "data")}
  %data = load ptr, ptr %at_data
  %at_offset = {tensor_member("%found", "byte_offset")}
  %offset = load i64, ptr %at_offset
  %first = getelementptr inbounds i8, ptr %data, i64 %offset
  %address = ptrtoint ptr %first to i64
  %at_mask = getelementptr inbounds {SPEC}, ptr %spec, i64 0, i32 3
  %mask16 = load i16, ptr %at_mask
  %mask = zext i16 %mask16 to i64
  %low = and i64 %address, %mask
  %aligned = icmp eq i64 %low, 0
  %alignment = add nuw nsw i64 %mask, 1
  br i1 %aligned, label %placed, label %refused, !prof !0
placed:
  %nowhere = icmp eq ptr %data, null
  br i1 %nowhere, label %look, label %out, !prof !2
look:
  %l = phi i64 [ 0, %placed ], [ %l.next, %length.of ]
  %left = icmp ult i64 %l, %rank64
  br i1 %left, label %length.of, label %refused
length.of:
  %l.next = add nuw nsw i64 %l, 1
  %at_dim = getelementptr inbounds i64, ptr %shape, i64 %l
  %dim.found = load i64, ptr %at_dim
  %vacant = icmp eq i64 %dim.found, 0
  br i1 %vacant, label %out, label %look
out:
  ret ptr %found"""
"""The address, which only a tensor without elements may lack."""


def define_all(module: ModuleEmitter) -> None:
    """Define all of them."""
    for service in (parallel_forwards, workspace_alloc, workspace_free, tensor):
        service(module)
