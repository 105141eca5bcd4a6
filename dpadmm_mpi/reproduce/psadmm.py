"""The figures of [S]."""

from dpadmm_mpi.reproduce.figures import Figure, Variation
from dpadmm_mpi.reproduce.pictures import Panel

BUDGETS = ("0.05", "0.1", "0.5")


def _stochastic(text: str, override: str) -> Variation:
    """Not of DVP, which is another method with penalties of its own."""
    return Variation(text, of_some={"PS-ADMM, *": (override,), "non-private": (override,)})


def _figure() -> Figure:
    def curves(epsilon: str) -> list[tuple[str, str]]:
        return [
            (f"PS-ADMM, paper's noise, epsilon {epsilon}", "PS-ADMM, paper's noise"),
            (f"PS-ADMM, paper's noise with c = 9, epsilon {epsilon}", "PS-ADMM, paper's noise with c = 9"),
            (f"PS-ADMM, sound noise, epsilon {epsilon}", "PS-ADMM, sound noise"),
            (f"DVP, epsilon {epsilon}", "ADMM (DVP), eta = 0.1"),
            (f"DVP with eta 0.3, epsilon {epsilon}", "ADMM (DVP), eta = 0.3"),
            ("non-private", "stochastic ADMM without noise"),
        ]

    return Figure(
        name="psadmm-fig2",
        title="[S] Figs. 2 and 3: PS-ADMM, ADMM (DVP) and the stochastic ADMM without noise",
        panels=[
            *(Panel(f"loss, epsilon = {e}", "loss", curves(e), log_y=True) for e in BUDGETS),
            *(Panel(f"test error, epsilon = {e}", "test_error", curves(e)) for e in BUDGETS),
        ],
        quick=("runs=3", "data.train=0.2"),
        remark="The noise of [S] Theorem 2 does not give the budgets: its condition, epsilon <= c1 K S / M^2, excludes all "
        "three, its constant c is not given (1 here, and 9 beside it), and it takes every inner step for a sampled release "
        "although the full gradient enters each unsampled. Noise that does give them is 7.6 to 24 times as large; leaving the "
        "theorem's range and c = 1 make most of it, the unsampled gradient a factor of 1.5 to 2.",
        variations=(
            Variation("30 iterations", ("iterations=30",)),
            Variation("another split", ("seed=6",)),
            _stochastic("S = 200", "algorithm.inner_steps=200"),
            _stochastic("S = 1000", "algorithm.inner_steps=1000"),
            _stochastic("rho = 0.05", "algorithm.rho=0.05"),
            _stochastic("rho = 0.5", "algorithm.rho=0.5"),
            _stochastic("step size 0.5", "algorithm.eta=0.5"),
            _stochastic("step size 2", "algorithm.eta=2.0"),
            Variation("45,222 records, without missing values", ("data.source=adult",)),
        ),
        varied=("runs=10",),
    )


FIGURES = (_figure(),)
