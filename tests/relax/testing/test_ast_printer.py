"""Programs as nested records."""

import pytest

from weft import error, relax, tir
from weft.relax.testing import dump_ast
from weft.relax.testing.ast_printer import ASTPrinter
from weft.script import relax as R

N = tir.Var("n", "int64")


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 3), "float32"):
    with R.dataflow():
        a = R.sum(x, axis=[1], keepdims=True)
        b = R.add(x, a)
        R.output(b)
    return b


def test_every_field_is_there():
    text = dump_ast(main, include_ty_annotations=False)
    assert 'Op(name="relax.sum")' in text
    assert '"keepdims": True' in text
    assert 'DataflowVar(name="a")' in text
    assert 'attrs={"global_symbol": "main"}' in text
    assert "is_pure=True" in text
    bare = dump_ast(main, indent_str="", include_ty_annotations=False, include_call_attrs=False)
    assert "keepdims" not in bare
    assert not any(line.startswith(" ") for line in bare.splitlines())


def test_types_follow_expressions():
    var = relax.Var("v", relax.TensorType((N, 2), "int32"))
    assert dump_ast(var, include_ty_annotations=False) == 'Var(name="v")'
    wanted = ["Var(", '    name="v",', "    ty=TensorType(", "        dtype=int32,", "        shape=ShapeExpr("]
    text = dump_ast(var)
    assert text.splitlines()[:5] == wanted
    assert "Expr(value=`n`)" in text
    assert "Expr(value=`T.int64(2)`)" in text


@pytest.mark.parametrize(
    ("ty", "text"),
    [
        (relax.ShapeType(), "ShapeType(ndim=-1)"),
        (relax.TupleType([relax.AnyType()]), "TupleType(fields=[AnyType()])"),
        (relax.PrimType("bool"), "PrimType(dtype=bool)"),
    ],
)
def test_types(ty, text):
    assert ASTPrinter().visit_ty_(ty) == text
    assert ASTPrinter().visit_type_(ty) == text


def test_what_is_no_expression():
    with pytest.raises(error.InvalidArgument, match="no expression of Relax"):
        dump_ast(3)
