"""What is wrong with ill-typed programs, as their authors read it: each kind of error, with its place."""

import re

import pytest

from tests.refusals import refuses
from weft import relay
from weft.error import ErrorGroup, TypeInferenceError, WeftError

OPTION = "type Option[A] { Some(A), None, }\n"
LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"

# name: a program, in which what is wrong stands between « and », and what is said of it: `told` adds the places
WRONG = {
    "an operator's arity": """
def @main(%x: int32) {
  «add(%x, %x, %x)»
}

'add' takes lhs, rhs
  expected 2 arguments, found 3
  help: it is called with `int32`, `int32`, `int32`""",
    "shapes in an operator": """
def @main(%x: Tensor[(3, 4), float32], %w: Tensor[(5, 6), float32]) {
  let %y = exp(%x);
  «nn.dense(%y, %w)»
}

nn.dense: matmul: inner dimensions differ: x1: (3, 4)   x2: (6, 5)
  expected x2.shape[-2] == 4, found 6
  help: it is called with `Tensor[(3, 4), float32]`, `Tensor[(5, 6), float32]`""",
    "what an operator cannot take": """
def @main(%x: (int32, int32)) {
  «exp(%x)»
}

'exp' cannot take its argument 'data'
  expected a tensor, found (int32, int32)""",
    "an argument": """
def @f(%a: int32, %b: (Tensor[(3), float32], int32)) {
  %b
}
def @main(%x: Tensor[(4), float32]) {
  «@f(1, (%x, 2))»
}

argument 2 of '@f' has another type
  expected (Tensor[(3), float32], int32), found (Tensor[(4), float32], int32)
  help: they differ in `Tensor[(4), float32]` where `Tensor[(3), float32]` is asked for; a dimension that is \
annotated as `?` takes any length""",
    "the number of arguments": """
def @f(%a: int32) {
  %a
}
def @main(%x: int32) {
  «@f(%x, %x)»
}

'@f' is called with 2 arguments
  expected 1, found 2
  help: its type is `fn (int32) -> int32`""",
    "branches": """
def @main(%c: bool, %x: Tensor[(3), float32], %y: Tensor[(4), float32]) {
  «if (%c) { %x } else { %y }»
}

the branches of an if have different types
  expected Tensor[(3), float32], found Tensor[(4), float32]
  help: a dimension that is annotated as `?` takes any length""",
    "clauses": OPTION
    + """def @main(%o: Option[int32]) {
  match (%o) {
    Some(%x) => %x,
    «None => 1f»,
  }
}

the clauses of a match have different types
  expected int32, found float32
  help: `cast(.., dtype="int32")` converts elements""",
    "a condition": """
def @main(%c: Tensor[(2), bool], %x: int32) {
  «if (%c) { %x } else { %x }»
}

the condition of an if is no scalar bool
  expected bool, found Tensor[(2), bool]""",
    "an element of no tuple": """
def @main(%x: int32) {
  «%x.0»
}

`.0` takes an element of what is no tuple
  expected a tuple, found int32
  help: elements of tensors are taken by operators such as `take`""",
    "an element that is not there": """
def @main(%x: (int32, int32)) {
  «%x.2»
}

the tuple has no element 2
  expected an index from 0 to 1, found 2, of `(int32, int32)`""",
    "a call of no function": """
def @main(%x: int32) {
  «%x(1)»
}

'%x' is called and is no function
  expected a function, found int32
  help: parentheses call; elements of a tuple are `.0`, `.1`""",
    "a type that contains itself": """
def @main() {
  let %f = fn (%g) { «%g(%g)» };
  0
}

'%g' needs a type to be called here, and none fits: it would be a part of itself
  expected fn (_) -> _, found _
  help: only a data type may have itself in its parts: `type T { .. }`""",
    "a type that would contain itself through another": """
def @main(%c: bool) {
  let %f = fn (%a, %b) {
    let %r = ref(%b);
    let %u = ref_write(%r, (%a, 1));
    «if (%c) { %a } else { %b }»
  };
  0
}

the branches of an if have different types, and none fits: it would be a part of itself
  expected (_, int32), found _
  help: only a data type may have itself in its parts: `type T { .. }`""",
    "an argument of which nothing is known": """
def @main() {
  let %f = fn (%x) { «add(%x, %x)» };
  0
}

the type cannot be inferred
  found that the type of argument 'lhs', `%x`, is not known
  help: annotate it: its use comes before what would tell it""",
    "a list of nothing": LIST
    + """def @main() {
  let «%xs» = Nil;
  0
}

the type of variable '%xs' cannot be inferred
  found List[_]
  help: annotate it, or give type arguments""",
    "an unknown function": """
def @main(%x: int32) {
  «@g»(%x)
}

there is no function '@g'
  expected a function of the module, found @main""",
    "the parameters of a data type": OPTION
    + """def @main(«%x»: Option[int32, int32]) {
  0
}

data type 'Option' has another number of type parameters
  expected 1, found 2""",
    "a reference that is read": """
def @main(%x: int32) {
  «ref_read(%x)»
}

what is read is no reference
  expected a reference, found int32
  help: `ref(value)` makes one""",
    "a reference that is written": """
def @main(%x: int32) {
  let %r = ref(%x);
  «ref_write(%r, 1f)»
}

the reference holds values of another type
  expected int32, found float32
  help: `cast(.., dtype="int32")` converts elements""",
    "a result": """
def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 4), float32] {
  let %y = exp(%x);
  «exp(%y)»
}

the body has another type than the function returns
  expected Tensor[(2, 4), float32], found Tensor[(2, 3), float32]
  help: a dimension that is annotated as `?` takes any length""",
    "an annotation": """
def @main(%x: Tensor[(2, 3), float32]) {
  «let» %y: Tensor[(2, 4), float32] = exp(%x);
  %y
}

variable '%y' is annotated with another type than its value has
  expected Tensor[(2, 4), float32], found Tensor[(2, 3), float32]
  help: a dimension that is annotated as `?` takes any length""",
    "the fields of a pattern": OPTION
    + """def @main(%x: Option[int32]) {
  match (%x) {
    «Some(%a, %b)» => 1,
    None => 2,
  }
}

the pattern of constructor 'Some' has another number of fields
  expected 1, found 2
  help: the constructor's type is `fn [A](A) -> Option[A]`""",
    "a pattern of another type": OPTION
    + """def @main(%x: int32) {
  match (%x) {
    «Some(%a)» => 1,
    _ => 2,
  }
}

a pattern of constructor 'Some' is matched with another type
  expected Option[_], found int32""",
    "two mistakes": """
def @main(%x: int32) {
  let %y = «%x.0»;
  add(%y, «%x(1)»)
}

the program has 2 type errors
- `.0` takes an element of what is no tuple
    expected a tuple, found int32
    help: elements of tensors are taken by operators such as `take`
- '%x' is called and is no function
    expected a function, found int32
    help: parentheses call; elements of a tuple are `.0`, `.1`""",
}


def told(case):
    """A program, and the text of the error that it is: each place, its line and what is underlined there."""
    marked, report = case.lstrip("\n").split("\n\n")
    program = marked.replace("«", "").replace("»", "")
    places = []
    for row, (line, plain) in enumerate(zip(marked.split("\n"), program.split("\n"), strict=True), 1):
        if "«" in line:
            start, end = line.index("«"), line.index("»") - 1
            places.append((f"--> program:{row}:{start + 1}", f" |  {plain}", f" |  {' ' * start}{'^' * (end - start)}"))
    group = len(places) > 1
    lines = []
    for line in report.split("\n"):
        lines.append(line)
        if line.startswith("- ") if group else len(lines) == 1:
            lines += ["  " * (1 + group) + part for part in places.pop(0)]
    return program, "\n".join(lines)


def message(error):
    """The text of an error; what is parsed twice has a number behind its name."""
    return re.sub(r"--> program \d+:", "--> program:", str(error))


@pytest.mark.parametrize("name", WRONG)
def test_message(name):
    program, golden = told(WRONG[name])
    mod = relay.fromtext(program, source_name="program")
    assert message(refuses(TypeInferenceError, "", relay.transform.InferType(), mod)) == golden


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ("def @main(%x: int32) {\n  add(%x, %y)\n}", "program:2:11"),
        ("def @main(%x: int32) {\n  nn.densely(%x, %x)\n}", "program:2:3"),
        ("def @main(%x: Tensor[(3), float32]) {\n  sum(%x, axes=[1])\n}", "program:2:11"),
        ("def @main(%x: int32) {\n  Maybe(%x)\n}", "program:2:3"),
        ("def @main(%x: Lists[int32]) {\n  0\n}", "program:1:15"),
        ("def @main() {\n  0\n}\ndef @main() {\n  1\n}", "program:4:5"),
        ("type A { B, }\ntype A { C, }\ndef @main() { 0 }", "program:2:6"),
        ("type A { B, }\ntype D { B, }\ndef @main() { 0 }", "program:2:10"),
    ],
)
def test_what_the_parser_finds_has_its_place(text, golden):
    caught = refuses(WeftError, "", lambda: relay.infer_type(relay.fromtext(text, source_name="program")))
    assert golden in message(caught)


def test_several_errors_are_a_group():
    mod = relay.fromtext(told(WRONG["two mistakes"])[0])
    caught = refuses(TypeInferenceError, "", relay.infer_type, mod)
    assert isinstance(caught, ErrorGroup) and len(caught.errors) == 2
