"""Relay as Python programs: they compute what the interpreter does."""

import ast

import numpy as np
import pytest

from weft import error, relay
from weft.relay.interpreter import Interpreter
from weft.relay.testing import run_as_python, to_python

PROGRAM = """
#[version = "0.0.5"]
type Tree[A] { Leaf(A), Node(Tree[A], Tree[A]) }
def @sum(%t: Tree[int32]) -> int32 {
  match (%t) { Leaf(%x) => %x, Node(%a, %b) => add(@sum(%a), @sum(%b)) }
}
def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }
def @cells(%n: int32) -> (int32, int32) {
  let %r = ref(%n);
  let %old = ref_read(%r);
  let %u = ref_write(%r, add(%old, 1));
  (%old, ref_read(%r))
}
def @count(%n: int32, %acc: int32) -> int32 {
  if (equal(%n, 0)) { %acc } else { let %m = subtract(%n, 1); @count(%m, add(%acc, %n)) }
}
def @pair(%p: (int32, (int32, int32))) -> int32 { match (%p) { (%a, (_, %c)) => multiply(%a, %c) } }
def @missing(%t: Tree[int32]) -> int32 { match? (%t) { Leaf(%x) => %x } }
"""
CALLS = {
    "data types": "@sum(Node(Node(Leaf(1), Leaf(2)), Leaf(3)))",
    "functions": "let %k = 3; @twice(fn (%x: int32) { multiply(%x, %k) }, 5)",
    "cells": "@cells(4)",
    "recursion": "@count(10, 0)",
    "tuples": "@pair((3, (4, 5)))",
    "constructors as values": "let %f = Leaf; @sum(%f(7))",
    "operators": "concatenate((reshape(1, newshape=[1]), reshape(2, newshape=[1])), axis=0)",
}


def _call(text: str):
    mod = relay.parse(PROGRAM + "def @main() { " + text + " }")
    return mod["main"].body, mod


@pytest.mark.parametrize("name", CALLS)
def test_a_program_has_the_interpreters_value(name: str) -> None:
    expr, mod = _call(CALLS[name])
    found, wanted = run_as_python(expr, mod), Interpreter(mod).evaluate(expr)
    for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_the_program_is_python_and_shares_what_the_graph_shares() -> None:
    x = relay.add(relay.const(1), relay.const(2))
    program = to_python(relay.multiply(x, x))
    assert isinstance(program, ast.Module)
    assert ast.unparse(program).count("'add'") == 1


def test_a_value_that_no_clause_takes_is_refused() -> None:
    expr, mod = _call("@missing(Node(Leaf(1), Leaf(2)))")
    with pytest.raises(error.EvaluationError, match="no clause"):
        run_as_python(expr, mod)
