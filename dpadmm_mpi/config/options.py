"""The configuration: typed and frozen. What a choice takes, and with which default, is in choices.py.

`Config` is one experiment. Checking what a user wrote is parsing.py's business; reading TOML files, variants, sweeps and
`--set` is configfile.py's.
"""

import hashlib
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0)]
Moderate = Annotated[float, Meta(ge=1e-30, le=1e30)]  # its squares and what is made of them stay numbers
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]


class Geometric(Struct, frozen=True, forbid_unknown_fields=True):
    """first * ratio**(k-1) in the k-th data step. `first` is left out where calibration finds it."""

    ratio: Positive
    first: Positive | None = None


# One value, a geometric law, a list over data steps, or a list over nodes of these; see schedules.py.
Schedule = Positive | Geometric | list[Positive | Geometric | list[Positive]]

FileSource = Literal["npz", "csv", "libsvm", "hdf5"]
NamedSource = Literal["adult", "a9a", "a8a", "ijcnn1", "bio_train"]
Graph = Literal[
    "ring", "path", "complete", "star", "grid", "random", "regular", "small-world", "scale-free", "edges"
]  # fmt: skip
DecentralisedName = Literal["admm", "m-admm", "r-admm", "mr-admm"]
StarName = Literal["star-admm", "s-admm", "ps-admm"]
CuratedName = Literal["gl-admm", "gl-acc-admm", "dp-admm", "dp-acc-admm"]
PerturbationName = Literal["none", "dual", "penalty", "objective", "primal", "gaussian"]
Auto = Literal["auto"]
Step = Literal["drop-missing", "one-hot", "scale-columns", "scale-rows"]

FILE_SOURCES = get_args(FileSource)
NAMED_SOURCES = get_args(NamedSource)
SCHEDULES = ("algorithm.eta", "algorithm.theta", "privacy.alpha")
DEFAULT_TRAIN = 0.8  # of the records, where no test file is given
PRIVATE = ("dual", "penalty", "objective", "primal")
DECENTRALISED = get_args(DecentralisedName)
STAR = get_args(StarName)
CURATED = get_args(CuratedName)
HUB = (*STAR, *CURATED)  # a server or curator in the middle, every node talks to it alone
GAUSSIAN = ("ps-admm", "dp-admm", "dp-acc-admm")  # methods whose definition has Gaussian noise


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    source: NamedSource | FileSource | Literal["synthetic"] = "synthetic"
    train: Count | Fraction | None = None  # records for training, a count or a fraction; the rest is for testing
    split: Literal["even", "uneven", "by-label", "sizes"] = "even"
    sizes: list[Count] | None = None  # records of each node
    concentration: Positive | None = None  # of the Dirichlet law of the sizes; smaller is more uneven
    skew: Annotated[float, Meta(ge=0, le=1)] | None = None  # share of each shard that is dealt in order of the labels
    path: str | None = None
    test_path: str | None = None
    label: str | None = None  # the label's column in a csv file with a header
    positive: str | int | float | None = None  # the label that means +1, where the labels are not -1 and +1
    categorical: list[str] | None = None  # csv columns that are categories although they look like numbers
    preprocess: list[Step] | None = None  # in this order
    records: Count | None = None
    features: Count | None = None


class Network(Struct, frozen=True, forbid_unknown_fields=True):
    graph: Graph | None = None
    nodes: Count | None = None
    degree: Count | None = None  # of a regular graph; neighbours in a small world; links of a new node in a scale-free one
    probability: Fraction | None = None  # of each edge of a random graph
    rewiring: Annotated[float, Meta(ge=0, le=1)] | None = None  # probability, of a small world's edges
    path: str | None = None


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    loss: Literal["logistic", "huber"] = "logistic"
    width: Positive | None = None  # h of the Huber-smoothed hinge
    C: Positive | None = None
    rho: Positive | None = None
    reg: NonNegative | None = None  # star: g(z) = reg ||z||^2
    lambda1: NonNegative | None = None  # curated: weight of the term in A f
    regulariser: Literal["l1", "l2"] | None = None  # lambda1 ||w||_1, or lambda1 ||w||^2 / 2
    map: Literal["graphical-lasso", "identity", "file"] | None = None  # A = [W; I] | I | from a file
    map_path: str | None = None
    sparsity: Positive | None = None  # penalty of the graphical lasso that gives W


class Algorithm(Struct, frozen=True, forbid_unknown_fields=True):
    method: DecentralisedName | StarName | CuratedName = "admm"
    eta: Schedule | Auto | None = None  # decentralised: penalty; star and curated: step size
    theta: Schedule | None = None
    gamma: NonNegative | Auto | None = None
    rho: Positive | None = None  # star and curated: penalty
    inner_steps: Count | None = None  # S of the stochastic methods
    averaging: Literal["uniform", "extrapolated"] | None = None  # of the inner iterates; the papers' is extrapolated
    u0: Literal["zero", "as-printed"] | None = None
    restart: bool | None = None  # of the momentum, when the residual grows
    init: Literal["random", "zero"] | None = None


class Privacy(Struct, frozen=True, forbid_unknown_fields=True):
    perturbation: PerturbationName | None = None
    alpha: Schedule | None = None
    noise_std: Moderate | None = None  # gaussian: standard deviation of the noise on a gradient
    target: Moderate | None = None  # total privacy of the worst node, which the noise is calibrated to
    target_account: Literal["bound", "tight", "epsilon", "paper", "sound"] | None = None  # what the target is a value of
    delta: Annotated[float, Meta(ge=1e-30, lt=1)] = 1e-5
    allow_unproven: bool | None = None  # run although the theorem's condition fails; the bound is then marked not proven


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    every: Count = 1
    trajectory: bool = False
    checkpoint: Count = 50  # iterations after which the log is on disk, and a checkpoint due
    optimum: bool = False  # solve the centralised problem too and record the distance to it


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)] = "run"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    runs: Count = 1
    iterations: Count = 50
    data: Data = Data()
    network: Network = Network()
    problem: Problem = Problem()
    algorithm: Algorithm = Algorithm()
    privacy: Privacy = Privacy()
    record: Record = Record()


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML text; parsing it gives the same configuration."""
    import tomli_w

    return tomli_w.dumps(_without_none(msgspec.to_builtins(config)))


def fingerprint(config: Config) -> str:
    return hashlib.sha256(to_toml(config).encode()).hexdigest()


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value
