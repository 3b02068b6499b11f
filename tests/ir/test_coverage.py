"""Every table that depends on the kind of a node has a rule for every kind, or says which kinds do not come to it."""

import importlib
import pkgutil

import pytest

import weft
from weft import error, ir, tir
from weft.ir.node import kinds
from weft.ir.spec import SPECS


def _load_everything():
    for module in pkgutil.walk_packages(weft.__path__, "weft."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


_load_everything()
TABLES = {t.name: t for t in ir.Dispatch.tables() if not t.name.startswith("test ")}

OPEN = {
    "operator in a script",  # values of scripts, of any Python class
    "call in a script",
    "subscript in a script",
    "place of a call in a script",
    *SPECS,  # a node that a form does not speak of is fine
}


def test_tables_name_their_union():
    """A new table names what it covers; one that is open is listed above, with the reason."""
    assert {name for name, t in TABLES.items() if not t.covers} == OPEN


@pytest.mark.parametrize("name", sorted(TABLES.keys() - OPEN))
def test_table_is_total(name):
    missing = TABLES[name].missing()
    assert not missing, f"{name}: no rule for {', '.join(t.__name__ for t in missing)}; add rules, or leave them out"


@pytest.mark.parametrize("name", sorted(TABLES.keys() - OPEN))
def test_what_is_left_out_has_no_rule(name):
    table = TABLES[name]
    stale = [t.__name__ for t in table.leaves_out if t in table.table or t not in kinds(*table.covers)]
    assert not stale, f"{name} leaves out {', '.join(stale)}, which it has rules for, or which are not in its union"


def test_a_union_is_what_stands_below_its_base():
    expressions = kinds(ir.PrimExpr)
    assert ir.Add in expressions and ir.SizeVar in expressions and tir.BufferLoad in expressions
    assert ir.PrimExpr not in expressions and ir.BinaryOp not in expressions
    assert len(expressions) == len(set(expressions)) and kinds(ir.Add) == [ir.Add]


def test_missing():
    table = ir.Dispatch("test expressions", (ir.CmpOp, ir.Not), leaves_out=(ir.And, ir.Or))
    assert set(table.missing()) == {ir.EQ, ir.NE, ir.LT, ir.LE, ir.GT, ir.GE, ir.Not}
    table.on(ir.CmpOp)(lambda e: "comparison")
    assert table.missing() == [ir.Not]
    x = ir.Var("x", "int32")
    assert table(x < 1) == "comparison"
    with pytest.raises(error.InternalError, match="test expressions: no rule for Not"):
        table(ir.Not(x < 1))
