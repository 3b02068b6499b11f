"""Facts that wait until more types are known: calls of operators, elements of tuples, results of polymorphic calls."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir import Node, Type
from weft.relay.expr import Call, TupleGetItem, Var
from weft.relay.infer.operators import infer_operator
from weft.relay.infer.state import Inference
from weft.relay.infer.unify import FAILED
from weft.relay.op.registry import complete_arguments
from weft.relay.op.registry import get as get_op
from weft.relay.types import IncompleteType, TupleType, TypeVar, types_equal


class OperatorCall:
    """The type of a call of an operator follows from the types of its arguments."""

    __slots__ = ("args", "known", "node", "result")

    def __init__(self, node: Call, args: tuple[Type, ...], result: Type) -> None:
        self.node, self.args, self.result = node, args, result
        self.known: tuple[Type, ...] = ()

    def attempt(self, s: Inference) -> bool:
        """Infer once all types of arguments are known; they may yet be widened."""
        args = tuple([s.resolve(a) for a in self.args])
        if any(s.unifier.unknown(a) is not None for a in args):
            args = self._completed(args, s)
        if any(s.unifier.unknown(a) is not None for a in args):
            return False
        if not self.known:
            s.relations.append(self)
        self.known = args
        name = self.node.op.name  # type: ignore[union-attr]
        s.flow(infer_operator(self.node, args, s), self.result, self.node, f"the result of '{name}' has another type")
        return True

    def _completed(self, args: tuple[Type, ...], s: Inference) -> tuple[Type, ...]:
        """Give arguments of unknown type the types that the operator and the first one tell."""
        wanted = complete_arguments(self.node, [None if type(a) is IncompleteType else a for a in args])
        for found, arg in zip(wanted, args, strict=False):
            if found is not None:
                s.flow(found, arg, self.node, "an argument has another type")
        return tuple([s.resolve(a) for a in args])

    def again(self, s: Inference) -> None:
        """Infer again if the types of arguments were widened since."""
        if not all(types_equal(s.resolve(a), b) for a, b in zip(self.args, self.known, strict=True)):
            self.attempt(s)

    def unknown(self, s: Inference) -> str:
        """Name the argument whose type is not known."""
        op = get_op(self.node.op)  # type: ignore[arg-type]
        at = next(i for i, ty in enumerate(self.args) if s.unifier.unknown(ty) is not None)
        name = op.inputs[at].name if at < len(op.inputs) else str(at)
        arg = self.node.args[at]
        return f"the type of argument '{name}'" + (f", `%{arg.name_hint}`," if isinstance(arg, Var) else "")


class Projection:
    """The type of an element follows from that of the tuple."""

    __slots__ = ("node", "of", "result")

    def __init__(self, node: TupleGetItem, of: Type, result: Type) -> None:
        self.node, self.of, self.result = node, of, result

    def attempt(self, s: Inference) -> bool:
        """Take the element's type once the tuple's is known."""
        of = s.unifier.head(self.of)
        if type(of) is IncompleteType:
            return False
        s.flow(element(self.node, of, s), self.result, self.node, "the element of the tuple has another type")
        return True

    def unknown(self, s: Inference) -> str:
        """Say that the tuple's type is not known."""
        return "the type of the tuple"


def element(node: TupleGetItem, of: Type, s: Inference) -> Type:
    """Return the type of an element of a tuple of known type."""
    if of is FAILED:
        return FAILED
    if not isinstance(of, TupleType):
        return s.fail(
            f"`.{node.index}` takes an element of what is no tuple",
            node,
            expected="a tuple",
            found=of,
            help="elements of tensors are taken by operators such as `take`",
        )
    if not 0 <= node.index < len(of.fields):
        return s.fail(
            f"the tuple has no element {node.index}",
            node,
            expected=f"an index from 0 to {len(of.fields) - 1}" if of.fields else "a tuple that is not empty",
            found=f"{node.index}, of `{s.resolve(of)}`",
        )
    return of.fields[node.index]


class Instantiation:
    """The result of a call of a polymorphic function whose own result is still being inferred."""

    __slots__ = ("declared", "node", "result", "types")

    def __init__(self, node: Node, declared: Type, types: Mapping[TypeVar, Type], result: Type) -> None:
        self.node, self.declared, self.types, self.result = node, declared, types, result

    def attempt(self, s: Inference) -> bool:
        """Put the type arguments into the result once that is known."""
        if s.unifier.unknown(self.declared) is not None:
            return False
        self.force(s)
        return True

    def force(self, s: Inference) -> None:
        """Put the type arguments in, whatever is known; what is not is the same in all calls."""
        found = s.unifier.substitute(self.declared, self.types)
        s.flow(found, self.result, self.node, "the function's result has another type")

    def unknown(self, s: Inference) -> str:
        """Say that the result is not known."""
        return "the result of the function"
