"""What a page says about the methods behind results: their steps as formulas, their noise, the papers."""

from collections.abc import Sequence
from typing import Any

from dpadmm_mpi.methods.base import Method, methods
from dpadmm_mpi.methods.references import cited
from dpadmm_mpi.privacy.perturbations import Perturbation, perturbations
from dpadmm_mpi.registry import first_line, is_inside
from dpadmm_mpi.reports.markup import escape
from dpadmm_mpi.reports.mathml import mathml
from dpadmm_mpi.reports.meaning import is_without_noise
from dpadmm_mpi.storage.result import Result, accounts

PRIVACY = r"\Pr[ \mathcal{M}(D) \in S ] \le e^\varepsilon \Pr[ \mathcal{M}(\hat D) \in S ] + \delta"
OBJECTIVE = r"O_i(f) = \frac{C}{B_i} \sum_n L(y_n f \cdot x_n) + \frac{\rho}{N} R(f)"


def methods_section(results: Sequence[Result]) -> str:
    """What was done: the steps of each method that was used, its noise, and what privacy means."""
    parts = []
    for name, cls in _used(results, "algorithm.method", dict(methods.items())).items():
        assert issubclass(cls, Method)
        about = f"{escape(first_line(cls))} {escape(cls.source)}"
        parts.append(f"<h3>{escape(name)}</h3>\n<p>{about}</p>\n{_formulas(*cls.formulas)}\n")
    if any("problem.C" in result.settings for result in results) and parts:
        parts.insert(0, f"<p>Node i of a network has</p>{_formulas(OBJECTIVE)}\n")
    for name, cls in _used(results, "privacy.perturbation", dict(perturbations.items())).items():
        assert issubclass(cls, Perturbation)
        if cls.private:
            cost = f"<p>With Gamma noise the paper's account is</p>{_formulas(*cls.formulas)}" if cls.formulas else ""
            source = "" if cls.source == "-" else f" {escape(cls.source)}"
            parts.append(f"<h3>Noise: {escape(name)}</h3>\n<p>{escape(first_line(cls))}{source}</p>\n{cost}\n")
    if any(not is_without_noise(result) for result in results):
        parts.append(
            "<h3>What privacy means</h3>\n"
            "<p>What all iterations together release is M(D). For all neighbouring records and all S,</p>"
            f"{_formulas(PRIVACY)}<p>with delta = 0 for a pure bound.</p>\n"
        )
    return "".join(parts)


def _formulas(*latex: str) -> str:
    return "".join(f'<div class="wide">{mathml(formula)}</div>' for formula in latex)


def _used(results: Sequence[Result], key: str, known: dict[str, type[Any]]) -> dict[str, type[Any]]:
    """The package's own classes that some files have chosen; what comes from outside is not asked."""
    names = dict.fromkeys(str(result.settings.get(key)) for result in results)
    return {name: known[name] for name in names if name in known and is_inside(known[name])}


def references_section(results: Sequence[Result]) -> str:
    """The papers behind what was used."""
    texts = [cls.source for cls in _used(results, "algorithm.method", dict(methods.items())).values()]
    texts += [cls.source for cls in _used(results, "privacy.perturbation", dict(perturbations.items())).values()]
    texts += [
        str(result.attributes[f"privacy/{name}"].get("theorem", "")) for result in results for name, _ in accounts(result)
    ]
    papers = "".join(f"<dt>{escape(key)}</dt><dd>{escape(paper)}</dd>\n" for key, paper in cited(*texts).items())
    return f"<dl>\n{papers}</dl>\n" if papers else ""
