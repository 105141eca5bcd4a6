"""From plain tables to configurations: what a configuration consists of, and what a variant inherits."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from dpadmm_mpi.config.extensions import Extension, used_by
from dpadmm_mpi.config.files import Experiment, Grammar, RawConfig, Setting, configurations, from_python, load_extensions
from dpadmm_mpi.config.options import Options
from dpadmm_mpi.config.reading import Ruling, Table, read_root
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.methods.base import Algorithm, Config, Method, methods
from dpadmm_mpi.privacy.perturbations import LEAVES_BEHIND, NOISE_KEYS, perturbations

DEFAULT_METHOD = "admm"


def parse(raw: Table, extensions: tuple[Extension, ...] = ()) -> Config:
    """A checked configuration, every default filled in, from plain tables.

    Parameters
    ----------
    raw : sections and keys, as TOML has them; neither variants nor a sweep
    extensions : files that were loaded for it

    Returns
    -------
    The configuration.

    Raises
    ------
    InputError
        An unknown key, a wrong type, an impossible value; the sentence names the key.

    Examples
    --------
    >>> import dpadmm_mpi as dp
    >>> dp.methods.parse({"algorithm": {"method": "r-admm"}, "network": {"nodes": 7}}).network.graph.size
    7
    """
    raw = _with_sizes_as_split(_with_a_method(_without_idle_words(raw)))
    config = read_root(Config, raw, "algorithm", _ruling_of)
    sections: list[Options] = [config.data, config.network, config.problem, config.algorithm, config.privacy, config.record]
    config.method.check_privacy(config.privacy.perturbation)
    config.method.check_faults(config.network)
    used = dict.fromkeys([*extensions, *used_by(sections)])
    return replace(config, extensions=sorted(used, key=lambda extension: extension.path))


def _ruling_of(algorithm: Options) -> Ruling:
    assert isinstance(algorithm, Algorithm)
    return algorithm.method.ruling()


def _with_a_method(raw: Table) -> Table:
    algorithm = raw.get("algorithm", {})
    if isinstance(algorithm, dict) and "method" not in algorithm:
        return {**raw, "algorithm": {"method": DEFAULT_METHOD, **algorithm}}
    return raw


def _with_sizes_as_split(raw: Table) -> Table:
    """`sizes = [...]` alone says which split is meant."""
    data = raw.get("data")
    if isinstance(data, dict) and "sizes" in data and "split" not in data:
        return {**raw, "data": {**data, "split": "sizes"}}
    return raw


def _without_idle_words(raw: Table) -> Table:
    """`allow_unproven = false` says what is the case anyway, whatever the noise."""
    privacy = raw.get("privacy")
    if isinstance(privacy, dict) and privacy.get("allow_unproven") is False:
        return {**raw, "privacy": {key: value for key, value in privacy.items() if key != "allow_unproven"}}
    return raw


def _method_of(raw: Table) -> type[Method] | None:
    algorithm = raw.get("algorithm")
    name = algorithm.get("method", DEFAULT_METHOD) if isinstance(algorithm, dict) else DEFAULT_METHOD
    return methods.find(name) if isinstance(name, str) else None


def _ruling(raw: Table) -> Ruling | None:
    cls = _method_of(raw)
    return None if cls is None else cls.ruling()


def _inherit(base: Table, extra: Table) -> Table:
    """`base` without noise that the method of `extra` does not take. Noise is never lost without a word: a method that has
    none by its definition is one, and so is a method that cannot do without; any other must say what it takes instead.
    """
    privacy = base.get("privacy")
    named = _entry(extra, "algorithm", "method")
    cls = methods.find(named) if isinstance(named, str) else None
    if cls is None or not isinstance(privacy, dict):
        return base
    before = _method_of(base)
    inherited = privacy.get("perturbation") or (before.default_perturbation if before is not None else "none")
    noise = perturbations.find(inherited) if isinstance(inherited, str) else None
    if noise is None or not noise.private or issubclass(noise, cls.perturbations):
        return base
    could_be_private = cls.default_perturbation == "none" and len(cls.perturbations) > 1
    if could_be_private and _entry(extra, "privacy", "perturbation") is None:
        raise InputError(
            f'privacy.perturbation: "{inherited}" is inherited, but {named} does not take it; say what it takes, or '
            'perturbation = "none" for a run without noise'
        )
    return {**base, "privacy": {key: value for key, value in privacy.items() if key not in NOISE_KEYS}}


def _entry(raw: Table, section: str, key: str) -> Any:
    table = raw.get(section)
    return table.get(key) if isinstance(table, dict) else None


GRAMMAR: Grammar[Config] = Grammar(
    root=Config,
    parse=parse,
    ruling=_ruling,
    inherit=_inherit,
    leaves_behind={**LEAVES_BEHIND, ("data", "sizes"): ("split",)},
)


def experiment(
    source: RawConfig | Mapping[str, Any],
    overrides: Iterable[str | Setting] = (),
    only: str | None = None,
    extensions: Iterable[str] = (),
    tolerant: bool = False,
) -> Experiment[Config]:
    """One configuration, or one per variant and point of the sweep; the extensions that it names are loaded first.

    Parameters
    ----------
    source : tables, as TOML has them, or a file that was read
    overrides : like --set, "privacy.alpha=2", or pairs of a dotted key and a value
    only : one variant, by its name
    extensions : further files with classes of your own
    tolerant : of several, those that are no configurations are listed as `refused`, as long as some are

    Returns
    -------
    The experiment, with its `configs`.

    Raises
    ------
    InputError
        Something in a configuration is wrong; the sentence names the key.

    Examples
    --------
    >>> from dpadmm_mpi.methods.experiment import experiment
    >>> swept = experiment({"sweep": {"algorithm.eta": [0.5, 1.0]}})
    >>> len(swept.configs)
    2
    """
    source = source if isinstance(source, RawConfig) else from_python(source)
    loaded = load_extensions(source, extensions)
    return configurations(source, GRAMMAR, overrides, only, loaded, tolerant)


def parse_text(path_and_text: RawConfig) -> Config:
    """The one configuration of a table, as it was resolved before."""
    return experiment(path_and_text).configs[0]
