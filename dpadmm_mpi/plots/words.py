"""Words in figures: short lines, signs that the font has, and formulas for what is mathematics.

Names come from files and may hold anything. What they hold is drawn as it is; the formulas are made here, and nowhere else.
"""

import re
import textwrap
from collections.abc import Sequence

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Epsilon and delta are privacy wherever they stand; the other letters are words too, unless a number follows.
_FORMULA = re.compile(
    r"(?<![\\\w.])(?:"
    r"(?P<greek>epsilon|delta|(?:alpha|beta|gamma|eta|theta|lambda|mu|rho|sigma|tau)(?= ?= ?[\d.]))"
    r"|(?P<factor>\d+(?:\.\d+)?)e(?P<sign>[+-]?)0*(?P<power>\d+)"
    r"|(?P<letter>P\(t\)|(?<=iteration )t)"
    r")(?!\w)"
)


def typeset(words: str) -> str | None:
    r"""Greek letters, powers of ten and P(t) as formulas of matplotlib, if there are any; dollars stay dollars.

    >>> typeset("cost in $: epsilon (delta 1e-05)")
    'cost in \\$: $\\varepsilon$ ($\\delta$ = $10^{-5}$)'
    >>> typeset("an alpha version") is None
    True
    """
    words = re.sub(r"\bdelta (?=\d)", "delta = ", words)
    return _FORMULA.sub(_formula, words.replace("$", r"\$")) if _FORMULA.search(words) else None


def _formula(found: re.Match[str]) -> str:
    if found["greek"]:
        return "$\\" + ("varepsilon" if found["greek"] == "epsilon" else found["greek"]) + "$"
    if found["letter"]:
        return f"${found['letter']}$"
    factor = "" if found["factor"] == "1" else rf"{found['factor']}\times "
    return f"${factor}10^{{{found['sign'].strip('+')}{found['power']}}}$"


def power_of_ten(value: float) -> str:
    """For the ticks of an axis, where a formula would depend on the settings of whoever shows the figure.

    >>> power_of_ten(1e-5), power_of_ten(2e6)
    ('10⁻⁵', '2×10⁶')
    """
    factor, power = f"{value:e}".split("e")
    sign = str(int(power)).translate(SUPERSCRIPTS)
    return f"10{sign}" if float(factor) == 1.0 else f"{float(factor):g}×10{sign}"


def in_lines(text: str, width: int = 60) -> str:
    """Short lines, whatever lines it had before; "delta 1e-05" and "not proven" are not torn apart."""
    joined = re.sub(r"\b(delta|not) (?=\d|proven|private)", "\\1\0", text.replace("\n", " "))
    return textwrap.fill(joined, width).replace("\0", " ")


def listed(values: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def shared_beginning(names: Sequence[str]) -> str:
    """What all names begin with, in whole parts between commas: "sweep" of "sweep, alpha=1" and "sweep, alpha=2"."""
    parts = [name.split(", ") for name in names]
    same = 0
    while len(parts) > 1 and all(len(each) > same + 1 and each[same] == parts[0][same] for each in parts):
        same += 1
    return ", ".join(parts[0][:same])
