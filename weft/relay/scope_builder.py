"""Building expressions statement by statement: lets, choices with scopes of their own, and a result."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from weft import error, ir
from weft.relay.expr import If, Var, as_expr, lets, var
from weft.relay.types import IncompleteType
from weft.spelling import also_called


class ScopeBuilder:
    """Collects bindings and a result, and makes nested lets of them.

    Examples
    --------
    >>> from weft import relay
    >>> sb, x = relay.ScopeBuilder(), relay.var("x", "float32")
    >>> with sb.if_scope(relay.var("c", "bool")):
    ...     y = sb.let("y", relay.add(x, x))
    ...     sb.ret(y)
    >>> with sb.else_scope():
    ...     sb.ret(x)
    >>> type(sb.get()).__name__
    'If'
    """

    def __init__(self) -> None:
        self._bindings: list[list[tuple[Var, ir.Expr]]] = [[]]
        self._results: list[Any] = [None]  # of the scopes; a choice without its second branch is a pair

    @also_called(var="var_")
    def let(self, var_: Any, value: Any) -> Var:
        """Bind a value to a variable and return the variable.

        Parameters
        ----------
        var_ : Var, str or (str, Type)
            The variable, or the name and type of a new one.
        value : Expr
            What it stands for.
        """
        if isinstance(var_, (tuple, list)):
            if len(var_) > 2:
                raise error.InvalidArgument("a variable is given by its name and type", found=str(var_))
            made = var(*var_)
        else:
            made = var(var_) if isinstance(var_, str) else var_
        self._bindings[-1].append((made, as_expr(value)))
        return made

    @contextmanager
    def if_scope(self, cond: Any) -> Generator[None]:
        """Build the branch that is taken where a condition holds; :meth:`else_scope` must follow."""
        self._unset("a choice")
        self._enter()
        yield
        branch = self._leave()
        self._results[-1] = (as_expr(cond), branch)

    @contextmanager
    def else_scope(self) -> Generator[None]:
        """Build the other branch of the choice before; the choice is the result of the scope around."""
        if type(self._results[-1]) is not tuple:
            raise error.EvaluationError("an else scope must follow an if scope")
        self._enter()
        yield
        branch = self._leave()
        cond, first = self._results[-1]
        self._results[-1] = If(cond, first, branch)

    def type_of(self, expr: ir.Expr) -> Any:
        """Return the type of an expression as far as it is known; an unknown type that inference finds otherwise."""
        if isinstance(expr, Var):
            return expr.ty
        unknown = IncompleteType()
        self.let(var("unify", unknown), expr)
        return unknown

    def ret(self, value: Any) -> None:
        """Set the result of the scope."""
        self._unset("a result")
        self._results[-1] = as_expr(value)

    def get(self) -> ir.Expr:
        """Return the expression that was built."""
        if len(self._bindings) != 1:
            raise error.EvaluationError("the expression is taken outside of all scopes")
        return self._made()

    def _enter(self) -> None:
        self._bindings.append([])
        self._results.append(None)

    def _leave(self) -> ir.Expr:
        made = self._made()
        self._bindings.pop()
        self._results.pop()
        return made

    def _made(self) -> ir.Expr:
        if self._results[-1] is None or type(self._results[-1]) is tuple:
            raise error.EvaluationError(
                "a scope has no result",
                found="an if scope without an else scope" if self._results[-1] else "neither ret nor a choice",
                help="end the scope with ret(value), or with if_scope and else_scope",
            )
        return lets(self._bindings[-1], self._results[-1])

    def _unset(self, what: str) -> None:
        if self._results[-1] is not None:
            raise error.EvaluationError(f"{what} comes behind the result of its scope")
