"""Rules of quotients and remainders of vectors; scalars have a normal form of their own in ``terms``."""

from weft.arith.rule import RuleTable

RULES = RuleTable("""
    broadcast(x, n) // broadcast(y, n) => broadcast(x // y, n)
    ramp(x, c1, n) // broadcast(c2, n) => ramp(x // c2, c1 // c2, n) if c2 > 0 and c1 % c2 == 0
    ramp(x, c1, n) // broadcast(c2, n) => broadcast(x // c2, n) if c1 >= 0 < c2 and prove(x % c2 + c1 * (n - 1) < c2)
    broadcast(x, n) % broadcast(y, n) => broadcast(x % y, n)
    ramp(x, c1, n) % broadcast(c2, n) => broadcast(x % c2, n) if c2 > 0 and c1 % c2 == 0
    ramp(x, c1, n) % broadcast(c2, n) => ramp(x % c2, c1, n) if c2 > 0 and c1 >= 0 and prove(x % c2 + c1 * (n - 1) < c2)
    x / 1.0 => x
""")
