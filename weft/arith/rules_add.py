"""Rules of sums, differences and products beyond the linear normal form: vectors and choices."""

from weft.arith.rule import RuleTable

RULES = RuleTable("""
    ramp(x, s, n) + ramp(y, t, n) => ramp(x + y, s + t, n)
    ramp(x, s, n) + broadcast(y, n) => ramp(x + y, s, n)
    broadcast(x, n) + ramp(y, s, n) => ramp(x + y, s, n)
    broadcast(x, n) + broadcast(y, n) => broadcast(x + y, n)
    ramp(x, s, n) - ramp(y, t, n) => ramp(x - y, s - t, n)
    ramp(x, s, n) - broadcast(y, n) => ramp(x - y, s, n)
    broadcast(x, n) - ramp(y, s, n) => ramp(x - y, 0 - s, n)
    broadcast(x, n) - broadcast(y, n) => broadcast(x - y, n)
    ramp(x, s, n) * broadcast(y, n) => ramp(x * y, s * y, n)
    broadcast(x, n) * ramp(y, s, n) => ramp(x * y, s * x, n)
    broadcast(x, n) * broadcast(y, n) => broadcast(x * y, n)
    min(x, y) + max(x, y) => x + y
    min(x, y) + max(y, x) => x + y
    max(x, y) + min(x, y) => x + y
    max(x, y) + min(y, x) => x + y
    select(p, x, y) + select(p, z, w) => select(p, x + z, y + w)
    select(p, x, y) - select(p, z, w) => select(p, x - z, y - w)
    x * 1.0 => x
    1.0 * x => x
    x - 0.0 => x
""")
