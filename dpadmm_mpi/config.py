"""The configuration: typed, frozen, strict. Defaults live here (but for m-admm's theta, which depends on eta: plan.py).

`Config` is one experiment. Reading TOML files, variants, sweeps and `--set` is configfile.py's business.
"""

import hashlib
import math
import re
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from dpadmm_mpi.errors import InputError

Positive = Annotated[float, Meta(gt=0)]
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
MethodName = Literal["admm", "m-admm", "r-admm", "mr-admm"]
PerturbationName = Literal["none", "dual", "penalty", "objective", "primal"]
Step = Literal["drop-missing", "one-hot", "scale-columns", "scale-rows"]

FILE_SOURCES = get_args(FileSource)
NAMED_SOURCES = get_args(NamedSource)
SCHEDULES = ("algorithm.eta", "algorithm.theta", "privacy.alpha")
DEFAULT_TRAIN = 0.8  # of the records, where no test file is given
PRIVATE = ("dual", "penalty", "objective", "primal")


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
    graph: Graph = "ring"
    nodes: Count | None = None
    degree: Count | None = None  # of a regular graph; neighbours in a small world; links of a new node in a scale-free one
    probability: Fraction | None = None  # of each edge of a random graph
    rewiring: Annotated[float, Meta(ge=0, le=1)] | None = None  # probability, of a small world's edges
    path: str | None = None


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    loss: Literal["logistic", "huber"] = "logistic"
    width: Positive | None = None  # h of the Huber-smoothed hinge
    C: Positive = 1.0
    rho: Positive = 0.01


class Algorithm(Struct, frozen=True, forbid_unknown_fields=True):
    method: MethodName = "admm"
    eta: Schedule = 1.0
    theta: Schedule | None = None
    gamma: NonNegative | None = None
    init: Literal["random", "zero"] = "random"


class Privacy(Struct, frozen=True, forbid_unknown_fields=True):
    perturbation: PerturbationName = "none"
    alpha: Schedule | None = None
    target: Positive | None = None  # total privacy of the worst node; alpha is then calibrated
    target_account: Literal["bound", "tight", "epsilon"] | None = None  # what the target is a value of
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    allow_unproven: bool = False  # run although the theorem's condition fails; the bound is then marked not proven


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    every: Count = 1
    trajectory: bool = False
    checkpoint: Count = 50  # iterations after which the log is on disk at the latest
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


class _Required:
    """Marks a key that its choice cannot do without."""


REQUIRED = _Required()

# section.key -> the sibling key that selects, and for each choice that takes the key its default there. One table
# refuses keys without meaning, fills in defaults, and tells which inherited keys a variant leaves behind.
CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "data.sizes": ("split", {"sizes": REQUIRED}),
    "data.concentration": ("split", {"uneven": 1.0}),
    "data.skew": ("split", {"by-label": 0.5}),
    "data.path": ("source", dict.fromkeys(FILE_SOURCES, REQUIRED)),
    "data.test_path": ("source", dict.fromkeys(FILE_SOURCES)),
    "data.preprocess": ("source", dict.fromkeys((*FILE_SOURCES, *NAMED_SOURCES))),
    "data.positive": ("source", dict.fromkeys(FILE_SOURCES)),
    "data.categorical": ("source", {"csv": None}),
    "data.label": ("source", {"csv": "label"}),
    "data.records": ("source", {"synthetic": 10_000}),
    "data.features": ("source", {"synthetic": 105, "libsvm": None}),
    "network.degree": ("graph", {"regular": 4, "small-world": 4, "scale-free": 2}),
    "network.probability": ("graph", {"random": 0.5}),
    "network.rewiring": ("graph", {"small-world": 0.1}),
    "network.path": ("graph", {"edges": REQUIRED}),
    "problem.width": ("loss", {"huber": 0.5}),
    "algorithm.theta": ("method", {"m-admm": None, "mr-admm": None}),
    "algorithm.gamma": ("method", {"r-admm": 0.5, "mr-admm": 0.5}),
    "privacy.alpha": ("perturbation", dict.fromkeys(PRIVATE)),
    "privacy.target": ("perturbation", dict.fromkeys(PRIVATE)),
}


def parse(raw: dict[str, Any]) -> Config:
    """A checked configuration, every default filled in, from plain dictionaries; InputError with the key otherwise."""
    raw = _with_sizes_as_split(raw)
    _refuse_unknown_keys(raw, Config, "")
    _refuse_non_finite(raw, "")
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise InputError(_explain(str(error), raw)) from None
    config = _resolve_choices(config)
    _check_combinations(config)
    return config


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML text; parsing it gives the same configuration."""
    import tomli_w

    return tomli_w.dumps(_without_none(msgspec.to_builtins(config)))


def fingerprint(config: Config) -> str:
    return hashlib.sha256(to_toml(config).encode()).hexdigest()


def _with_sizes_as_split(raw: dict[str, Any]) -> dict[str, Any]:
    """`sizes = [...]` alone says which split is meant."""
    data = raw.get("data")
    if isinstance(data, dict) and "sizes" in data and "split" not in data:
        return {**raw, "data": {**data, "split": "sizes"}}
    return raw


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def _section_types() -> dict[str, type[Struct]]:
    return {f.name: f.type for f in msgspec.structs.fields(Config) if isinstance(f.type, type) and issubclass(f.type, Struct)}


def _refuse_unknown_keys(raw: dict[str, Any], kind: type[Struct], prefix: str) -> None:
    known = [field.name for field in msgspec.structs.fields(kind)]
    for key, value in raw.items():
        if key not in known:
            raise InputError(f"{prefix}{key}: unknown key; {_nearest_key(key, known, prefix)}")
        inner = _section_types().get(key) if kind is Config else None
        if f"{prefix}{key}" in SCHEDULES:
            inner = Geometric
        if inner is not None:
            for index, part in _tables(value):
                _refuse_unknown_keys(part, inner, f"{prefix}{key}{index}.")


def _tables(value: Any, index: str = "") -> list[tuple[str, dict[str, Any]]]:
    """The tables in a value and its lists, with their places."""
    if isinstance(value, list):
        return [found for k, part in enumerate(value) for found in _tables(part, f"{index}[{k}]")]
    return [(index, value)] if isinstance(value, dict) else []


def _nearest_key(key: str, known: list[str], prefix: str) -> str:
    if close := get_close_matches(key, known, n=1):
        return f'did you mean "{prefix}{close[0]}"?'
    for section, kind in _section_types().items():
        if key in (field.name for field in msgspec.structs.fields(kind)):
            return f'did you mean "{section}.{key}"?'
    return f"known here: {', '.join(known)}"


def _refuse_non_finite(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{path}: found {value}; a finite number is needed")


_PLAIN = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip


def _explain(message: str, raw: dict[str, Any]) -> str:
    """One sentence with the key's dotted path, what was found and what is allowed, from msgspec's message."""
    text, _, where = message.partition(" - at `$.")
    path = where.rstrip("`")
    found: Any = raw
    kind: Any = msgspec.inspect.type_info(Config)
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        found = found[int(index)] if index else found[name]
        if not index:  # a list keeps the kind of its key: its entries' kinds are looked at in _allowed
            kind = next((f.type for f in getattr(kind, "fields", ()) if f.name == name), None)
    if text.startswith("Invalid enum value") and (allowed := _allowed(kind)):
        close = get_close_matches(str(found), allowed, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        return f"{path}: found {_show(found)}; allowed: {', '.join(allowed)}{hint}"
    if missing := re.match(r"Object missing required field `(\w+)`", text):
        return f"{path}.{missing[1]}: missing; {path} needs it"
    text = re.sub(r", got .*", "", text).removeprefix("Expected ")
    text = re.sub(r"`([^`]*)`", lambda m: " or ".join(_PLAIN.get(part, part) for part in m[1].split(" | ")), text)
    return f"{path}: found {_show(found)}; expected {text.replace(' or nothing', '')}"


def _allowed(kind: Any) -> list[str]:
    kinds = getattr(kind, "types", (kind,))
    kinds = [getattr(k, "item_type", k) for k in kinds]
    return [str(value) for k in kinds for value in getattr(k, "values", ())]


def _show(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    return "a table" if isinstance(value, dict) else str(value)


def _resolve_choices(config: Config) -> Config:
    """Refuse keys that the choices made give no meaning to, and fill in the defaults that they bring."""
    for path, (selector, takers) in CHOICES.items():
        section_name, key = path.split(".")
        section = getattr(config, section_name)
        choice = getattr(section, selector)
        given = getattr(section, key)
        if given is not None and choice not in takers:
            raise InputError(
                f'{path}: has no meaning for {section_name}.{selector} = "{choice}"; remove it or choose '
                f"{_one_of(list(takers))}"
            )
        if given is None and choice in takers:
            if takers[choice] is REQUIRED:
                raise InputError(f'{path}: missing; {section_name}.{selector} = "{choice}" needs it')
            section = msgspec.structs.replace(section, **{key: takers[choice]})
            config = msgspec.structs.replace(config, **{section_name: section})
    if config.privacy.target is not None and config.privacy.target_account is None:
        config = msgspec.structs.replace(config, privacy=msgspec.structs.replace(config.privacy, target_account="bound"))
    if config.network.nodes is None and config.network.graph != "edges":
        config = msgspec.structs.replace(config, network=msgspec.structs.replace(config.network, nodes=5))
    return config


def _one_of(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else names[0]


def _check_combinations(config: Config) -> None:
    privacy, data = config.privacy, config.data
    if privacy.perturbation != "none":
        if privacy.target is None and (privacy.alpha is None or _lacks_first(privacy.alpha)):
            raise InputError(
                f'privacy.alpha: missing; perturbation = "{privacy.perturbation}" needs alpha with its first value, '
                "or privacy.target"
            )
        if privacy.target is not None and _has_size(privacy.alpha):
            raise InputError(
                "privacy.alpha and privacy.target: give one of them; with a target, alpha may only say how it grows, "
                "as { ratio = 1.01 }"
            )
    if privacy.target is None and privacy.target_account is not None:
        raise InputError("privacy.target_account: has no meaning without privacy.target; give a target or remove it")
    for path in ("algorithm.eta", "algorithm.theta"):
        if _lacks_first(getattr(config.algorithm, path.split(".")[1])):
            raise InputError(f"{path}: the geometric schedule needs its first value, as {{ first = 1.0, ratio = 1.01 }}")
    if data.sizes is not None and isinstance(data.train, int) and sum(data.sizes) != data.train:
        raise InputError(f"data.sizes: they add up to {sum(data.sizes)}, but data.train = {data.train}; make them agree")
    if config.record.trajectory and config.record.every != 1:
        raise InputError("record.every: must be 1 with record.trajectory = true, which keeps every released vector")


def _has_size(schedule: Any) -> bool:
    """Whether some part says how large it is, and not only how it grows."""
    if isinstance(schedule, list):
        return any(_has_size(part) for part in schedule)
    return schedule.first is not None if isinstance(schedule, Geometric) else schedule is not None


def _lacks_first(schedule: Any) -> bool:
    """Whether some geometric part leaves its first value to calibration."""
    if isinstance(schedule, Geometric):
        return schedule.first is None
    return isinstance(schedule, list) and any(_lacks_first(part) for part in schedule)
