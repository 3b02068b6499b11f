"""Rules of comparisons and of the connectives between them; what bounds decide is decided before."""

from weft.arith.rule import RuleTable

RULES = RuleTable("""
    x > y => y < x
    x >= y => y <= x
    x // c1 < c2 => x < c1 * c2 if c1 > 0
    c2 < x // c1 => (c2 + 1) * c1 - 1 < x if c1 > 0
    x // c1 <= c2 => x < (c2 + 1) * c1 if c1 > 0
    c2 <= x // c1 => c2 * c1 - 1 < x if c1 > 0
    min(x, y) < c => x < c or y < c
    max(x, y) < c => x < c and y < c
    c < min(x, y) => c < x and c < y
    c < max(x, y) => c < x or c < y
    min(x, c1) == c2 => x == c2 if c2 < c1
    max(x, c1) == c2 => x == c2 if c1 < c2
    min(x, c1) != c2 => x != c2 if c2 < c1
    max(x, c1) != c2 => x != c2 if c1 < c2
    broadcast(x, n) < broadcast(y, n) => broadcast(x < y, n)
    broadcast(x, n) <= broadcast(y, n) => broadcast(x <= y, n)
    broadcast(x, n) == broadcast(y, n) => broadcast(x == y, n)
    broadcast(x, n) != broadcast(y, n) => broadcast(x != y, n)
    ramp(x, c, n) < broadcast(y, n) => broadcast(True, n) if c >= 0 and prove(x + c * (n - 1) < y)
    ramp(x, c, n) < broadcast(y, n) => broadcast(False, n) if c >= 0 and prove(x >= y)
    ramp(x, c, n) <= broadcast(y, n) => broadcast(True, n) if c >= 0 and prove(x + c * (n - 1) <= y)
    broadcast(y, n) <= ramp(x, c, n) => broadcast(True, n) if c >= 0 and prove(y <= x)
    broadcast(y, n) < ramp(x, c, n) => broadcast(True, n) if c >= 0 and prove(y < x)
""")

LOGIC = RuleTable("""
    not (not x) => x
    not (x < y) => y <= x
    not (x <= y) => y < x
    not (x > y) => x <= y
    not (x >= y) => x < y
    not (x == y) => x != y
    not (x != y) => x == y
    not (x and y) => not x or not y
    not (x or y) => not x and not y
    x and x => x
    x or x => x
    x and not x => False
    not x and x => False
    x or not x => True
    not x or x => True
    x and (x and y) => x and y
    (x and y) and x => x and y
    (x and y) and y => x and y
    x or (x or y) => x or y
    (x or y) or x => x or y
    (x or y) or y => x or y
    x and (x or y) => x
    x or (x and y) => x
    broadcast(x, n) and broadcast(y, n) => broadcast(x and y, n)
    broadcast(x, n) or broadcast(y, n) => broadcast(x or y, n)
    not broadcast(x, n) => broadcast(not x, n)
""")
"""Used on integers and bools: with NaN, ``not (x < y)`` is not ``y <= x``."""
