"""Calibration to epsilon of 100 nodes, each with a schedule, a shard and a degree of its own, against the naive way.

50 iterations, at delta = 1e-5: M-ADMM with penalty perturbation and MR-ADMM with objective perturbation, gamma and Gaussian
noise. The naive way bisects over the same account of all nodes, to the same 1e-4. Processor time, without start-up; one account
is of all nodes after every step, without the curve.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from common import Row, medians

from dpadmm_mpi.methods.decentralised.accounts import CALIBRATION, epsilon
from dpadmm_mpi.privacy.account import calibrate
from dpadmm_mpi.privacy.noises import Gamma, Gaussian
from dpadmm_mpi.privacy.perturbations import perturbations
from dpadmm_mpi.privacy.releases import NetworkReleases
from dpadmm_mpi.problems.losses import Logistic, claims

NODES, STEPS, FEATURES = 100, 50, 105
TARGET, DELTA = 2.0, 1e-5
METHODS = {"M-ADMM, penalty perturbation": "penalty", "MR-ADMM, objective perturbation": "objective"}
NOISES: dict[str, Any] = {"gamma": Gamma(alpha=1.0), "Gaussian": Gaussian(noise_std=1.0)}


def releases(perturbation: str, noise: Any) -> NetworkReleases:
    """With noise of size 1, which calibration multiplies."""
    rng = np.random.default_rng(1)
    first, ratio = rng.uniform(4.0, 10.0, NODES), rng.uniform(1.0, 1.05, NODES)
    eta = first * ratio ** np.arange(STEPS)[:, None]
    apart = 1 if perturbation == "penalty" else 2  # MR-ADMM touches the records in every other iteration
    loss = Logistic()
    decreasing, tie = claims(loss)
    return NetworkReleases(
        perturbation=perturbations[perturbation](noise=noise),  # type: ignore[call-arg]
        noise=noise,
        iterations=STEPS,
        data_steps=np.arange(1, STEPS + 1, apart),
        eta=eta[: STEPS // apart],
        theta=np.full((STEPS // apart, NODES), eta.min()),
        parameter=np.ones((STEPS // apart, NODES)),
        V=rng.integers(2, 9, NODES).astype(np.float64),
        B=rng.integers(2000, 8001, NODES).astype(np.float64),
        C=1750.0,
        rho=0.044 * NODES,
        G=loss.slope_bound,
        c1=loss.curvature_bound,
        features=FEATURES,
        decreasing=decreasing,
        tie=tie,
    )


def bisected(r: NetworkReleases) -> NetworkReleases:
    """What one writes first."""
    assert r.noise is not None
    exponent = float(r.noise.exponent)

    def with_strength(strength: float) -> NetworkReleases:
        return replace(r, parameter=strength**exponent * r.parameter)

    low, high = 1e-6, 1.0
    while epsilon(with_strength(high), DELTA)[-1].max() <= TARGET:
        low, high = high, 2.0 * high
    while high > low * (1.0 + CALIBRATION):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if epsilon(with_strength(middle), DELTA)[-1].max() <= TARGET else (low, middle)
    return with_strength(low)


def timed(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def rows(rounds: int) -> list[Row]:
    table = []
    for method, perturbation in METHODS.items():
        for name, noise in NOISES.items():
            r = releases(perturbation, noise)
            found = calibrate(r, TARGET, "epsilon", DELTA)  # and what is imported and tabulated once
            seconds = medians({
                "naive": lambda r=r: timed(lambda: bisected(r)),
                "calibration": lambda r=r: timed(lambda: calibrate(r, TARGET, "epsilon", DELTA)),
                "account": lambda found=found: timed(lambda: epsilon(found, DELTA)),
            }, rounds)  # fmt: skip
            words = f"{method}, {name}"
            table.append(
                Row(
                    "calibration of 100 nodes",
                    f"bisection : package, {words}",
                    seconds["naive"] / seconds["calibration"],
                    at_least=2.0,
                )
            )
            table.append(
                Row(
                    "calibration of 100 nodes",
                    f"calibration : one account, {words}",
                    seconds["calibration"] / seconds["account"],
                )
            )
    return table
