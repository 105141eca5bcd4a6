"""Which keys a choice takes, with which defaults (but for m-admm's theta, which depends on eta), and what goes together."""

from typing import Any

import msgspec

from dpadmm_mpi.config.options import (
    CURATED,
    DECENTRALISED,
    FILE_SOURCES,
    GAUSSIAN,
    HUB,
    NAMED_SOURCES,
    PRIVATE,
    STAR,
    Config,
    Geometric,
    Privacy,
)  # fmt: skip
from dpadmm_mpi.errors import InputError


class _Required:
    """Marks a key that its choice cannot do without."""


REQUIRED = _Required()

_SVRG = ("s-admm", "ps-admm")
_ACCELERATED = ("gl-acc-admm", "dp-acc-admm")

# section.key -> the key that selects, and for each choice that takes the key its default there. One table, in this
# order, refuses keys without meaning, fills in defaults, and tells which inherited keys a variant leaves behind.
CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "data.sizes": ("data.split", {"sizes": REQUIRED}),
    "data.concentration": ("data.split", {"uneven": 1.0}),
    "data.skew": ("data.split", {"by-label": 0.5}),
    "data.path": ("data.source", dict.fromkeys(FILE_SOURCES, REQUIRED)),
    "data.test_path": ("data.source", dict.fromkeys(FILE_SOURCES)),
    "data.preprocess": ("data.source", dict.fromkeys((*FILE_SOURCES, *NAMED_SOURCES))),
    "data.positive": ("data.source", dict.fromkeys(FILE_SOURCES)),
    "data.categorical": ("data.source", {"csv": None}),
    "data.label": ("data.source", {"csv": "label"}),
    "data.records": ("data.source", {"synthetic": 10_000}),
    "data.features": ("data.source", {"synthetic": 105, "libsvm": None}),
    "network.graph": ("algorithm.method", dict.fromkeys(DECENTRALISED, "ring")),
    "network.degree": ("network.graph", {"regular": 4, "small-world": 4, "scale-free": 2}),
    "network.probability": ("network.graph", {"random": 0.5}),
    "network.rewiring": ("network.graph", {"small-world": 0.1}),
    "network.path": ("network.graph", {"edges": REQUIRED}),
    "problem.width": ("problem.loss", {"huber": 0.5}),
    "problem.C": ("algorithm.method", dict.fromkeys(DECENTRALISED, 1.0)),
    "problem.rho": ("algorithm.method", dict.fromkeys(DECENTRALISED, 0.01)),
    "problem.reg": ("algorithm.method", dict.fromkeys(STAR, 1e-4)),
    "problem.lambda1": ("algorithm.method", dict.fromkeys(CURATED, 1e-5)),
    "problem.regulariser": ("algorithm.method", dict.fromkeys(CURATED, "l1")),
    "problem.map": ("algorithm.method", dict.fromkeys(CURATED, "identity")),
    "problem.map_path": ("problem.map", {"file": REQUIRED}),
    "problem.sparsity": ("problem.map", {"graphical-lasso": 0.3}),
    "algorithm.eta": (
        "algorithm.method",
        dict.fromkeys(DECENTRALISED, 1.0) | dict.fromkeys((*_SVRG, *CURATED), "auto"),
    ),
    "algorithm.theta": ("algorithm.method", {"m-admm": None, "mr-admm": None}),
    "algorithm.gamma": ("algorithm.method", {"r-admm": 0.5, "mr-admm": 0.5} | dict.fromkeys(CURATED, "auto")),
    "algorithm.rho": ("algorithm.method", dict.fromkeys(HUB, 1.0)),
    "algorithm.inner_steps": ("algorithm.method", dict.fromkeys(_SVRG, 100)),
    "algorithm.averaging": ("algorithm.method", dict.fromkeys(_SVRG, "uniform")),
    "algorithm.u0": ("algorithm.method", dict.fromkeys(CURATED, "zero")),
    "algorithm.restart": ("algorithm.method", dict.fromkeys(_ACCELERATED, False)),
    "algorithm.init": ("algorithm.method", dict.fromkeys(DECENTRALISED, "random") | dict.fromkeys(HUB, "zero")),
    "privacy.perturbation": (
        "algorithm.method",
        dict.fromkeys((*DECENTRALISED, *HUB), "none") | dict.fromkeys(GAUSSIAN, "gaussian"),
    ),
    "privacy.alpha": ("privacy.perturbation", dict.fromkeys(PRIVATE)),
    "privacy.noise_std": ("privacy.perturbation", {"gaussian": None}),
    "privacy.target": ("privacy.perturbation", dict.fromkeys((*PRIVATE, "gaussian"))),
    "privacy.target_account": ("privacy.perturbation", dict.fromkeys((*PRIVATE, "gaussian"))),
    "privacy.allow_unproven": ("privacy.perturbation", dict.fromkeys(("dual", "penalty", "objective"), False)),
}


def perturbations(method: str) -> tuple[str, ...]:
    """Those that a method takes."""
    if method in DECENTRALISED:
        return ("none", *PRIVATE)
    return ("none", "gaussian") if method in GAUSSIAN else ("none",)


def resolve(config: Config) -> Config:
    """Refuse keys that the choices made give no meaning to, and fill in the defaults that they bring."""
    if config.algorithm.method in HUB and config.network.graph == "star":  # what it is anyway
        config = _with(config, "network.graph", None)
    if config.privacy.allow_unproven is False:  # likewise
        config = _with(config, "privacy.allow_unproven", None)
    for path, (selector, takers) in CHOICES.items():
        choice = _get(config, selector)
        given = _get(config, path)
        if given is not None and choice not in takers:
            raise InputError(_without_meaning(config, path))
        if given is None and choice in takers:
            if takers[choice] is REQUIRED:
                raise InputError(f'{path}: missing; {selector} = "{choice}" needs it')
            config = _with(config, path, takers[choice])
    if config.privacy.target is not None and config.privacy.target_account is None:
        account = "sound" if config.privacy.perturbation == "gaussian" else "bound"
        config = _with(config, "privacy.target_account", account)
    if config.network.nodes is None and config.network.graph != "edges":
        config = _with(config, "network.nodes", 5)
    return config


def _without_meaning(config: Config, path: str) -> str:
    selector, takers = CHOICES[path]
    if (choice := _get(config, selector)) is not None:
        return f'{path}: has no meaning for {selector} = "{choice}"; remove it or choose {_one_of(list(takers))}'
    selector = CHOICES[selector][0]  # which gives the selecting key itself no meaning
    return f'{path}: has no meaning for {selector} = "{_get(config, selector)}"; remove it'


def _get(config: Config, path: str) -> Any:
    section, key = path.split(".")
    return getattr(getattr(config, section), key)


def _with(config: Config, path: str, value: Any) -> Config:
    section, key = path.split(".")
    changed = msgspec.structs.replace(getattr(config, section), **{key: value})
    return msgspec.structs.replace(config, **{section: changed})


def _one_of(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else names[0]


def check(config: Config) -> None:
    data = config.data
    _check_privacy(config)
    for path in ("algorithm.eta", "algorithm.theta"):
        if _lacks_first(_get(config, path)):
            raise InputError(f"{path}: the geometric schedule needs its first value, as {{ first = 1.0, ratio = 1.01 }}")
    _check_steps(config)
    if data.sizes is not None and isinstance(data.train, int) and sum(data.sizes) != data.train:
        raise InputError(f"data.sizes: they add up to {sum(data.sizes)}, but data.train = {data.train}; make them agree")
    if config.record.trajectory and config.record.every != 1:
        raise InputError("record.every: must be 1 with record.trajectory = true, which keeps every released vector")


def _check_privacy(config: Config) -> None:
    privacy, method = config.privacy, config.algorithm.method
    if privacy.perturbation not in perturbations(method):
        fit = _one_of(list(perturbations(method)))
        raise InputError(f'privacy.perturbation: "{privacy.perturbation}" does not go with {method}, which takes {fit}')
    if privacy.perturbation == "gaussian":
        if (privacy.noise_std is None) == (privacy.target is None):
            raise InputError(
                f"privacy.target: {method} needs one of privacy.target, an epsilon that the noise is calibrated to, and "
                'privacy.noise_std (or perturbation = "none")'
            )
        accounts: tuple[str, ...] = ("sound", "paper")
    else:
        accounts = ("bound", "tight", "epsilon")
        if privacy.perturbation != "none":
            _check_alpha(privacy)
    if privacy.target is None and privacy.target_account is not None:
        raise InputError("privacy.target_account: has no meaning without privacy.target; give a target or remove it")
    if privacy.target is not None and privacy.target_account not in accounts:
        raise InputError(f'privacy.target_account: found "{privacy.target_account}"; {method} has {_one_of(list(accounts))}')


def _check_alpha(privacy: Privacy) -> None:
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


def _check_steps(config: Config) -> None:
    """What eta and gamma may be: schedules of penalties, or one step size, which may be found automatically."""
    algorithm = config.algorithm
    if algorithm.method in HUB:
        if algorithm.eta is not None and not isinstance(algorithm.eta, int | float | str):
            raise InputError(f'algorithm.eta: {algorithm.method} takes one step size, a number or "auto"')
    else:
        for key in ("eta", "gamma"):
            if getattr(algorithm, key) == "auto":
                raise InputError(f'algorithm.{key}: "auto" has no meaning for {algorithm.method}; give a number')


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
