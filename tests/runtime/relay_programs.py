"""Hand-made Relay programs for the tests: short names for instructions, kernels, programs that several tests run."""

from functools import cache

import weft
from weft.runtime.relay_vm import ADT, Executable, Instruction, VirtualMachine, VMFunction
from weft.script import tir as T

I = Instruction  # noqa: E741 - what a program is written in
NIL, CONS = 1, 2


def function(name, params, registers, *instructions, devices=()):
    return VMFunction(name, params, registers, instructions, devices)


def executable(*functions, constants=(), primitives=(), lib=None, constant_devices=None):
    """An executable that went through its file."""
    made = Executable.from_parts(functions, constants, primitives, lib, constant_devices)
    loaded = Executable.load_exec(*made.save())
    assert loaded.functions == made.functions
    return loaded


def machine(*functions, device="cpu", **parts):
    return VirtualMachine(executable(*functions, **parts), device)


@cache
def kernels():
    """add(x, y, out) and double(x, out), vectors of any length; add_scalar(x, y, out), int64 of rank 0."""

    @T.prim_func
    def add(x: T.handle, y: T.handle, out: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        Out = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            with T.block("add"):
                v = T.axis.spatial(n, i)
                Out[v] = X[v] + Y[v]

    @T.prim_func
    def double(x: T.handle, out: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Out = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            with T.block("double"):
                v = T.axis.spatial(n, i)
                Out[v] = X[v] * T.float32(2)

    @T.prim_func
    def add_scalar(X: T.Buffer((), "int64"), Y: T.Buffer((), "int64"), Out: T.Buffer((), "int64")):
        with T.block("add"):
            Out[()] = X[()] + Y[()]

    return weft.build(weft.IRModule({"add": add, "double": double, "add_scalar": add_scalar}), "llvm")


def counting_loop(name="main"):
    """main(n): counts from 0 to n; three instructions a step."""
    return function(
        name,
        ["n"],
        3,
        I.load_consti(0, 1),
        I.load_consti(1, 2),
        I.if_(1, 0, 3, 1),
        I.scalar("add", 1, 2, 1),
        I.goto(-2),
        I.ret(1),
    )


def countdown(name="main", index=0):
    """main(n, steps): calls itself n times and adds one to `steps` each time."""
    return function(
        name,
        ["n", "steps"],
        5,
        I.load_consti(0, 2),
        I.if_(0, 2, 6, 1),
        I.load_consti(1, 3),
        I.scalar("subtract", 0, 3, 0),
        I.scalar("add", 1, 3, 1),
        I.invoke(index, [0, 1], 4),
        I.goto(2),
        I.move(1, 4),
        I.ret(4),
    )


def make_list(name="make"):
    """make(n): the list n, n-1, ..., 1."""
    return function(
        name,
        ["n"],
        5,
        I.load_consti(0, 1),
        I.alloc_adt(NIL, [], 2),
        I.load_consti(1, 3),
        I.move(1, 4),
        I.if_(4, 0, 4, 1),
        I.scalar("add", 4, 3, 4),
        I.alloc_adt(CONS, [4, 2], 2),
        I.goto(-3),
        I.ret(2),
    )


def fold_sum(name="fold", index=0):
    """fold(list, sum): the sum of a list's numbers, by a tail call a node."""
    return function(
        name,
        ["list", "sum"],
        6,
        I.get_tag(0, 2),
        I.load_consti(NIL, 3),
        I.if_(2, 3, 6, 1),
        I.get_field(0, 0, 4),
        I.get_field(0, 1, 5),
        I.scalar("add", 1, 4, 1),
        I.invoke(index, [5, 1], 5),
        I.ret(5),
        I.ret(1),
    )


def list_of(values):
    """A list as a value of the data type that the programs use."""
    out = ADT(NIL, [])
    for value in reversed(list(values)):
        out = ADT(CONS, [value, out])
    return out


def value(tensor):
    """A scalar's number; its dtype must be what NumPy calls it."""
    assert tensor.shape == ()
    return tensor.numpy()[()]


def doubles(*more):
    """double(x) for a vector of any length, with more instructions at its end."""
    body = [I.shape_of(0, 1), I.load_const(0, 2), I.reshape_tensor(1, 2, 2), I.load_consti(4, 3)]
    body += [I.scalar("multiply", 2, 3, 3), I.alloc_storage(3, 64, "float32", 0, 4)]
    body += [I.alloc_tensor_reg(4, 0, 1, "float32", 5), I.invoke_packed(0, 2, 1, [0, 5])]
    return function("double", ["x"], 6, *body, *more, I.ret(5))
