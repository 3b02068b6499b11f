"""Forms of the IR: a spec is a table from node class to what must hold, checked over a whole module at once.

Passes name the form that they ensure; ``PassContext(verify=True)`` checks it after each of them. All violations are
collected, and the error shows the function with each message under its statement.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weft.error import ErrorGroup, VerifyError
from weft.ir.dispatch import Dispatch
from weft.ir.expr import BaseFunc
from weft.ir.module import IRModule
from weft.ir.node import _PRINTER, Node
from weft.ir.passes import Pass, on_verify
from weft.ir.text.printer import STMT
from weft.ir.walk import _BELOW_BACKWARDS, CHILD_FIELDS

Rule = Callable[..., Any]
_CONTEXT_LINES = 3
_WHOLE_FUNCTION_LINES = 60


class Violation(Exception):
    """One broken rule: the message, and the statement to show it under."""

    def __init__(self, message: str, node: Any) -> None:
        super().__init__(message)
        self.message, self.node = message, node


class Spec:
    """A form of functions.

    Parameters
    ----------
    name : str
        Such as ``"tir.lowered"``; passes refer to it.
    kind : type
        The class of functions that it is about; others pass.
    includes : iterable of Spec
        Forms that it is a part of.
    doc : str
        The invariant, in a sentence.
    alone : bool
        Whether rules of nodes look at nothing but what is below the node, and those of functions at nothing but the
        function: what was found to have the form then has it everywhere, and is not looked at again.
    """

    def __init__(
        self, name: str, kind: type, includes: Iterable[Spec] = (), doc: str = "", *, alone: bool = False
    ) -> None:
        self.name, self.kind, self.includes, self.doc, self.alone = name, kind, tuple(includes), doc, alone
        self._kept_by: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: tuple[Any, frozenset[int]] = None, frozenset()  # a function of the form, and its nodes
        self.rules = Dispatch(name, default=None)
        self.function_rules: list[Rule] = []
        SPECS[name] = self

    def on(self, *classes: type) -> Callable[[Rule], Rule]:
        """Register ``rule(node, func, mod)`` for node classes; it returns a message, or None where all is well."""
        return self.rules.on(*classes)

    def on_function(self, rule: Rule) -> Rule:
        """Register ``rule(func, mod)``, which yields ``(node, message)`` pairs."""
        self.function_rules.append(rule)
        return rule

    def with_included(self) -> set[str]:
        """Return the names of this form and of all that it includes."""
        return {self.name}.union(*(spec.with_included() for spec in self.includes))

    def check(self, func: Any, mod: IRModule) -> list[Violation]:
        """Return what a function violates."""
        if not isinstance(func, self.kind) or (self.alone and func in self._kept_by):
            return []
        found = [v for spec in self.includes for v in spec.check(func, mod)]
        found += [Violation(message, node) for rule in self.function_rules for node, message in rule(func, mod)]
        _alive, known = self._last
        seen: set[int] = set()
        rule_of = self.rules.get
        told = ((n, rule(n, func, mod)) for n in _below(func, seen, known) if (rule := rule_of(type(n))) is not None)
        bad = {id(n): message for n, message in told if message is not None} if self.rules.table else {}
        if bad:
            found += [Violation(bad[id(n)], statement) for n, statement in _with_statements(func) if id(n) in bad]
        if self.alone and not found:
            self._kept_by.add(func)
            self._last = func, frozenset(seen)
        return found


SPECS: dict[str, Spec] = {}
"""All forms by name."""


def _below(func: Any, seen: set[int], known: frozenset[int]) -> Iterator[Node]:
    """Yield each node below a function, and note it in `seen`; what is in `known` is not looked into."""
    classes, getters = CHILD_FIELDS, _BELOW_BACKWARDS
    stack: list[Any] = [func]
    while stack:
        value = stack.pop()
        kind = type(value)
        if classes[kind] is None:
            if isinstance(value, tuple):
                stack += value[::-1]
        elif id(value) not in seen:
            seen.add(id(value))
            if id(value) not in known:
                yield value
                get = getters[kind]
                if get is not None:
                    stack += get(value)


def _with_statements(func: Any) -> Iterator[tuple[Node, Any]]:
    """Yield each node below a function with the statement around it; shared subtrees once."""
    stack: list[tuple[Any, Any]] = [(func, func)]
    seen: set[int] = set()
    while stack:
        value, statement = stack.pop()
        fields = CHILD_FIELDS[type(value)]
        if fields is None:
            stack += [(x, statement) for x in value[::-1]] if isinstance(value, tuple) else ()
        elif id(value) not in seen:
            seen.add(id(value))
            statement = value if STMT.get(type(value)) is not STMT.default else statement
            yield value, statement
            stack += [(getattr(value, f), statement) for f in fields[::-1]]


def violations(mod: IRModule | BaseFunc, spec: Spec) -> list[tuple[str, Any, list[Violation]]]:
    """List, by function, what a module violates."""
    mod = IRModule.from_expr(mod)
    found = []
    for var, func in mod.items():
        bad = list(spec.check(func, mod))
        if bad:
            found.append((var.name_hint, func, bad))
    return found


def verify(mod: IRModule | BaseFunc, spec: Spec | str, after: str | None = None) -> None:
    """Check that a module has a form.

    Parameters
    ----------
    spec : Spec or str
        The form, or its name.
    after : str, optional
        The pass that made the module, for the message.

    Raises
    ------
    ErrorGroup
        With all violations, each under its statement.
    """
    form = SPECS[spec] if isinstance(spec, str) else spec
    found = violations(mod, form)
    if not found:
        return
    count = sum(len(bad) for _, _, bad in found)
    head = f"the module is not '{form.name}'" + (f" after {after}" if after else "")
    head += f": {count} violation{'s' if count > 1 else ''}" + (f" ({form.doc})" if form.doc else "")
    texts = [_function_text(name, func, bad) for name, func, bad in found]
    errors = [
        VerifyError(f"{_place(name, v.node)}: {v.message}", where=getattr(v.node, "span", None))
        for name, _, bad in found
        for v in bad
    ]
    raise ErrorGroup("\n".join([head, *texts]), errors)


def _place(function: str, node: Any) -> str:
    """Name a function, and the variable that a guilty binding binds."""
    variable = getattr(getattr(node, "var", None), "name_hint", None)
    return function if variable is None else f"{function}, '{variable}'"


def _function_text(name: str, func: Any, bad: list[Violation]) -> str:
    """Render a function with messages under its statements; of a long one, the neighbourhoods of messages."""
    notes: dict[Any, list[str]] = {}
    for v in bad:
        notes.setdefault(v.node, []).append(v.message)
    lines = _PRINTER[0](func, notes=notes).splitlines()
    shown = [f"in function '{name}':"]
    if len(lines) <= _WHOLE_FUNCTION_LINES:
        return "\n".join([*shown, *("  " + line for line in lines)])
    marked = [i for i, line in enumerate(lines) if line.lstrip().startswith("# ^ ")][:20]
    near = {i for m in marked for i in range(m - _CONTEXT_LINES, m + _CONTEXT_LINES)}
    last = -1
    for i, line in enumerate(lines):
        if i in near:
            shown += ["  ..."] if i != last + 1 else []
            shown.append("  " + line)
            last = i
    return "\n".join(shown)


def _check_after_pass(mod: IRModule, done: Pass) -> None:
    """Check the form that a pass says to ensure, which includes others, and of those of all modules the others."""
    last = _checked.__dict__
    now = [(v.name_hint, weakref.ref(f)) for v, f in mod.items()]
    for name in (done.ensures, *_ALWAYS):
        if name in SPECS and last.get(name) != now:  # else the pass changed nothing, or it is included
            verify(mod, SPECS[name], after=done.name)
            last.update(dict.fromkeys(SPECS[name].with_included(), now))


_checked = threading.local()
"""By form, the functions of the module that was found to have it last."""


_ALWAYS = ("tir.well_formed", "relax.well_formed", "relay.well_formed")
on_verify(_check_after_pass)
