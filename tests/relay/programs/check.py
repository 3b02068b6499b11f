"""What must hold of every Relay program: types, text, passes and executors agree with the interpreter."""

import numpy as np

from tests.relay.programs.kinds import has_any, is_tensor, replace, shape_of
from weft import ir, relay
from weft.relay.backend.interpreter import Closure, ConstructorValue, RefValue
from weft.relay.transform import infer_type

PASSES = (
    "ToANormalForm ToBasicBlockNormalForm ToGraphNormalForm LambdaLift Inline DeadCodeElimination "
    "RemoveUnusedFunctions FoldConstant EliminateCommonSubexpr PartialEvaluate EtaExpand FuseOps SimplifyExpr "
    "SimplifyInference CanonicalizeOps DynamicToStatic InlinePrimitives"
).split()
CHAINS = (
    ("ToANormalForm", "DeadCodeElimination", "LambdaLift", "Inline", "ToGraphNormalForm"),
    ("FoldConstant", "EliminateCommonSubexpr", "ToANormalForm", "LambdaLift"),
)
KINDS = ("vm", "graph", "aot")
FIRST_ORDER = ("graph", "aot")  # these do not take all programs


class Disagreement(AssertionError):
    """A program does not mean the same everywhere."""

    def __init__(self, what, mod, args=(), other=None):
        shown = ", ".join(show(a) for a in args)
        parts = [what, f"main({shown})", str(mod), *([] if other is None else ["the other program:", str(other)])]
        super().__init__("\n".join(parts))


def show(value):
    """A value in one line."""
    if isinstance(value, ConstructorValue):
        name = value.constructor.name_hint if value.constructor is not None else f"#{value.tag}"
        return f"{name}({', '.join(map(show, value.fields))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))})"
    if isinstance(value, (Closure, RefValue)):
        return repr(value)
    array = value if isinstance(value, np.ndarray) else value.numpy()
    return f"{array.dtype}{list(array.shape)}{array.tolist()}"


def has_type(mod, value, ty):
    """Whether a value is one of a type."""
    if is_tensor(ty):
        array = value.numpy()
        shape_fits = len(ty.shape) == array.ndim if has_any(ty) else shape_of(ty) == array.shape
        return shape_fits and str(array.dtype) == ty.dtype
    if isinstance(ty, relay.TupleType):
        return len(value) == len(ty.fields) and all(has_type(mod, v, t) for v, t in zip(value, ty.fields, strict=True))
    definition = mod.type_definitions[ty.func]
    known = list(zip(definition.type_vars, ty.args, strict=True))
    ctor = definition.constructors[value.tag - 1]
    types = [replace(t, known) for t in ctor.inputs]
    same_maker = value.constructor is ctor or value.constructor.name_hint == ctor.name_hint
    return same_maker and all(has_type(mod, v, t) for v, t in zip(value.fields, types, strict=True))


def equal(a, b):
    """Whether two values are equal; floats up to rounding."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, ConstructorValue):
        return isinstance(b, ConstructorValue) and a.tag == b.tag and all(map(equal, a.fields, b.fields))
    x, y = a.numpy(), b.numpy()
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    return np.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) if x.dtype.kind == "f" else np.array_equal(x, y)


def check(mod, args, passes=PASSES, chains=CHAINS, kinds=KINDS):
    """Check a program: it has a type, a value of that type, a text, and the same value after passes and everywhere.

    Returns the value.
    """
    typed = infer_type(mod)
    if infer_type(typed) is not typed:
        raise Disagreement("types that are known are inferred anew", typed)
    value = run("debug", mod, args)
    if not has_type(typed, value, typed["main"].ret_type):
        raise Disagreement(f"{show(value)} is not of type {typed['main'].ret_type}", typed, args)
    for program in (mod, typed):
        _text(program)
    done = {ir.structural_hash(typed)}
    for chain in (*((p,) for p in passes), *chains):
        _passes(chain, typed, args, value, done)
    for kind in kinds:
        other = run(kind, mod, args)
        if other is not None and not equal(value, other):
            raise Disagreement(f"{kind}: {show(other)} instead of {show(value)}", mod, args)
    return value


def run(kind, mod, args):
    """Run ``main`` twice; None where the executor says that it does not take such programs."""
    before = [show(a) for a in args]
    try:
        main = relay.create_executor(kind, mod).evaluate()
        first, second = main(*args), main(*args)
    except Exception as e:
        if kind in FIRST_ORDER and "needs the virtual machine" in str(e):
            return None
        raise Disagreement(f"{kind}: {e}", mod, args) from e
    if before != [show(a) for a in args]:
        raise Disagreement(f"{kind}: the arguments were {', '.join(before)}", mod, args)
    if not equal(first, second):
        raise Disagreement(f"{kind}: first {show(first)}, then {show(second)}", mod, args)
    return first


def _text(mod):
    """Printing and parsing gives the same program."""
    text = mod.astext(show_meta_data=True) if hasattr(mod, "astext") else str(mod)
    try:
        ir.assert_structural_equal(relay.fromtext(text), mod)
    except Exception as e:
        raise Disagreement(f"the text is not read back: {e}", mod) from e


def _passes(chain, typed, args, value, known):
    """A chain of passes keeps the value. Forms that are known already are read back and interpreted once."""
    program, done = typed, []
    for name in chain:
        done.append(name)
        try:
            program = getattr(relay.transform, name)()(program)
            if name != "InferType":
                program = infer_type(program)
        except Exception as e:
            raise Disagreement(f"{' '.join(done)}: {e}", typed, args, program) from e
    form = ir.structural_hash(program)
    if form in known:
        return
    known.add(form)
    _text(program)
    got = run("debug", program, args)
    if not equal(value, got):
        raise Disagreement(f"{' '.join(done)}: {show(got)} instead of {show(value)}", typed, args, program)
