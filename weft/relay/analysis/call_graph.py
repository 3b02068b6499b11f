"""Which functions of a module refer to which."""

from __future__ import annotations

from weft.ir import BaseFunc, GlobalVar, IRModule, reached
from weft.relay.expr import Function
from weft.relay.walk import parts, subexpressions


class CallGraph:
    """The functions of a module and their references to each other.

    Parameters
    ----------
    module : IRModule
        The module.
    """

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self._uses: dict[str, dict[str, int]] = {v.name_hint: _references(f, module) for v, f in module.items()}
        self._groups: list[list[str]] = _components(self._uses)
        self._users: dict[str, list[str]] = {name: [] for name in self._uses}
        for name, uses in self._uses.items():
            for used in uses:
                self._users[used].append(name)

    def _name(self, var: GlobalVar | str) -> str:
        return self.module.get_global_var(var if isinstance(var, str) else var.name_hint).name_hint

    def _vars(self, names: list[str]) -> list[GlobalVar]:
        return [self.module.get_global_var(n) for n in names]

    def callees(self, var: GlobalVar | str) -> list[GlobalVar]:
        """List the functions that a function refers to."""
        return self._vars(list(self._uses[self._name(var)]))

    def callers(self, var: GlobalVar | str) -> list[GlobalVar]:
        """List the functions that refer to a function."""
        return self._vars(self._users[self._name(var)])

    def ref_count(self, var: GlobalVar | str) -> int:
        """Return how many references there are to a function."""
        name = self._name(var)
        return sum(self._uses[u][name] for u in self._users[name])

    def global_call_count(self, var: GlobalVar | str) -> int:
        """Return how many references to functions there are in a function."""
        return sum(self._uses[self._name(var)].values())

    def is_recursive(self, var: GlobalVar | str) -> bool:
        """Whether a function calls itself, perhaps through others."""
        name = self._name(var)
        group = next(g for g in self._groups if name in g)
        return len(group) > 1 or name in self._uses[name]

    def is_entry(self, var: GlobalVar | str) -> bool:
        """Whether no other function refers to a function."""
        name = self._name(var)
        return all(u == name for u in self._users[name])

    def entries(self) -> list[GlobalVar]:
        """List the functions that no other one refers to."""
        return [v for v in self.module.functions if self.is_entry(v)]

    def reachable(self, var: GlobalVar | str) -> list[GlobalVar]:
        """List a function and all that its calls lead to."""
        return self._vars(list(reached([self._name(var)], lambda name: list(self._uses[name])[::-1])))

    def groups(self) -> list[list[GlobalVar]]:
        """List the groups of functions that call each other, callees before their callers."""
        return [self._vars(g) for g in self._groups]

    def print_var(self, var: GlobalVar | str) -> str:
        """Return a function's references as text."""
        name = self._name(var)
        lines = [f"  refers to @{used} {_times(count)}" for used, count in self._uses[name].items()]
        return "\n".join([f"@{name}, referred to {_times(self.ref_count(name))}", *lines])

    def __str__(self) -> str:
        return "\n".join(self.print_var(v) for v in self.module.functions)


def _times(count: int) -> str:
    return f"{count} time{'' if count == 1 else 's'}"


def _references(func: BaseFunc, module: IRModule) -> dict[str, int]:
    """Count the references to functions of the module in a function."""
    found: dict[str, int] = {}
    if not isinstance(func, Function):
        return found
    for e in [func, *subexpressions(func.body)]:
        for g in parts(e):
            if isinstance(g, GlobalVar) and g in module:
                found[g.name_hint] = found.get(g.name_hint, 0) + 1
    return found


def _components(uses: dict[str, dict[str, int]]) -> list[list[str]]:
    """Group names that reach each other, what is reached first (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    groups: list[list[str]] = []
    for root in uses:
        if root in order:
            continue
        work = [(root, iter(uses[root]))]
        order[root] = low[root] = len(order)
        path.append(root)
        on_path.add(root)
        while work:
            name, rest = work[-1]
            step = next((u for u in rest if u not in order or u in on_path), None)
            if step is not None and step not in order:
                order[step] = low[step] = len(order)
                path.append(step)
                on_path.add(step)
                work.append((step, iter(uses[step])))
            elif step is not None:
                low[name] = min(low[name], order[step])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    at = path.index(name)
                    groups.append(path[at:])
                    on_path.difference_update(path[at:])
                    del path[at:]
    return groups
