"""Getting the results of a figure: its data, and the variants that are not there yet, as many at a time as there are cores."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dpadmm_mpi import configfile
from dpadmm_mpi.config import Config, fingerprint
from dpadmm_mpi.data.cache import is_fetched
from dpadmm_mpi.data.catalogue import CATALOGUE
from dpadmm_mpi.data.fetch import fetch
from dpadmm_mpi.errors import InputError, RunError
from dpadmm_mpi.results import Result, load


def results_of(config: Path, folder: Path, overrides: Sequence[str]) -> dict[str, Result]:
    """Every variant's result by its name, run where it is missing; a stopped one goes on where it was."""
    configs = configfile.load(config, overrides).configs
    for source in {c.data.source for c in configs} & CATALOGUE.keys():
        if not is_fetched(source):
            print(fetch(CATALOGUE[source]))
    paths = {c.name: folder / f"{configfile.slug(c.name)}.h5" for c in configs}
    missing = [index for index, c in enumerate(configs) if not _is_done(paths[c.name], c)]
    settings = [word for override in overrides for word in ("--set", override)]
    common = [sys.executable, "-m", "dpadmm_mpi", "run", str(config), "-o", str(folder), "--serial", "--resume", *settings]
    _run_all([[*common, "--index", str(index)] for index in missing], folder.name)
    return {name: load(path) for name, path in paths.items()}


def _is_done(path: Path, config: Config) -> bool:
    """Complete, and of this very configuration; one of another is in the way and has to be moved by its owner."""
    if not path.exists():
        return False
    try:
        root = load(path).attributes["/"]
    except InputError:
        return False  # --resume writes it anew
    if root["config_sha256"] != fingerprint(config):
        raise InputError(f"{path} is of another configuration; move it away, or choose another place with -o")
    return bool(root["complete"])


def _run_all(commands: Sequence[Sequence[str]], title: str) -> None:
    from tqdm import tqdm

    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
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
