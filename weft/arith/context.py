"""What an analyzer knows: atoms, ranges of variables, facts in force, and memo tables that hold meanwhile.

An *atom* is what a polynomial is made of: a variable, a quotient or remainder that does not divide out, a minimum or
maximum that is not decided, a choice, or any other expression taken as a whole. Atoms are numbered per context and
found by a structural key, so that equal expressions are the same atom whatever objects they are made of.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from weft.arith.linear import Mono, Poly, atoms_of
from weft.ir import Node, PrimExpr, Var

POS_INF = (1 << 63) - 1
NEG_INF = -POS_INF

_MEMO_LIMIT = 200_000
_KNOWN = ("ranges", "equal", "limits", "moduli", "facts", "nonzero", "truth")

Knowledge = tuple[tuple[Poly, ...], tuple[Poly | None, ...], tuple[int, int] | None, tuple[int, int] | None]


class Atom:
    """One indivisible term.

    ``kind`` is ``var``, ``div``, ``mod``, ``min``, ``max``, ``select`` or ``opaque``; ``args`` are the polynomials it
    is made of (for ``select``: the condition, then two polynomials); ``node`` the expression to write for it, None
    until it is written.
    """

    __slots__ = ("args", "dtype", "index", "kind", "node")

    def __init__(self, index: int, kind: str, args: tuple[Any, ...], node: PrimExpr | None, dtype: str) -> None:
        self.index, self.kind, self.args, self.node, self.dtype = index, kind, args, node, dtype


class Witness:
    """Values of atoms that satisfy all facts, as far as they were asked for; see :mod:`weft.arith.witness`."""

    __slots__ = ("alive", "open", "seed", "values")

    def __init__(self, seed: int) -> None:
        self.seed, self.alive = seed, True
        self.values: dict[int, int] = {}
        self.open: set[int] = set()


class Context:
    """The state behind an :class:`~weft.arith.Analyzer`; the analyses are functions over it."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._index: dict[Hashable, int] = {}
        self.ranges: dict[int, tuple[Poly | None, Poly | None]] = {}
        self.equal: dict[int, Poly] = {}
        self.limits: dict[int, tuple[int, int]] = {}
        self.moduli: dict[int, tuple[int, int]] = {}
        self.facts: dict[int, tuple[Poly, ...]] = {}
        self.nonzero: frozenset[Hashable] = frozenset()
        self.truth: dict[Hashable, bool] = {}
        self.costs: dict[PrimExpr, int] = {}
        self.searches: dict[Hashable, tuple[bool, dict[int, Knowledge]]] = {}  # was a proof found, knowing what
        self.named: dict[int, tuple[Knowledge, set[int]]] = {}  # by an atom: what of it names which others
        self.divided: dict[Hashable, None] = {}  # (polynomial, type) of what the program divides here
        self.witnesses: list[Witness] | None = None  # None: none are known
        self.untried: list[Poly] = []  # facts that the witnesses were not tried with
        self.clear_memos()

    def clear_memos(self) -> None:
        """Forget what was derived from facts; called whenever a fact is added or leaves."""
        self.polys: dict[PrimExpr, Poly | None] = {}
        self.simplified: dict[PrimExpr, PrimExpr] = {}
        self.bounds: dict[int | Mono, tuple[int, int]] = {}
        self.ranks: dict[int, int] = {}
        self.expanded: dict[int, Poly] = {}
        self.proofs: dict[Any, bool] = {}
        self.emitted: dict[Any, PrimExpr] = {}

    def trim(self) -> None:
        """Bound the memory of a context that lives long."""
        if len(self.searches) > _MEMO_LIMIT // 20:  # each notes what was known of all that it met
            self.searches.clear()
        if len(self.simplified) > _MEMO_LIMIT or len(self.polys) > _MEMO_LIMIT:
            self.clear_memos()
            self.costs.clear()

    def known_of(self, atom: int) -> Knowledge:
        """Return facts, range, limits and residues of an atom: all that a proof may ask of it."""
        return self.facts.get(atom, ()), self.ranges.get(atom, ()), self.limits.get(atom), self.moduli.get(atom)

    def intern(self, key: Hashable, kind: str, args: tuple[Any, ...], node: PrimExpr | None, dtype: str) -> int:
        """Return the number of the atom with this key, making it at the first use."""
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self.atoms)
            self.atoms.append(Atom(index, kind, args, node, dtype))
        return index

    def var_atom(self, var: Var) -> int:
        """Return the atom of a variable (variables are told apart by identity)."""
        return self.intern(var, "var", (), var, var.dtype)

    def knows_var(self, var: Var) -> bool:
        """Whether anything was derived about this variable yet."""
        return var in self._index

    def rank(self, atom: int) -> int:
        """How many definitions deep an atom stands: proofs eliminate the deepest first."""
        known = self.ranks.get(atom)
        if known is not None:
            return known
        self.ranks[atom] = 0  # breaks cycles of ranges that name each other
        info = self.atoms[atom]
        parts: tuple[Any, ...] = self.ranges.get(atom, ()) if info.kind == "var" else info.args
        deep = [self.rank(a) for p in parts if isinstance(p, dict) for a in atoms_of(p)]
        self.ranks[atom] = result = 1 + max(deep) if deep else (1 if any(isinstance(p, dict) for p in parts) else 0)
        return result

    def copy(self) -> Context:
        """Return a context that knows the same and learns on its own."""
        twin = Context()
        twin.atoms, twin._index, twin.costs = list(self.atoms), dict(self._index), dict(self.costs)
        known = self.snapshot()
        vars(twin).update({name: known[name] for name in _KNOWN})
        return twin

    def snapshot(self) -> dict[str, Any]:
        """Remember the facts in force and the memo tables that go with them; what only grows is no part of it."""
        saved = {**vars(self), "divided": len(self.divided)}
        self.untried = list(self.untried)
        self.ranges, self.equal, self.limits = dict(self.ranges), dict(self.equal), dict(self.limits)
        self.moduli, self.facts, self.truth = dict(self.moduli), dict(self.facts), dict(self.truth)
        self.clear_memos()
        return saved

    def restore(self, saved: dict[str, Any]) -> None:
        """Return to a snapshot."""
        divided = self.divided
        while len(divided) > saved["divided"]:  # what a condition guards says nothing about the rest
            divided.popitem()
        vars(self).update({**saved, "divided": divided})


def structural_key(value: object) -> Hashable:
    """Return a key under which equal terms meet, zeros by their signs; buffers and variables count by identity."""
    if isinstance(value, Var):
        return value
    if isinstance(value, Node):
        if type(value).__name__ in ("Buffer", "Op"):
            return value
        fields = value.__struct_fields__
        return (type(value), *[structural_key(getattr(value, f)) for f in fields if f != "span"])
    if type(value) is tuple:
        return tuple([structural_key(v) for v in value])
    try:
        hash(value)
    except TypeError:
        return object()  # equal to nothing
    return (type(value), value.hex() if isinstance(value, float) else value)


def single(mono: Mono) -> int | None:
    """Return the atom of a monomial of degree one."""
    return mono[0] if len(mono) == 1 else None
