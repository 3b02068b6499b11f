"""Post-dominators, against all ways from each node."""

import random

import pytest

from weft.relax.transform.dominators import Dominated, post_dominators


def ways(users, i):
    """All ways from a node to one that nobody uses: the places, and the kind of each step."""
    if not users[i]:
        return [((i,), ())]
    return [((i, *places), (kind, *kinds)) for u, kind in users[i] for places, kinds in ways(users, u)]


@pytest.mark.parametrize("seed", range(200))
def test_where_all_ways_meet_again(seed):
    draw = random.Random(seed)
    n = draw.randint(1, 9)
    users = [
        [(draw.randint(i + 1, n - 1), draw.randint(0, 8)) for _ in range(draw.randint(0, 3))] if i < n - 1 else []
        for i in range(n)
    ]
    for i, found in enumerate(post_dominators(users)):
        every = ways(users, i)
        meet = sorted(set.intersection(*({*places[1:]} for places, _ in every)))
        if not meet:
            assert found == Dominated()
            continue
        heaviest = max(k for places, kinds in every for k in kinds[: places.index(meet[0])])
        assert (found.parent, found.kind) == (meet[0], heaviest)
