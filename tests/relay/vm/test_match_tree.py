"""Decision trees choose the first clause that matches, and look at each place once."""

import random

import pytest

from weft import relay
from weft.relay.vm.match_tree import Fail, Leaf, Switch, decision_tree

T = relay.GlobalTypeVar("T")
ONE = relay.GlobalTypeVar("One")
A, B, C = relay.Constructor("A", (), T), relay.Constructor("B", (T(),), T), relay.Constructor("C", (T(), T()), T)
ONLY = relay.Constructor("Only", (T(), T()), ONE)
TYPES = {d.header.name_hint: d for d in (relay.TypeData(T, (), (A, B, C)), relay.TypeData(ONE, (), (ONLY,)))}
HERE = relay.Tuple(())


def siblings(c):
    return TYPES[c.belong_to.name_hint].constructors


def pattern(rng, depth, kind="T"):
    """A random pattern for values of a kind: T, One, or a pair of T."""
    if depth == 0 or rng.random() < 0.3:
        return relay.PatternWildcard() if rng.random() < 0.5 else relay.PatternVar(relay.Var(f"v{rng.randrange(1000)}"))
    if kind == "pair":
        return relay.PatternTuple(tuple(pattern(rng, depth - 1) for _ in range(2)))
    c = rng.choice((A, B, C)) if kind == "T" else ONLY
    return relay.PatternConstructor(c, tuple(pattern(rng, depth - 1) for _ in c.inputs))


def value(rng, depth, kind="T"):
    """A random value: (constructor or None for a pair, fields)."""
    if kind != "T":
        return (ONLY if kind == "One" else None), [value(rng, depth, "T") for _ in range(2)]
    c = A if depth == 0 else rng.choice((A, B, C))
    return c, [value(rng, depth - 1) for _ in c.inputs]


def matches(p, v, place, found):
    if isinstance(p, relay.PatternVar):
        found[p.var] = place
    if isinstance(p, (relay.PatternVar, relay.PatternWildcard)):
        return True
    if isinstance(p, relay.PatternConstructor) and p.constructor is not v[0]:
        return False
    return all(matches(q, f, (*place, i), found) for i, (q, f) in enumerate(zip(p.patterns, v[1], strict=True)))


def at(v, place):
    for i in place:
        v = v[1][i]
    return v


def walk(tree, v):
    """The leaf for a value."""
    seen = set()
    while isinstance(tree, Switch):
        assert tree.place not in seen, "a place is looked at once"
        seen.add(tree.place)
        c = at(v, tree.place)[0]
        assert {k for k, _ in tree.cases} <= {A, B, C}, "the type with one constructor is not tested"
        tree = dict(tree.cases).get(c, tree.default)
    return tree


@pytest.mark.parametrize("kind", ["T", "One", "pair"])
def test_first_match(kind):
    rng = random.Random(kind)
    for _ in range(400):
        clauses = tuple(relay.Clause(pattern(rng, 3, kind), HERE) for _ in range(rng.randrange(1, 6)))
        tree = decision_tree(clauses, siblings)
        for _ in range(12):
            v = value(rng, 4, kind)
            expected = None
            for i, c in enumerate(clauses):
                found = {}
                if matches(c.lhs, v, (), found):
                    expected = (i, found)
                    break
            leaf = walk(tree, v)
            if expected is None:
                assert isinstance(leaf, Fail)
            else:
                assert isinstance(leaf, Leaf) and (leaf.clause, dict(leaf.bindings)) == expected


def test_what_is_missing_is_named():
    wild = relay.PatternWildcard()
    pair = relay.PatternTuple((relay.PatternConstructor(B, (relay.PatternConstructor(A),)), wild))
    tree = decision_tree((relay.Clause(pair, HERE),), siblings)

    def failures(t):
        if isinstance(t, Switch):
            return [f for u in (*(u for _, u in t.cases), t.default) if u is not None for f in failures(u)]
        return [t.missing] if isinstance(t, Fail) else []

    assert failures(tree) == ["(B(B(_) | C(_, _)), _)", "(A | C(_, _), _)"]
    assert failures(decision_tree((), siblings)) == ["_"]
