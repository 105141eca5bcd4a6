"""Text from names, files and paths as it is shown to a person: nothing in it moves a cursor, changes a colour, turns the
direction of writing, pretends to be another line or fills a screen.

Escaping twice changes nothing, so that a text may pass here on its way more than once.
"""

import re

MESSAGE = 560  # characters of an error or a note, but for the name of the program before it
VALUE = 160  # characters of a name, a path or another value
_LONG_WORD = re.compile(rf"\S{{{VALUE + 1},}}")


def printable(text: object) -> str:
    r"""One line. Whatever is no visible character or space is written as Python would write it.

    >>> print(printable("a\x1b[2Jb\n\u202ec"))
    a\x1b[2Jb\n\u202ec
    """
    words = str(text)
    return words if words.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in words)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, limit: int) -> str:
    """The beginning and the end, with an ellipsis for what is left out between them."""
    if len(text) <= limit:
        return text
    kept = limit - 3
    return f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"


def brief(text: object) -> str:
    """A name, a path, a label: one line, not long."""
    return shortened(printable(shortened(str(text), 2 * VALUE)), VALUE)


def sentence(text: object) -> str:
    """An error or a note: one line of at most MESSAGE characters; of long words the middle goes first."""
    words = printable(shortened(str(text), 1 << 16))
    return shortened(_LONG_WORD.sub(lambda word: shortened(word[0], VALUE), words), MESSAGE)


def paragraph(text: object) -> str:
    """Lines that are meant to be lines; nothing is left out."""
    return "\n".join(map(printable, str(text).split("\n")))
