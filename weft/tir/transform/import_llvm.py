"""ImportLLVM: code that comes as LLVM IR moves from the loops that ask for it to their function."""

from pathlib import Path

from weft.error import InvalidArgument
from weft.ir import Attrs, IRModule, StringImm, function_pass
from weft.tir.analysis.structure import statements
from weft.tir.function import PrimFunc
from weft.tir.stmt import AttrStmt, For

_PRAGMA = "pragma_import_llvm"
_TEXTS = "tir.import_llvm"


@function_pass(kind=PrimFunc, name="ImportLLVM")
def import_llvm(func: PrimFunc, mod: IRModule) -> PrimFunc:
    r"""Collect the LLVM IR that loops and attributes name ``pragma_import_llvm``, as text or as the path of a file.

    The code generator links it, so that ``T.call_extern`` reaches the functions it defines.

    Requires: Any form.
    Ensures: The same body. The attribute ``tir.import_llvm`` has the texts, each once; a file has been read.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            for i in T.serial(4, annotations={"pragma_import_llvm": "declare float @g()\n"}):
                A[i] = T.call_extern("float32", "g")

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            T.func_attr({"tir.import_llvm": ["declare float @g()\n"]})
            for i in T.serial(4, annotations={"pragma_import_llvm": "declare float @g()\n"}):
                A[i] = T.call_extern("float32", "g")
    Cost: Linear in statements.
    Source: TVM's ``pragma_import_llvm`` (``CodeGenCPU``).
    """
    asked = [note for s in statements(func.body) if (note := _note(s)) is not None]
    if not asked:
        return func
    texts = (*func.attrs.get(_TEXTS, ()), *map(_text, asked))
    return func.replace(attrs=Attrs.of({**func.attrs, _TEXTS: tuple(dict.fromkeys(texts))}))


def _note(stmt: object) -> object | None:
    if isinstance(stmt, AttrStmt):
        return stmt.value if stmt.attr_key == _PRAGMA else None
    return stmt.annotations.get(_PRAGMA) if isinstance(stmt, For) and stmt.annotations else None


def _text(note: object) -> str:
    """Return LLVM IR that is given as text, or as the path of a file with it."""
    text = note.value if isinstance(note, StringImm) else note
    if not isinstance(text, str):
        raise InvalidArgument(f"{_PRAGMA} takes LLVM IR", expected="its text, or the path of a file", found=repr(note))
    if "\n" in text:
        return text
    try:
        return Path(text).read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidArgument(
            f"{_PRAGMA} names a file that cannot be read",
            found=f"{text!r}: {e}",
            help="give the text of LLVM IR, or the path of a file with it",
        ) from e
