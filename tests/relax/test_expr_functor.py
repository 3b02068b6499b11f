"""Visitors and mutators as a user writes them."""

import numpy as np

import weft
from weft import relax, script
from weft.relax.expr_functor import PyExprMutator, PyExprVisitor, mutator, visitor

SOURCE = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            a = R.add(x, R.const(2.0, "float32"))
            b = R.multiply(a, x)
            R.output(b)
        if c:
            d = R.add(b, x)
            r = R.exp(d)
        else:
            r = b
        return r
"""


@visitor
class Names(PyExprVisitor):
    def __init__(self):
        self.ops, self.defined, self.constants = [], [], 0

    def visit_call_(self, call):
        self.ops.append(call.op.name)
        super().visit_call_(call)

    def visit_constant_(self, constant):
        self.constants += 1

    def visit_var_def(self, var):
        self.defined.append(var.name_hint)


@mutator
class Subtract(PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        return relax.op.subtract(*call.args) if call.op.name == "relax.add" else call


@mutator
class Emit(PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op.name != "relax.add":
            return call
        return relax.op.add(self.builder_.emit(relax.op.add(call.args[0], call.args[0])), call.args[1])


def run(func, x, c):
    mod = weft.IRModule({"main": func})
    relax.analysis.well_formed(mod)
    vm = relax.VirtualMachine(weft.compile(mod, target="llvm"), weft.cpu())
    return vm["main"](weft.runtime.tensor(x), weft.runtime.tensor(np.array(c))).numpy()


def test_visitor():
    names = Names()
    names.visit_expr(script.from_source(SOURCE)["main"])
    assert names.ops == ["relax.add", "relax.multiply", "relax.add", "relax.exp"]
    assert names.constants == 1
    assert {"x", "c", "a", "b", "d", "r"} <= set(names.defined)


def test_a_mutator_that_changes_nothing_returns_the_function():
    func = script.from_source(SOURCE)["main"]
    assert PyExprMutator().visit_expr(func) is func


def test_mutators_rewrite_blocks_and_branches():
    func = script.from_source(SOURCE)["main"]
    x = np.random.default_rng(0).standard_normal(4, np.float32)
    for c in (False, True):
        b = (x - 2) * x
        np.testing.assert_allclose(run(Subtract().visit_expr(func), x, c), np.exp(b - x) if c else b, rtol=1e-4)
        b = (2 * x + 2) * x
        np.testing.assert_allclose(run(Emit().visit_expr(func), x, c), np.exp(2 * b + x) if c else b, rtol=1e-4)


@relax.expr_functor.mutator
class Blocks(Subtract):
    """Makes blocks itself, and looks at those that are inherited, as TVM's programs do."""

    seen = 0

    def visit_binding_block_(self, block):
        self.builder_._begin_binding_block()
        for b in block.bindings:
            self.visit_binding(b)
        return self.builder_._end_block()

    def visit_dataflow_block_(self, block):
        new = super().visit_dataflow_block_(block)
        self.seen += len(new.bindings)
        return new


def test_mutators_return_blocks():
    func = script.from_source(SOURCE)["main"]
    x, mutator = np.random.default_rng(0).standard_normal(4, np.float32), Blocks()
    new = mutator.visit_expr(func)
    assert mutator.seen
    weft.ir.assert_structural_equal(new, Subtract().visit_expr(func))
    for c in (False, True):
        b = (x - 2) * x
        np.testing.assert_allclose(run(new, x, c), np.exp(b - x) if c else b, rtol=1e-4)


def test_sequences_are_normalized_outside_of_functions():
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    y = relax.Var("y", relax.TensorType((2,), "float32"))
    seq = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, relax.op.add(x, relax.op.exp(x)))])], y)
    new = relax.BlockBuilder().normalize(seq)
    assert [str(b.value.op.name) for b in new.blocks[0].bindings] == ["relax.exp", "relax.add"]
    assert str(new.ty) == str(x.ty)
    block = Blocks().visit_binding_block(new.blocks[0])
    assert [b.value.op.name for b in block.bindings] == ["relax.exp", "relax.subtract"]
