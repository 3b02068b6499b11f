"""The state of one inference: what is known of each expression, what waits for more, and what went wrong."""

from __future__ import annotations

from typing import Any, Protocol

from weft import error, ir
from weft.ir import Type, diagnostics
from weft.relay.adt import TypeData
from weft.relay.analysis.excerpt import excerpt
from weft.relay.infer.unify import FAILED, InfiniteType, Mismatch, Unifier
from weft.relay.types import FuncType, IncompleteType, TensorType, types_equal


class TypeInferenceErrors(error.ErrorGroup, error.TypeInferenceError):
    """Several errors of one inference."""


class Pending(Protocol):
    """A fact that cannot be used before more is known."""

    node: Any

    def attempt(self, s: Inference) -> bool:
        """Use it if enough is known by now, and return whether it was."""
        ...

    def unknown(self, s: Inference) -> str:
        """Say what is not known."""
        ...


class Inference:
    """What is known so far."""

    def __init__(self, mod: ir.IRModule | None) -> None:
        self.mod = mod
        self.unifier = Unifier()
        self.types: dict[ir.Expr, Type] = {}
        self.vars: dict[ir.Expr, Type] = {}
        self.signatures: dict[ir.Expr, FuncType] = {}
        self.type_args: dict[ir.Expr, tuple[Type, ...]] = {}
        self.queue: list[Pending] = []
        self.relations: list[Any] = []  # those whose arguments' types may yet be widened
        self.asked: dict[ir.Expr, Type] = {}  # what is annotated around choices and matches
        self.errors: list[error.TypeInferenceError] = []
        self.matches: list[Any] = []
        self.globals: dict[str, Type] = {}
        self.checked: set[int] = set()  # annotations that are well kinded
        self.data: dict[str, TypeData] = (
            {g.name_hint: d for g, d in mod.type_definitions.items()} if mod is not None else {}
        )
        self.function: str | None = None
        self.allow_free = False

    def resolve(self, ty: Type) -> Type:
        """Return a type as far as it is known."""
        return self.unifier.resolve(ty)

    def head(self, ty: Type) -> Type:
        """Return what a type is, as far as it is known; what waits is tried first where it is not."""
        found = self.unifier.head(ty)
        if type(found) is IncompleteType and self.queue:
            self.solve()
            found = self.unifier.head(found)
        return found

    def fail(self, what: str, node: Any, *, expected: Any = None, found: Any = None, help: str | None = None) -> Type:
        """Note an error, and return a type that goes with every other."""
        self.errors.append(
            error.TypeInferenceError(
                what, where=self.place(node), expected=self._text(expected), found=self._text(found), help=help
            )
        )
        return FAILED

    def place(self, node: ir.Node) -> Any:
        """Say where a node stands: in its source text, else in which function."""
        if getattr(node, "span", None) is not None:
            return node.span
        inside = f"in function '{self.function}': " if self.function else ""
        return f"{inside}`{excerpt(node)}`"

    def _text(self, value: Any) -> str | None:
        return str(self.resolve(value)) if isinstance(value, Type) else value

    def flow(self, src: Type, dst: Type, node: ir.Node, what: str, help: str | None = None) -> Type:
        """Let a value go where `dst` is asked for, or note the error `what`."""
        try:
            return self.unifier.flow(src, dst)
        except InfiniteType as e:
            self.fail(
                f"{what}, and none fits: it would be a part of itself",
                node,
                expected=e.expected,
                found=e.found,
                help="only a data type may have itself in its parts: `type T { .. }`",
            )
        except Mismatch as e:
            self.fail(what, node, expected=dst, found=src, help=help or self._difference(e, src, dst))
        return dst

    def _difference(self, e: Mismatch, src: Type, dst: Type) -> str | None:
        """Say in which part two types differ, unless they differ as a whole; and how lengths may differ."""
        found, expected = self.resolve(e.found), self.resolve(e.expected)
        notes: list[str] = []
        if not (types_equal(found, self.resolve(src)) and types_equal(expected, self.resolve(dst))):
            notes.append(f"they differ in `{found}` where `{expected}` is asked for")
        if isinstance(found, TensorType) and isinstance(expected, TensorType):
            if found.dtype != expected.dtype:
                notes.append(f'`cast(.., dtype="{expected.dtype}")` converts elements')
            elif found.ndim == expected.ndim:
                notes.append("a dimension that is annotated as `?` takes any length")
        return "; ".join(notes) or None

    def wait(self, fact: Pending) -> None:
        """Use a fact now, or when more is known."""
        if not fact.attempt(self):
            self.queue.append(fact)

    def solve(self) -> None:
        """Use all facts that can be used."""
        progress = True
        while progress and self.queue:
            waiting, self.queue = self.queue, []
            self.queue = [f for f in waiting if not f.attempt(self)] + self.queue
            progress = len(self.queue) < len(waiting)

    def raise_errors(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.errors:
            diagnostics.report(self.errors)
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise TypeInferenceErrors(f"the program has {len(self.errors)} type errors", self.errors)
