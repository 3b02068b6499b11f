"""MakePackedAPI: a function that takes packed arguments, checks them, and binds what the body needs."""

from collections.abc import Callable

from weft import error, ir
from weft.arith.solve import determined
from weft.ir import int64
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.intrin import call_intrin, message
from weft.tir.stmt import AssertStmt, LetStmt, Stmt

PREFIX = "__tvm_ffi_"
"""What the names of functions in the convention of tvm-ffi begin with."""

# Fields that ``tir.tvm_struct_get`` reads, as Apache TVM numbers them: of a DLTensor, of a packed value, of an array.
_DATA, _SHAPE, _STRIDES, _NDIM, _CODE, _BITS, _LANES, _OFFSET, _DEVICE = 1, 2, 3, 4, 5, 6, 7, 8, 10
_TYPE_INDEX, _VALUE, _ELEMENT = 13, 15, 17
# Type indices of packed values, and the size of an object's header, behind which a tensor's DLTensor lies.
_INT, _BOOL, _FLOAT, _POINTERS, _OBJECTS, _TENSOR, _HEADER = 1, 2, 3, (0, 4, 7), 64, 70, 24
_DTYPE_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 6}


@ir.function_pass(kind=PrimFunc, name="MakePackedAPI")
def make_packed_api(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Give a function the parameters (self_handle, args, num_args, result), and let it check its arguments itself.

    Code generators that have no entry of their own take such functions as they are: ``examples/c_source`` does. Those
    of targets llvm and c write their entries from the buffers, in registers, and take both forms.

    Requires: A ``global_symbol``, and no blocks.
    Ensures: The same form, without parameter buffers; ``calling_conv`` is 1, and the name begins with ``__tvm_ffi_``.
        Functions that have a ``calling_conv`` stay as they are.
    Before::

        @T.prim_func
        def f(n: T.int64):
            T.func_attr({"global_symbol": "f"})
            T.evaluate(T.call_packed("print_number", n))

    After::

        @T.prim_func
        def f(self_handle: T.handle, args: T.handle, num_args: T.int32, result: T.handle):
            T.func_attr({"global_symbol": "__tvm_ffi_f", "calling_conv": 1})
            T.Assert(num_args == 1, T.call_intrin("handle", "tir.message",
                     "f(n: int64): expected 1 arguments, found %lld", T.Cast("int64", num_args)), kind="TypeError")
            kind: T.let[T.int32] = T.call_intrin("int32", "tir.tvm_struct_get", args, 0, 13)
            T.Assert(kind == 1 or kind == 2, T.call_intrin("handle", "tir.message",
                     "f: argument 0 (n: int64): expected an int, found a value of type index %lld",
                     T.Cast("int64", kind)), kind="TypeError")
            n: T.let[T.int64] = T.call_intrin("int64", "tir.tvm_struct_get", args, 0, 15)
            T.evaluate(T.call_packed("print_number", n))
    Cost: Linear in the arguments and their dimensions.
    Source: TVM's ``MakePackedAPI`` and ``ArgBinder``.
    """
    name = func.attrs.get("global_symbol")
    if func.attrs.get("calling_conv") is not None or not name:
        return func
    return _Binder(func, str(name)).packed()


class _Binder:
    """Statements around the body, outermost first."""

    def __init__(self, func: PrimFunc, name: str) -> None:
        self.func, self.name = func, name
        self.buffers = dict(func.buffer_map)
        self.around: list[Callable[[Stmt], Stmt]] = []
        self.bound: set[ir.Var] = set()
        self.late: list[tuple[str, str, ir.PrimExpr, ir.Var]] = []  # where, what, expected, found
        self.args = ir.Var("args", "handle")

    def packed(self) -> PrimFunc:
        """Write the function."""
        func, num_args = self.func, ir.Var("num_args", "int32")
        signature = f"{self.name}({', '.join(self.shown(p) for p in func.params)})"
        count = len(func.params)
        self.check(
            num_args == ir.const(count, "int32"),
            "TypeError",
            f"{signature}: expected {count} arguments, found %lld",
            num_args,
        )
        in_order = sorted(enumerate(func.params), key=lambda x: x[1] in self.buffers)
        for i, p in in_order:  # numbers first: shapes may use them
            where = f"{self.name}: argument {i} ({self.shown(p)})"
            buffer = self.buffers.get(p)
            self.number(i, p, where) if buffer is None else self.tensor(i, p, buffer, where)
        self.solve()
        body: Stmt = func.body
        for wrap in reversed(self.around):
            body = wrap(body)
        params = (ir.Var("self_handle", "handle"), self.args, num_args, ir.Var("result", "handle"))
        attrs = func.attrs.with_(calling_conv=1, global_symbol=PREFIX + self.name)
        return func.replace(params=params, buffer_map=(), body=body, attrs=attrs)

    def shown(self, p: ir.Var) -> str:
        """A parameter as messages show it."""
        b = self.buffers.get(p)
        if b is None:
            return f"{p.name}: {p.dtype}"
        dims = [
            d.name if isinstance(d, ir.Var) else str(k) if (k := ir.as_int(d)) is not None else "..." for d in b.shape
        ]
        return f"{b.name}: Tensor[[{', '.join(dims)}], {b.dtype}]"

    def let(self, var: ir.Var, value: ir.PrimExpr) -> ir.Var:
        """Bind a variable around what follows."""
        self.around.append(lambda body: LetStmt(var, value, body))
        self.bound.add(var)
        return var

    def check(self, condition: ir.PrimExpr, kind: str, text: str, *values: ir.PrimExpr) -> None:
        """Raise unless a condition holds; each ``%lld`` of the text stands for a value."""
        self.around.append(lambda body: AssertStmt(condition, message(text, *values), body, kind))

    def field(self, of: ir.PrimExpr, index: int, field: int, dtype: str) -> ir.PrimExpr:
        """Read a field."""
        return call_intrin(dtype, "tir.tvm_struct_get", of, index, field)

    def number(self, i: int, p: ir.Var, where: str) -> None:
        """Check and bind an argument that is no tensor."""
        dt, kind = (
            ir.DataType(p.dtype),
            self.let(ir.Var(f"{p.name}_type_index", "int32"), self.field(self.args, i, _TYPE_INDEX, "int32")),
        )
        is_int = ir.logical_or(kind == ir.const(_INT, "int32"), kind == ir.const(_BOOL, "int32"))
        found = "found a value of type index %lld"
        if dt.code == "handle":
            is_pointer = kind >= ir.const(_OBJECTS, "int32")
            for index in _POINTERS:
                is_pointer = ir.logical_or(is_pointer, kind == ir.const(index, "int32"))
            self.check(is_pointer, "TypeError", f"{where}: expected a pointer, {found}", kind)
            self.let(p, self.address(i, kind == ir.const(_TENSOR, "int32")))
        elif dt.is_float:
            is_float = kind == ir.const(_FLOAT, "int32")
            self.check(ir.logical_or(is_float, is_int), "TypeError", f"{where}: expected a float, {found}", kind)
            values = (ir.cast(p.dtype, self.field(self.args, i, _VALUE, d)) for d in ("float64", "int64"))
            self.let(p, ir.Select(is_float, *values))
        else:
            self.check(is_int, "TypeError", f"{where}: expected an int, {found}", kind)
            self.let(p, ir.cast(p.dtype, self.field(self.args, i, _VALUE, "int64")))
            if dt.is_integer and dt.bits < 64:
                whole = self.field(self.args, i, _VALUE, "int64")
                self.check(
                    ir.cast("int64", p) == whole,
                    "ValueError",
                    f"{where}: expected an int that {dt} can hold, found %lld",
                    whole,
                )

    def address(self, i: int, is_tensor: ir.PrimExpr) -> ir.PrimExpr:
        """Return a pointer among the arguments; of a tensor, that of its DLPack structure."""
        behind = ir.Select(is_tensor, int64(_HEADER), int64(0))
        return call_intrin("handle", "tir.handle_add_byte_offset", self.field(self.args, i, _VALUE, "handle"), behind)

    def tensor(self, i: int, p: ir.Var, buffer: Buffer, where: str) -> None:
        """Check a tensor, bind its sizes and the address of its data."""
        name, dt, rank = buffer.name, ir.DataType(buffer.dtype), len(buffer.shape)
        kind = self.let(ir.Var(f"{name}_type_index", "int32"), self.field(self.args, i, _TYPE_INDEX, "int32"))
        is_object = kind == ir.const(_TENSOR, "int32")
        self.check(
            ir.logical_or(is_object, kind == ir.const(7, "int32")),
            "TypeError",
            f"{where}: expected a tensor, found a value of type index %lld",
            kind,
        )
        x = self.let(p, self.address(i, is_object))
        ndim = self.field(x, 0, _NDIM, "int32")
        self.check(
            ndim == ir.const(rank, "int32"), "ValueError", f"{where}: expected {rank} dimensions, found %lld", ndim
        )
        parts = [(_CODE, "uint8", _DTYPE_CODES[dt.code]), (_BITS, "uint8", dt.bits), (_LANES, "uint16", dt.lanes)]
        for field, of, wanted in parts:
            value = self.field(x, 0, field, of)
            what = {_CODE: "type code", _BITS: "bits", _LANES: "lanes"}[field]
            self.check(
                value == ir.const(wanted, of), "TypeError", f"{where}: expected dtype {dt}, found {what} %lld", value
            )
        device = self.field(x, 0, _DEVICE, "int32")
        wanted = self.func.attrs.get("tir.device_type", 1)
        self.check(
            device == ir.const(wanted, "int32"),
            "ValueError",
            f"{where}: expected device type {wanted}, found %lld",
            device,
        )
        shape = self.let(ir.Var(f"{name}_shape", "handle"), self.field(x, 0, _SHAPE, "handle"))
        strides = self.let(ir.Var(f"{name}_strides", "handle"), self.field(x, 0, _STRIDES, "handle"))
        for axis, extent in enumerate(buffer.shape):
            self.match(extent, self.field(shape, axis, _ELEMENT, "int64"), where, f"shape[{axis}]")
        self.layout(buffer, shape, strides, where)
        offset = self.field(x, 0, _OFFSET, "uint64")
        data = self.field(x, 0, _DATA, "handle")
        if buffer.elem_offset is None:
            data = call_intrin("handle", "tir.handle_add_byte_offset", data, ir.cast("int64", offset))
        else:
            self.match(
                buffer.elem_offset, ir.floordiv(ir.cast("int64", offset), int64(dt.itemsize)), where, "element offset"
            )
        self.let(buffer.data, data)

    def layout(self, buffer: Buffer, shape: ir.Var, strides: ir.Var, where: str) -> None:
        """Check strides, which may be left out where they are compact; without a second element they do not matter."""
        absent = call_intrin("bool", "tir.isnullptr", strides)
        extents = [self.field(shape, axis, _ELEMENT, "int64") for axis in range(len(buffer.shape))]
        no_elements: ir.PrimExpr = ir.const(False, "bool")
        for extent in extents:
            no_elements = ir.logical_or(no_elements, extent == int64(0))
        compact: ir.PrimExpr = int64(1)
        for axis, extent in reversed(list(enumerate(extents))):
            unless = ir.logical_or(no_elements, extent == int64(1))
            found = call_intrin(
                "int64", "tir.if_then_else", absent, compact, self.field(strides, axis, _ELEMENT, "int64")
            )
            if buffer.strides:
                self.match(buffer.strides[axis], found, where, f"stride[{axis}]", unless)
            else:
                ok = ir.logical_or(unless, found == compact)
                self.check(
                    ok, "ValueError", f"{where}: expected a contiguous tensor, found stride[{axis}] == %lld", found
                )
            compact = compact * extent

    def match(
        self, expr: ir.PrimExpr, found: ir.PrimExpr, where: str, what: str, unless: ir.PrimExpr | None = None
    ) -> None:
        """Require that a value is `expr`; a variable without a value takes it."""
        if isinstance(expr, ir.Var) and expr not in self.bound:
            self.let(expr, ir.cast(expr.dtype, found))
            return
        free = [v for v in ir.find(expr, ir.Var) if v not in self.bound]
        if free:
            self.late.append((where, what, expr, self.let(ir.Var("found", "int64"), found)))
            return
        same = ir.cast("int64", expr) == found
        self.check(
            same if unless is None else ir.logical_or(unless, same),
            "ValueError",
            f"{where}: expected {what} == %lld, found %lld",
            ir.cast("int64", expr),
            found,
        )

    def solve(self) -> None:
        """Find variables that occur only inside expressions: ``2 * n + 1`` and an extent give ``n``."""
        for v, value in determined([(expr, found) for _, _, expr, found in self.late], self.bound):
            self.let(v, ir.cast(v.dtype, value))
        for where, what, expr, found in self.late:
            unknown = [v.name for v in ir.find(expr, ir.Var) if v not in self.bound]
            if unknown:
                raise error.LoweringError(
                    f"'{self.name}': no argument determines the dimension '{unknown[0]}'", help="make it a parameter"
                )
            self.match(expr, found, where, what)
