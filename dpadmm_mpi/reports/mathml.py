"""Formulas for pages: the part of LaTeX that the methods are written in, as MathML, which browsers show without help."""

import html
import re

_SIGNS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "varepsilon": "ε", "eta": "η", "theta": "θ",
    "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "psi": "ψ", "omega": "ω", "ell": "ℓ",
}  # fmt: skip
_OPERATORS = {
    "sum": "∑", "le": "≤", "ge": "≥", "in": "∈", "cdot": "·", "lVert": "‖", "rVert": "‖", "nabla": "∇",
}  # fmt: skip
_WORDS = ("argmin", "ln", "exp", "Pr", "prox", "max")  # names of functions, set upright
_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|\S")


def mathml(latex: str, block: bool = True) -> str:
    r"""A <math> element. Groups, ^, _, \frac, \hat, \tilde, \mathcal, \text, \quad, Greek letters, sums and norms are known.

    >>> mathml(r"\frac{a_i}{2}", block=False)
    '<math><mrow><mfrac><mrow><msub><mi>a</mi><mi>i</mi></msub></mrow><mn>2</mn></mfrac></mrow></math>'
    """
    reader = _Reader(latex)
    inside = reader.row()
    if reader.rest():
        raise ValueError(f"{latex}: a brace is closed that was not opened")
    return f'<math display="block">{inside}</math>' if block else f"<math>{inside}</math>"


class _Reader:
    """Takes one token after the other."""

    def __init__(self, latex: str) -> None:
        texts: list[str] = []

        def put_aside(found: re.Match[str]) -> str:
            texts.append(found[1])
            return rf"\text {{{len(texts) - 1}}}"

        self.tokens = _TOKEN.findall(re.sub(r"\\text\{([^}]*)\}", put_aside, latex))
        self.texts, self.place = texts, 0

    def rest(self) -> list[str]:
        return self.tokens[self.place :]

    def next(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1]

    def row(self) -> str:
        """Up to the end, or the brace that closes the group."""
        parts = []
        while self.rest() and self.rest()[0] != "}":
            parts.append(self.with_scripts())
        return f"<mrow>{''.join(parts)}</mrow>"

    def with_scripts(self) -> str:
        """An atom with what stands below and above it."""
        is_limit = self.rest()[0] in ("\\sum", "\\argmin", "\\max")
        base, scripts = self.atom(), {"_": "", "^": ""}
        while self.rest() and self.rest()[0] in scripts:
            where = self.next()
            scripts[where] = self.atom()
        low, high = scripts["_"], scripts["^"]
        if low and high:
            return f"<msubsup>{base}{low}{high}</msubsup>"
        if low:
            return f"<munder>{base}{low}</munder>" if is_limit else f"<msub>{base}{low}</msub>"
        return f"<msup>{base}{high}</msup>" if high else base

    def atom(self) -> str:
        token = self.next()
        if token == "{":
            inside = self.row()
            self.next()
            return inside
        if not token.startswith("\\"):
            kind = "mn" if token[0].isdigit() else "mi" if token.isalpha() else "mo"
            return f"<{kind}>{html.escape({'-': '−', '*': '∗'}.get(token, token))}</{kind}>"
        return self.command(token[1:])

    def command(self, name: str) -> str:
        if name in _SIGNS:
            return f"<mi>{_SIGNS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{_OPERATORS[name]}</mo>"
        if name in _WORDS:
            return f'<mi mathvariant="normal">{name}</mi>'
        if name == "frac":
            return f"<mfrac>{self.atom()}{self.atom()}</mfrac>"
        if name in ("hat", "tilde"):
            return f"<mover>{self.atom()}<mo>{'^' if name == 'hat' else '~'}</mo></mover>"
        if name == "mathcal":
            return f"<mi>{self.next_letter()}</mi>"
        if name == "text":
            self.next()
            number = int(self.next())
            self.next()
            return f"<mtext>{html.escape(self.texts[number])}</mtext>"
        if name == "quad":
            return '<mspace width="1em"/>'
        raise ValueError(f"\\{name}: not known here")

    def next_letter(self) -> str:
        """A script capital, in braces or not."""
        token = self.next()
        if token == "{":
            token = self.next()
            self.next()
        return {"N": "𝒩", "M": "ℳ"}[token]
