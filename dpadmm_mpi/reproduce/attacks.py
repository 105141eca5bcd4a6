"""Figures about attacks: a record is rebuilt from every run's file, by one who knows the penalties and by one who does not."""

from dataclasses import replace
from pathlib import Path

from dpadmm_mpi.audit.attack import attack
from dpadmm_mpi.audit.unknown_penalty import attack_without_penalties
from dpadmm_mpi.reproduce.quantities import Results
from dpadmm_mpi.storage.result import Result


def with_attacks(results: Results) -> dict[str, Result]:
    """The same results with the errors of the rebuilt record, (runs, data steps seen), as attack/known and attack/secret."""
    return {name: _attacked(result) for name, result in results.items()}


def _attacked(result: Result) -> Result:
    path = Path(result.source)
    errors = {"attack/known": attack(path).errors, "attack/secret": attack_without_penalties(path).errors}
    return replace(result, arrays=result.arrays | errors)
