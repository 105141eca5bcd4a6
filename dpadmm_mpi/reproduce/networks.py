"""Beyond the papers: networks that lose messages, and what a run costs in seconds and bytes."""

from dpadmm_mpi.reproduce.figures import Figure
from dpadmm_mpi.reproduce.pictures import Panel

RATES = ("0", "0.1", "0.2", "0.3", "0.4", "0.5")


def _over_loss(title: str, measure: str, methods: tuple[str, ...], ending: str = "") -> Panel:
    curves = [(f"{method}{ending}, loss {rate}", method) for method in methods for rate in RATES]
    x = [float(rate) for _ in methods for rate in RATES]
    return Panel(title, measure, curves, x=x, x_title="share of the messages that are lost")


def _loss() -> Figure:
    return Figure(
        name="networks-loss",
        title="Lost messages: at epsilon = 1, and without noise",
        panels=[
            _over_loss("epsilon = 1: test error at the end", "test_error", ("ADMM", "R-ADMM", "MR-ADMM", "arc ADMM", "gossip")),
            _over_loss(
                "no noise: distance to the optimum, t = 60",
                "distance_to_optimum",
                ("ADMM", "R-ADMM", "arc ADMM"),
                ", no noise",
            ),
        ],
        quick=("runs=2",),
        columns=2,
        remark="Every message is lost by itself with one probability, and the receiver goes on with the last that has come; "
        "arc ADMM leaves what it keeps for that neighbour as it is. Nothing is proven about the others under loss. Lost "
        "messages count in every account: an eavesdropper has heard them. R-ADMM and MR-ADMM have 25 data steps and 25 "
        "recycled ones, so twice the messages of ADMM and arc ADMM with 25 data steps; gossip has 50 gradients. Settings are "
        "those of [R] Fig. 5, and defaults; nothing was tuned.",
    )  # fmt: skip


CURVES = ("ADMM", "R-ADMM", "gossip", "PS-ADMM, star")


def _time() -> Figure:
    def over(title: str, axis: str, network: str) -> Panel:
        return Panel(
            title, "test_error", [(f"{name}, {network}", name) for name in CURVES], over=axis, log_x=True, y_range=(0.15, 0.27)
        )

    return Figure(
        name="networks-time",
        title="What a run takes at epsilon = 5: recycling or not, network or star",
        panels=[
            over("slow links: 100 ms latency", "virtual time", "slow links"),
            over("slow machines: 10 us per record and pass", "virtual time", "slow machines"),
            over("bytes", "bytes", "slow links"),
        ],
        quick=("runs=2",),
        remark="Virtual time of synchronous rounds. Slow links: latency 100 ms, 1 MB/s, 0.1 us for a record in a pass. Slow "
        "machines: latency 1 ms, 1 MB/s, 10 us. An exact solve counts as 10 passes, an SVRG step of PS-ADMM as two records. "
        "Around a server every iteration has two exchanges; a server's link has no limit of its own. Settings are those of [R] "
        "Fig. 5 and [S], and defaults; nothing was tuned, for speed neither.",
    )  # fmt: skip


FIGURES = (_loss(), _time())
