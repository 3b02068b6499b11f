"""What a baseline program says when something is not for it."""


class NotInBaseline(Exception):
    """A model, or a call of it, is left to the compiled program, which gives the answer or says what is wrong."""
