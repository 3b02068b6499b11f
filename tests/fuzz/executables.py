"""The fields of executable files."""

from tests.fuzz.binary import SHAPE, SMALL_TEXT, TENSOR, TEXT, Field, Fields


def fields(data: bytes) -> list[Field]:
    """List what each number of an executable file is."""
    file = Fields(data)

    def function() -> None:
        file.number("function", "i")
        file.text()
        file.number("function", *"qqqq")
        file.counted(file.text)

    def scope() -> None:
        file.number("scope", "q")
        file.text()

    def constant() -> None:
        tag = file.number("tag", "i")
        if tag == TENSOR:
            file.tensor()
        elif tag == SHAPE:
            file.counted(lambda: file.number("shape", "q"))
        elif tag in (TEXT, SMALL_TEXT):
            file.text()
        else:
            file.number("constant", "q" if tag in (1, 2, 3) else "I")

    file.number("header", "Q")
    file.text()
    for item in (function, scope, constant):
        file.counted(item)
    file.counted(lambda: file.number("offset", "q"))
    file.counted(lambda: file.number("word", "q"))
    return file.found
