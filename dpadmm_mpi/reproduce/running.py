"""Getting the results of a figure: its data, and the variants that are not there yet, as many at a time as there are cores."""

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from dpadmm_mpi.config.files import slug
from dpadmm_mpi.data.catalogue import is_fetched, public_datasets
from dpadmm_mpi.data.fetch import fetch
from dpadmm_mpi.data.sources import sources
from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.files import exists
from dpadmm_mpi.methods.base import Config, fingerprint
from dpadmm_mpi.parallel.launcher import usable_cores
from dpadmm_mpi.storage.experiments import load as load_experiment
from dpadmm_mpi.storage.experiments import stored_fingerprint
from dpadmm_mpi.storage.result import Result, load, read_attributes

LOGGER = logging.getLogger(__name__)


def results_of(config: Path, folder: Path, overrides: Sequence[str]) -> dict[str, Result]:
    """Every variant's result by its name, run where it is missing; a stopped one goes on where it was."""
    return _results(config, settings_of_each(config, overrides, {}), folder, lambda c: slug(c.name))


def results_of_variation(
    config: Path, folder: Path, overrides: Sequence[str], of_some: Mapping[str, Sequence[str]]
) -> dict[str, Result]:
    """The same with overrides of some variants. Variations share a folder, where the name of a file tells its configuration:
    a variant that several of them leave alone is run once."""
    settings = settings_of_each(config, overrides, of_some)
    return _results(config, settings, folder, lambda c: f"{slug(c.name)}-{fingerprint(c)[:12]}")


def settings_of_each(
    config: Path, overrides: Sequence[str], of_some: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """What is set in each variant, by its name: the overrides of all, then those of the patterns that its name fits."""
    names = [c.name for c in load_experiment(config, overrides).configs]
    for pattern in of_some:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(f'{config.name}: "{pattern}" fits the name of no variant')
    settings = {}
    for name in names:
        own = [words for pattern, words in of_some.items() if fnmatchcase(name, pattern)]
        settings[name] = tuple(chain(overrides, *own))
    return settings


def configs_of_each(config: Path, settings: Mapping[str, Sequence[str]]) -> dict[str, Config]:
    """The configuration of each variant; all are read at once where the same is set in all of them."""
    if len({tuple(words) for words in settings.values()}) == 1:
        return {c.name: c for c in load_experiment(config, next(iter(settings.values()))).configs}
    return {name: load_experiment(config, words, only=name).configs[0] for name, words in settings.items()}


def _results(
    config: Path, settings: Mapping[str, Sequence[str]], folder: Path, stem: Callable[[Config], str]
) -> dict[str, Result]:
    configs = configs_of_each(config, settings)
    for source in {sources.name_of(type(c.data.source)) for c in configs.values()} & public_datasets().keys():
        if not is_fetched(source):
            LOGGER.info(fetch(public_datasets()[source]))
    paths = {name: folder / f"{stem(c)}.h5" for name, c in configs.items()}
    run = [sys.executable, "-m", "dpadmm_mpi", "run", str(config), "--serial", "--resume"]
    commands = []
    for name, path in paths.items():
        if not _is_done(path, configs[name]):
            options = [word for setting in settings[name] for word in ("--set", setting)]
            commands.append([*run, "-o", str(path), "--only", name, *options])
    _run_all(commands, folder.name)
    return {name: load(path) for name, path in paths.items()}


def _is_done(path: Path, config: Config) -> bool:
    """Complete, and of this very configuration; one of another is in the way and has to be moved by its owner."""
    if not exists(path):
        return False
    try:
        root = read_attributes(path)
    except InputError:
        return False  # --resume writes it anew
    if not {"config", "config_sha256", "complete"} <= root.keys():
        return False
    if stored_fingerprint(str(root["config"]), str(root["config_sha256"]), path) != fingerprint(config):
        raise InputError(f"{path} is of another configuration; move it away, or choose another place with -o")
    return bool(root["complete"])


def _run_all(commands: Sequence[Sequence[str]], title: str) -> None:
    from tqdm import tqdm

    with ThreadPoolExecutor(max_workers=len(usable_cores())) as pool:
        bar = tqdm(pool.map(_run, commands), total=len(commands), desc=title, unit="curve", disable=None, leave=False)
        failures = [failure for failure in bar if failure]
    if failures:
        raise RunError(f"{title}: {failures[0]}")


def _run(command: Sequence[str]) -> str | None:
    """What a run that failed said last."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return None
    said = process.stderr.strip().splitlines()
    return said[-1].removeprefix("dpadmm: ") if said else f"a run ended with code {process.returncode}"
