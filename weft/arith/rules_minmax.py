"""Rules of minima, maxima and choices; operands whose order is provable never get here."""

from weft.arith.rule import RuleTable

RULES = RuleTable("""
    min(x, x) => x
    max(x, x) => x
    min(max(x, y), min(x, y)) => min(x, y)
    min(max(x, y), x) => x
    min(max(x, y), y) => y
    min(x, max(x, y)) => x
    min(x, max(y, x)) => x
    max(min(x, y), x) => x
    max(min(x, y), y) => y
    max(x, min(x, y)) => x
    max(x, min(y, x)) => x
    max(max(x, y), min(x, y)) => max(x, y)
    min(max(x, y), max(x, z)) => max(min(y, z), x)
    max(min(x, y), min(x, z)) => min(max(y, z), x)
    max(min(x, c1), c2) => c2 if c2 >= c1
    min(max(x, c1), c2) => c2 if c2 <= c1
    min(broadcast(x, n), broadcast(y, n)) => broadcast(min(x, y), n)
    max(broadcast(x, n), broadcast(y, n)) => broadcast(max(x, y), n)
""")

SELECT = RuleTable("""
    select(not p, x, y) => select(p, y, x)
    select(p, x, x) => x
    select(p, select(p, x, y), z) => select(p, x, z)
    select(p, x, select(p, y, z)) => select(p, x, z)
    select(p, x, select(q, x, y)) => select(p or q, x, y)
""")
