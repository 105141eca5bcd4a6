"""What a run's privacy means for a person in the data, in sentences, and what several runs cost together."""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.privacy.recorded_curves import RecordedCurve, compose, epsilon_of, selection
from dpadmm_mpi.storage.result import Result, accounts, curve_needed, last_row

FALSE_POSITIVES = (0.001, 0.01, 0.1)  # at which the attacker is described


def in_words(curve: RecordedCurve) -> list[str]:
    """For a reader without a degree in privacy: an attacker who sees everything that one run releases, and more."""
    found = 1000.0 * float(curve.true_positive_rate(0.001))
    return [
        f"an attacker who accuses 1 in 1,000 innocent records finds at most {per_thousand(found)} in 1,000 of the guilty",
        f"on a coin flip between two neighbouring data sets they are right in at most {50 + 50 * curve.advantage:.1f} % of "
        f"the cases (advantage {curve.advantage:.3g})",
        f"it is at least as private as one Gaussian mechanism with mu = {curve.gaussian_mu:.3g}",
    ]


def is_without_noise(result: Result) -> bool:
    """By the configuration, which a file always has."""
    return result.settings.get("privacy.perturbation", "none") == "none" and not _has_finite_account(result)


def _has_finite_account(result: Result) -> bool:
    """Files of other programs may say less about their noise."""
    last = last_row(result)[0]
    return any(np.isfinite(result[f"privacy/{name}"][last]) for name, _ in accounts(result))


def per_thousand(value: float) -> str:
    """Rounded up: the sentence says "at most"."""
    return f"{value:.1f}" if value < 10.0 else f"{value:.0f}" if value < 999.5 else "1,000"


def attacker_rows(curve: RecordedCurve) -> list[tuple[float, float]]:
    """Share of the innocent that is accused, and the share of the guilty that is found at most."""
    return [(rate, float(curve.true_positive_rate(rate))) for rate in FALSE_POSITIVES]


def together(results: Sequence[Result]) -> RecordedCurve:
    """The curve of all results, if the same people's records are in all of them."""
    return compose([curve_needed(result) for result in results])


def price_of_choice(results: Sequence[Result], delta: float) -> tuple[float, float, float]:
    """Epsilon of the best of a random number of these results, chosen by the records; its law's shape, and the epsilon of
    publishing all of them instead. The number has as mean the number of results."""
    worst = curve_needed(results[0]).renyi.copy()
    for result in results[1:]:
        worst = worst.clip(min=curve_needed(result).renyi)
    divergences, shape = selection(worst, float(len(results)))
    return epsilon_of(divergences, delta), shape, together(results).epsilon_at(delta)


def choice_in_words(results: Sequence[Result]) -> str | None:
    """Of a table with several private rows on the same records: what it costs if these records choose the best one."""
    private = [result for result in results if result.curve is not None]
    if len(private) < 2 or len({str(sorted(result.attributes.get("data", {}).items())) for result in private}) > 1:
        return None
    delta = _delta(private[0])
    chosen, _, everything = price_of_choice(private, delta)
    return (
        f"if the records themselves choose the best of these {len(private)} rows, the choice costs epsilon {chosen:.3g} at "
        f"delta = {delta:g} (see dpadmm compose --selection), publishing all of them {everything:.3g}"
    )


def _delta(result: Result) -> float:
    """The delta of the file's own account."""
    deltas = [about["delta"] for name, about in result.attributes.items() if name.startswith("privacy/") and "delta" in about]
    return float(deltas[0]) if deltas else 1e-5
