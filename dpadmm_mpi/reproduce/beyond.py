"""Beyond the papers: what they do not show."""

from dpadmm_mpi.reproduce.figures import Figure, Variation
from dpadmm_mpi.reproduce.pictures import Panel
from dpadmm_mpi.reproduce.recycled import NETWORKS


def _dual_steps() -> Figure:
    names = ("MR-ADMM as printed", "M-ADMM, theta of each node", "MR-ADMM, one theta", "M-ADMM, one theta")
    curves = [(name, name) for name in names]
    return Figure(
        name="dual-steps",
        title="Dual steps that differ between the nodes lead away from the optimum",
        panels=[
            Panel("consensus error", "consensus_error", curves, log_y=True),
            Panel("distance to the optimum", "distance_to_optimum", curves, log_y=True),
        ],
        quick=("data.train=10000", "runs=2"),
        columns=2,
        remark="The duals add up to zero only if every node takes the same dual step; otherwise the gradients do not add up to "
        "zero in the limit. One theta for all, here the smallest penalty, mends it, also with recycled steps.",
        variations=(
            *NETWORKS,
            Variation("skew 0.5", ("data.skew=0.5",)),
            Variation("MR-ADMM with gamma = 1", of_some={"MR-ADMM*": ("algorithm.gamma=1.0",)}),
            Variation("one theta, 0.4", of_some={"*, one theta": ("algorithm.theta=0.4",)}),
        ),
    )


TARGETS = ("1", "2", "5", "10")
LOCAL = ("ADMM (DVP)", "M-ADMM (PP)", "R-ADMM", "MR-ADMM", "MR-ADMM, output noise", "PS-ADMM")
TRUSTED = ("DP-ADMM", "DP-AccADMM")
WITH_A_GRAPH = ("non-private", *(f"{method}, *" for method in LOCAL[:-1]))


def _frontier() -> Figure:
    methods = (*LOCAL, *TRUSTED)
    curves = [(f"{method}, epsilon {e}", method) for method in methods for e in TARGETS]
    curves += [("non-private", "non-private") for _ in TARGETS]
    x = [float(e) for _ in (*methods, "non-private") for e in TARGETS]
    title = "epsilon at delta = 1e-5"
    return Figure(
        name="frontier",
        title="All methods at the same (epsilon, delta): the privacy-accuracy frontier on Adult",
        panels=[
            Panel("test error at t = 50", "test_error", curves, x=x, x_title=title, log_x=True),
            Panel("loss at t = 50", "loss", curves, x=x, x_title=title, log_x=True, log_y=True),
        ],
        quick=("runs=2",),
        columns=2,
        remark="Every epsilon is that of a proven account of everything a method releases: the account of the random loss for "
        "the decentralised methods, `sound` for the others. DP-ADMM and DP-AccADMM trust a curator with all 40,000 records, "
        "and their noise protects one of 40,000; the others protect one of a node's 8,000 from everybody. "
        "After 50 gradient steps DP-ADMM has not converged, and DP-AccADMM not quite: that limits them, not noise.",
        variations=(
            Variation("complete graph", of_some=dict.fromkeys(WITH_A_GRAPH, ("network.graph=complete",))),
            Variation("another graph and split", ("seed=6",)),
            Variation("delta = 1e-7", ("privacy.delta=1e-7",)),
        ),
    )


FIGURES = (_dual_steps(), _frontier())
