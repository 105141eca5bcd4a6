"""The figures of [R], and the comparison of its slides [Rs]."""

from dpadmm_mpi.reproduce.figures import Figure, Variation
from dpadmm_mpi.reproduce.pictures import Panel

QUICK = ("runs=3",)  # fewer records would put the targets out of reach: the determinants cost more with fewer of them
FEWER = ("data.train=10000", "runs=3")
GAMMAS = ("0", "0.5", "1", "5")
PRIVATE_GAMMAS = ("0.1", "0.5", "1", "2")
GROWTH = ("1.01", "1.02", "1.03", "1.04", "1.05")
RHO = (0.001, 0.01, 0.05, 0.1, 0.22, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0)
SEEDS = range(8, 18)
METHODS = ("MR-ADMM", "R-ADMM", "M-ADMM", "ADMM (DVP)")
NETWORKS = (
    Variation("complete graph", ("network.graph=complete",)),
    Variation("ring", ("network.graph=ring",)),
    Variation("another graph and split", ("seed=6",)),
)
GAMMA = Variation("gamma = 1", ("algorithm.gamma=1.0",))
TEN_RUNS = ("runs=10",)


def _growth_of_m_admm(ratio: float) -> Variation:
    penalty = f"algorithm.eta={{ first = 1.0, ratio = {ratio} }}"
    return Variation(f"M-ADMM's penalty {ratio}^(t-1)", of_some={"M-ADMM, *": (penalty,)})


def _fig1a() -> Figure:
    def curves(n: int) -> list[tuple[str, str]]:
        return [(f"ADMM, N={n}", "ADMM"), *((f"R-ADMM, N={n}, gamma {g}", f"R-ADMM, gamma {g}") for g in GAMMAS)]

    return Figure(
        name="recycled-fig1a",
        title="[R] Fig. 1(a): R-ADMM without noise, several gamma, 5 and 20 nodes",
        panels=[
            Panel("loss, 5 nodes", "loss", curves(5)),
            Panel("loss, 20 nodes", "loss", curves(20)),
            Panel("distance to the optimum, 5 nodes", "distance_to_optimum", curves(5), log_y=True),
            Panel("distance to the optimum, 20 nodes", "distance_to_optimum", curves(20), log_y=True),
        ],
        quick=("data.train=35000", "runs=3"),
        columns=2,
        variations=NETWORKS[:2],
    )


def _own_penalties() -> Figure:
    curves = [(name, name) for name in ("R-ADMM", *(f"MR-ADMM, m {m}" for m in range(1, 6)))]
    return Figure(
        name="recycled-fig1b",
        title="[R] Fig. 1(b): MR-ADMM without noise, every node its own growing penalty",
        panels=[
            Panel("loss", "loss", curves),
            Panel("consensus error", "consensus_error", curves, log_y=True),
            Panel("distance to the optimum", "distance_to_optimum", curves, log_y=True),
        ],
        quick=FEWER,
        remark="As printed every node's dual step is its own penalty. The duals then do not add up to zero, and the nodes "
        "agree away from the optimum; with records dealt at random that is too little to be seen here. "
        "[Elsewhere](#dual-steps) it can be. What is seen here is that a penalty that grows without a limit stops the "
        "nodes before they are there.",
        variations=(*NETWORKS, GAMMA),
    )


def _one_penalty() -> Figure:
    curves = [(name, name) for name in ("R-ADMM", *(f"MR-ADMM, q1 {q}" for q in (*GROWTH, "1.05 up to 2")))]
    return Figure(
        name="recycled-fig1c",
        title="[R] Fig. 1(c): MR-ADMM without noise, one growing penalty q1^k for all nodes",
        panels=[
            Panel("loss", "loss", curves),
            Panel("consensus error", "consensus_error", curves, log_y=True),
            Panel("distance to the optimum", "distance_to_optimum", curves, log_y=True),
        ],
        quick=FEWER,
        variations=(*NETWORKS, GAMMA),
    )


def _rho() -> Figure:
    points = [(f"recycled-fig2, seed={seed}, rho={rho}", f"split {seed}") for seed in SEEDS for rho in RHO]
    x = [rho for _ in SEEDS for rho in RHO]
    return Figure(
        name="recycled-fig2",
        title="[R] Fig. 2: test error of ADMM after 50 iterations over rho, C = 1750",
        panels=[
            Panel("test error at t = 50, ten splits", "test_error", points, x=x, x_title="rho", log_x=True),
            Panel("loss at t = 50, ten splits", "loss", points, x=x, x_title="rho", log_x=True),
        ],
        quick=("data.train=10000",),
        columns=2,
        remark="Differences are paired by split; with 5,222 test records the standard error of a single test error is 0.5 %.",
        variations=NETWORKS[:2],
    )


def _gamma() -> Figure:
    def curves(alpha: str) -> list[tuple[str, str]]:
        return [("non-private", "non-private"), *((f"alpha {alpha}, gamma {g}", f"gamma {g}") for g in PRIVATE_GAMMAS)]

    ends = [(f"alpha {a}, gamma {g}", f"alpha = {a}") for a in ("2", "1") for g in PRIVATE_GAMMAS]
    x = [float(g) for _ in ("2", "1") for g in PRIVATE_GAMMAS]
    return Figure(
        name="recycled-fig3",
        title="[R] Fig. 3: the effect of gamma on private MR-ADMM",
        panels=[
            Panel("loss, alpha = 2", "loss", curves("2")),
            Panel("loss, alpha = 1", "loss", curves("1")),
            Panel("test error at t = 50", "test_error", ends, x=x, x_title="gamma", log_x=True),
        ],
        quick=QUICK,
        variations=NETWORKS,
        varied=TEN_RUNS,
    )


def _growth() -> Figure:
    def curves(alpha: str) -> list[tuple[str, str]]:
        return [("non-private", "non-private"), *((f"alpha {alpha}, q1 {q}", f"q1 {q}") for q in GROWTH)]

    ends = [(f"alpha {a}, q1 {q}", f"alpha = {a}") for a in ("2", "1") for q in GROWTH]
    x = [float(q) for _ in ("2", "1") for q in GROWTH]
    return Figure(
        name="recycled-fig4",
        title="[R] Fig. 4: the effect of the penalty's growth on private MR-ADMM",
        panels=[
            Panel("loss, alpha = 2", "loss", curves("2")),
            Panel("loss, alpha = 1", "loss", curves("1")),
            Panel("test error at t = 50", "test_error", ends, x=x, x_title="q1"),
            Panel("P(t), alpha = 2", "privacy/bound", curves("2")[1:]),
            Panel("P(t), alpha = 1", "privacy/bound", curves("1")[1:]),
        ],
        quick=QUICK,
        variations=NETWORKS,
        varied=TEN_RUNS,
    )


def _over_time(graph: str, alphas: tuple[str, ...], title: str, measure: str) -> list[Panel]:
    """A panel for each alpha; privacy has no curve without noise."""
    free = [] if measure.startswith("privacy/") else [("non-private", "non-private")]
    return [
        Panel(f"{title}, alpha = {a}{graph}", measure, [*((f"{m}, alpha {a}{graph}", m) for m in METHODS), *free])
        for a in alphas
    ]


def _at_the_end(graph: str, alphas: tuple[str, ...], title: str, measure: str, log_y: bool = False) -> Panel:
    ends = [(f"{method}, alpha {a}{graph}", method) for method in METHODS for a in alphas]
    ends += [("non-private", "non-private") for _ in alphas]
    x = [float(a) for _ in (*METHODS, "non-private") for a in alphas]
    return Panel(f"{title}{graph}", measure, ends, x=x, x_title="alpha of R-ADMM", log_x=True, log_y=log_y)


def _fig5() -> Figure:
    alphas, complete = ("2", "1", "0.5"), ", complete"
    return Figure(
        name="recycled-fig5",
        title="[R] Fig. 5: ADMM (DVP), M-ADMM, R-ADMM and MR-ADMM at equal total privacy loss",
        panels=[
            *_over_time("", alphas, "loss", "loss"),
            *_over_time(complete, alphas, "loss", "loss"),
            *_over_time("", alphas, "P(t)", "privacy/bound"),
            *_over_time("", alphas, "epsilon(t) at delta = 1e-5", "privacy/epsilon"),
            _at_the_end("", alphas, "test error at t = 50", "test_error"),
            _at_the_end(complete, alphas, "test error at t = 50", "test_error"),
            _at_the_end("", alphas, "loss at t = 50", "loss", log_y=True),
        ],
        quick=QUICK,
        remark="The paper does not give the graph. On the sparse one ADMM (DVP) leaves the printed axes, on the complete one "
        "it does not: there its noise is spread over more neighbours. The order of the methods is judged on both.",
        variations=(
            Variation("another graph and split", ("seed=6",)),
            _growth_of_m_admm(1.01),
            _growth_of_m_admm(1.04),
        ),
        varied=TEN_RUNS,
    )


def _slides() -> Figure:
    alphas = ("4", "2")
    return Figure(
        name="recycled-slides",
        title="[Rs]: the comparison of Fig. 5 with alpha = 4 and 2",
        panels=[
            *_over_time("", alphas, "loss", "loss"),
            *_over_time("", alphas, "P(t)", "privacy/bound"),
            _at_the_end("", alphas, "test error at t = 50", "test_error"),
            _at_the_end("", alphas, "loss at t = 50", "loss", log_y=True),
        ],
        quick=QUICK,
        columns=2,
        variations=(*NETWORKS, _growth_of_m_admm(1.01), _growth_of_m_admm(1.04)),
        varied=TEN_RUNS,
    )


def _other_settings() -> Figure:
    output = [(f"{m}, output noise", m) for m in ("MR-ADMM", "R-ADMM", "M-ADMM", "ADMM")]
    own = [(f"{m}, per node", m.removesuffix(" (DVP)")) for m in METHODS]
    free = [("non-private", "non-private")]
    return Figure(
        name="recycled-other",
        title="[R] VII.B and VIII.B: Fig. 5 (alpha = 1) with noise on the output, and with alpha and eta of each node's own",
        panels=[
            Panel("loss, noise on the output", "loss", [*output, *free]),
            Panel("test error, noise on the output", "test_error", [*output, *free]),
            Panel("loss, own alpha and eta", "loss", [*own, *free]),
            Panel("test error, own alpha and eta", "test_error", [*own, *free]),
        ],
        quick=QUICK,
        columns=2,
        variations=(Variation("another graph and split", ("seed=6",)),),
        varied=TEN_RUNS,
    )


def _growing_gamma() -> Figure:
    def curves(alpha: str) -> list[tuple[str, str]]:
        return [(f"{method}, alpha {alpha}", method) for method in ("R-ADMM", "eta grows", "eta and gamma grow")]

    alphas = ("4", "2")
    return Figure(
        name="recycled-gamma",
        title="[Rs]: eta and gamma that grow over the iterations",
        panels=[
            *(Panel(f"loss, alpha = {a}", "loss", curves(a)) for a in alphas),
            *(Panel(f"test error, alpha = {a}", "test_error", curves(a)) for a in alphas),
        ],
        quick=QUICK,
        columns=2,
        variations=(
            *NETWORKS,
            Variation(
                "gamma grows by 1.2",
                of_some={"eta and gamma grow, *": ("algorithm.gamma={ first = 0.5, ratio = 1.2 }",)},
            ),
        ),
        varied=TEN_RUNS,
    )


FIGURES = (
    _fig1a(),
    _own_penalties(),
    _one_penalty(),
    _rho(),
    _gamma(),
    _growth(),
    _fig5(),
    _other_settings(),
    _slides(),
    _growing_gamma(),
)
