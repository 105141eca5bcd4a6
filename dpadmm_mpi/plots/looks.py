"""How curves are told apart: by colour, by marker and by line style, so that a print in grey loses nothing."""

from typing import Any

# Okabe and Ito's palette, without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREYS = ("0.0", "0.5", "0.25", "0.62", "0.12", "0.4", "0.55")
# None is dotted: dots are for what is no result, as guessing or an optimum.
STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (2.5, 1.2)), (0, (5, 1.5, 1, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # 7, 5 and 8 have no common factor: the first 280 curves all look different
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "++++")  # as many as colours


def look(place: int, grey: bool = False) -> dict[str, Any]:
    """Colour, line style and marker of a curve; the second eight have hollow markers."""
    colours = GREYS if grey else COLOURS
    hollow = {"markerfacecolor": "white"} if place // len(MARKERS) % 2 else {}
    return {
        "color": colours[place % len(colours)],
        "linestyle": STYLES[place % len(STYLES)],
        "marker": MARKERS[place % len(MARKERS)],
        **hollow,
    }


def dots(place: int, grey: bool = False) -> dict[str, Any]:
    """The same without a line."""
    return {**look(place, grey), "linestyle": "none"}
