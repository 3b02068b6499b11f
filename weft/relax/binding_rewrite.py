"""Changing one dataflow block of a function, binding by binding."""

from __future__ import annotations

from typing import Any

from weft import error, ir
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Binding, DataflowBlock, DataflowVar, SeqExpr, Var, VarBinding
from weft.relax.rename import rename_vars, variables
from weft.relax.rewriter import replace_value
from weft.relax.unused import remove_all_unused


class DataflowBlockRewrite:
    """Changes a dataflow block of a function; the function and the block that were given stay as they are.

    Parameters
    ----------
    dfb : DataflowBlock
        A block right in the function's body.
    root_fn : Function

    Raises
    ------
    InvalidArgument
        When the function has no such block.
    """

    def __init__(self, dfb: DataflowBlock, root_fn: ir.Function) -> None:
        self.root_fn, self.dfb = root_fn, dfb
        blocks = root_fn.body.blocks if isinstance(root_fn.body, SeqExpr) else ()
        self._place = next((i for i, b in enumerate(blocks) if b is dfb), None)
        if self._place is None:
            raise error.InvalidArgument("the block is none of the function's", help="take it from func.body.blocks")

    def add_binding(self, binding: Binding) -> None:
        """Add a binding at the end of the block."""
        self._set_bindings((*self.dfb.bindings, binding))

    def add(self, expr: ir.Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Bind an expression at the end of the block.

        Parameters
        ----------
        name : str, optional
            Of the variable; by default one that nothing in the function has.
        is_dfvar : bool
            Whether the variable is visible inside of the block only.
        """
        value = BlockBuilder().normalize(expr)
        made = DataflowVar if is_dfvar else Var
        self.add_binding(VarBinding(made(name or self._fresh_name(), value.ty), value))  # type: ignore[attr-defined]

    def remove_unused(self, var: ir.ExprVar, allow_undef: bool = False) -> None:
        """Remove the binding of a variable that nothing uses.

        Parameters
        ----------
        allow_undef : bool
            Whether the block may have no such variable, which changes nothing.

        Raises
        ------
        InvalidArgument
            When something uses the variable, or the block does not bind it.
        """
        if not any(b.var is var for b in self.dfb.bindings):
            if allow_undef:
                return
            raise self._unknown(var)
        users = sum(var in variables(b.value) for block in self._blocks() for b in block.bindings)  # type: ignore[attr-defined]
        users += var in variables(self._body.body)
        if users:
            raise error.InvalidArgument(f"{var.name_hint} is used by {users} vars", help="replace its uses first")
        self._set_bindings(tuple(b for b in self.dfb.bindings if b.var is not var))

    def remove_all_unused(self) -> None:
        """Remove all bindings without effects whose variables nothing uses, those of other blocks included."""
        before = self._blocks()
        self.root_fn = remove_all_unused(self.root_fn)
        named = {b.var for b in self.dfb.bindings}
        left = [b for b in self._blocks() if b not in before and named & {x.var for x in b.bindings}]
        if self.dfb not in self._blocks():
            self.dfb: Any = left[0] if left else DataflowBlock(())
            self._place = self._blocks().index(left[0]) if left else None

    def replace_all_uses(self, old_var: ir.ExprVar, new_var: ir.ExprVar) -> None:
        """Use another variable wherever one is used.

        Raises
        ------
        InvalidArgument
            When the function knows no such variable.
        """
        known = {b.var for block in self._blocks() for b in block.bindings} | set(self.root_fn.params)
        if old_var not in known:
            raise self._unknown(old_var)
        renamed: dict[Any, Any] = {old_var: new_var}
        blocks: list[Any] = []
        for block in self._blocks():
            bindings = tuple(replace_value(b, rename_vars(b.value, renamed)) for b in block.bindings)  # type: ignore[attr-defined]
            blocks.append(ir.with_fields(block, bindings=bindings))
        if self._place is not None:
            self.dfb = blocks[self._place]
        self._set_body(blocks, rename_vars(self._body.body, renamed))

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it is now."""
        return self.dfb

    def mutated_root_fn(self) -> ir.Function:
        """The function as it is now."""
        return self.root_fn

    def mutate_irmodule(self, irmodule: ir.IRModule) -> ir.IRModule:
        """Return a module in which the function is as it is now.

        Raises
        ------
        InvalidArgument
            When the module has no function of its symbol.
        """
        symbol = self.root_fn.attrs.get("global_symbol")
        found: ir.GlobalVar | None = next((v for v in irmodule if v.name_hint == symbol), None)
        if found is None:
            raise error.InvalidArgument("the module has no such function", found=str(symbol))
        return irmodule.with_functions({v: self.root_fn if v is found else f for v, f in irmodule.items()})

    @property
    def _body(self) -> Any:
        return self.root_fn.body

    def _blocks(self) -> tuple[Any, ...]:
        return self._body.blocks

    def _set_bindings(self, bindings: tuple[Any, ...]) -> None:
        blocks = list(self._blocks())
        place = len(blocks) if self._place is None else self._place
        self.dfb = DataflowBlock(bindings, span=self.dfb.span)
        blocks[place : place + 1] = [self.dfb] if bindings else []
        self._place = place if bindings else None
        self._set_body(blocks, self._body.body)

    def _set_body(self, blocks: list[Any], result: ir.Expr) -> None:
        body = SeqExpr(tuple(blocks), result, span=self._body.span, ty=self._body.ty)
        self.root_fn = self.root_fn.replace(body=body)

    def _fresh_name(self) -> str:
        taken = {v.name_hint for v in variables(self._body)}
        taken |= {b.var.name_hint for block in self._blocks() for b in block.bindings}
        n = 0
        while f"tmp{n}" in taken:
            n += 1
        return f"tmp{n}"

    @staticmethod
    def _unknown(var: ir.ExprVar) -> error.InvalidArgument:
        return error.InvalidArgument(
            f"Cannot find the variable '{var.name_hint}' in the block", help="take it from a binding"
        )
