"""Text of Python made of parts means what the parts say."""

import ast

from tvm_ffi.access_path import AccessPath

from tests.refusals import refuses
from weft.script.printer import doc as D
from weft.script.printer.doc_printer import to_python_script

K = D.OperationKind
BINARY = [k for k in K if K._BinaryStart < k < K._BinaryEnd]
X, Y, Z = (D.IdDoc(n) for n in "xyz")


def tree(text):
    return ast.dump(ast.parse(text, mode="eval"))


def explicit(doc):
    """The same expression with parentheses around every operation."""
    if not isinstance(doc, D.OperationDoc):
        return doc.name
    a, *rest = (explicit(o) for o in doc.operands)
    if doc.kind == K.IfThenElse:
        return f"({rest[0]} if {a} else {rest[1]})"
    text = to_python_script(D.OperationDoc(doc.kind, [D.IdDoc("L"), D.IdDoc("R")][: len(doc.operands)]))
    return "(" + text.replace("L", a).replace("R", rest[0] if rest else "R") + ")"


def operations():
    """Every pair of operators, one inside the other, at every place."""
    inner = [D.OperationDoc(k, [X, Y]) for k in BINARY]
    inner += [D.OperationDoc(k, [X]) for k in (K.USub, K.Invert, K.Not)] + [D.OperationDoc(K.IfThenElse, [X, Y, Z])]
    for i in inner:
        yield from (D.OperationDoc(k, operands) for k in BINARY for operands in ([i, Z], [Z, i]))
        yield from (D.OperationDoc(k, [i]) for k in (K.USub, K.Invert, K.Not))
        yield from (D.OperationDoc(K.IfThenElse, [i if n == at else Z for n in range(3)]) for at in range(3))


def test_parentheses_keep_the_meaning():
    comparing = {K.Lt, K.LtE, K.Eq, K.NotEq, K.Gt, K.GtE}
    for op in operations():
        text = to_python_script(op)
        inner = {o.kind for o in op.operands if isinstance(o, D.OperationDoc)}
        chained = op.kind in comparing and inner & comparing  # Python's chains mean something else
        same = op.kind in (K.And, K.Or) and op.kind in inner  # one list of operands, the same value
        if not chained and not same:
            assert tree(text) == tree(explicit(op)), text


def test_statements_are_python():
    body = [
        D.AssignDoc(D.TupleDoc([X, Y]), D.ListDoc([D.LiteralDoc(1), D.LiteralDoc('a"b\n')])),
        D.IfDoc(D.LiteralDoc(True), [], [D.ReturnDoc(X)]),
        D.WhileDoc(X, [D.ExprStmtDoc(X.attr("f").call(Y, key=Z))]),
        D.ForDoc(D.TupleDoc([X, Y]), Z, [D.AssertDoc(X, D.LiteralDoc("no"))]),
        D.ScopeDoc(X, Y.call(), [D.ExprStmtDoc(X[D.SliceDoc(None, D.LiteralDoc(2)), D.SliceDoc()])]),
    ]
    body[1].comment = "one\ntwo"
    func = D.FunctionDoc(D.IdDoc("f"), [D.AssignDoc(X, D.LiteralDoc(0.5), D.IdDoc("int"))], [Y], Z, body)
    func.comment = "What it does."
    text = to_python_script(D.ClassDoc(D.IdDoc("C"), [], [func]))
    parsed = ast.parse(text).body[0].body[0]
    assert ast.get_docstring(parsed) == "What it does."
    assert [type(s).__name__ for s in parsed.body[1:]] == ["Assign", "If", "While", "For", "With"]
    assert "        # one\n        # two\n        if True:" in text


def test_underlines_the_nearest_part():
    root = AccessPath.root()
    outer, inner = root.attr("a"), root.attr("a").attr("b")
    X.source_paths, Y.source_paths = [outer], [inner]
    lines = D.StmtBlockDoc([D.ExprStmtDoc(n) for n in (X, Z, Y, Z, Z, Z, Z)])
    text = to_python_script(lines, path_to_underline=[inner.attr("c")], num_context_lines=1, print_line_numbers=True)
    head, _, shown = text.partition("\n\n")
    assert head.splitlines()[0] == "Access path: <root>.a.b.c" and "nearest visible parent" in head
    assert shown.splitlines() == ["1 x", "2 z", "3 y", "  ^", "4 z", "(... 3 lines skipped ...)"]
    assert "No visible object" in to_python_script(D.ExprStmtDoc(Z), path_to_underline=[outer])


def test_refusals():
    line = D.ReturnDoc(X)
    line.comment = "1\n2"
    refuses(ValueError, "cannot have newline", to_python_script, line)
    refuses(ValueError, "right side or an annotation", D.AssignDoc, X, None)
    refuses(TypeError, "a literal is", D.LiteralDoc, X)
    refuses(RuntimeError, "not a sequence", list, X)
