"""Text from elsewhere, made fit for a terminal: nothing in it can move the cursor or change colours."""

from __future__ import annotations


def printable(text: str) -> str:
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )
