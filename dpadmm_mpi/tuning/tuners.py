"""Searches: which point of a space is tried next, from what was found before.

A proposal depends on the seed, the number of the trial and the results of earlier ones, and on nothing else: a search that was
killed goes on as if nothing had happened.
"""

import itertools
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpadmm_mpi.config.options import Count, Options
from dpadmm_mpi.config.ranges import Between, OneOf, Point, Space, Whole
from dpadmm_mpi.errors import InputError
from dpadmm_mpi.registry import Registry
from dpadmm_mpi.rng import Generator, Purpose, generator

tuners = Registry["Tuner"]("tuner", "tuners")

LARGEST_GRID = 1_000_000  # points that are put in a random order


class Told(NamedTuple):
    """A trial that is over."""

    point: Point
    value: float | None  # what is to be small; None: the settings could not be run


@tuners.base
class Tuner(Options):
    """A search of a space. The first trial is always the space's own first point."""

    @abstractmethod
    def propose(self, space: Space, told: Sequence[Told], number: int, seed: int) -> Point:
        """The point of trial `number` >= 1, from what trials before it have shown."""

    def check_installed(self) -> None:
        """InputError where something that the search needs is not there."""


def first_point(space: Space) -> Point:
    return {key: each.first for key, each in space.items()}


def random_point(space: Space, rng: Generator) -> Point:
    return {key: each.at(float(rng.random())) for key, each in space.items()}


@tuners.register("random")
class Random(Tuner):
    """Points at random, each range evenly (on its scale)."""

    def propose(self, space: Space, told: Sequence[Told], number: int, seed: int) -> Point:
        return random_point(space, generator(seed, Purpose.TRIALS, iteration=number))


@tuners.register("grid")
class Grid(Tuner):
    """`levels` values of each range, combined; in a random order, so that a search that ends early has looked everywhere."""

    levels: Count = 3

    def propose(self, space: Space, told: Sequence[Told], number: int, seed: int) -> Point:
        axes = {key: self.values(each) for key, each in space.items()}
        total = int(np.prod([len(values) for values in axes.values()], dtype=object))
        rng = generator(seed, Purpose.TRIALS)
        if total <= LARGEST_GRID:
            place = int(rng.permutation(total)[(number - 1) % total])
        else:
            place = int(rng.integers(total, size=number)[-1])
        point = {}
        for key, values in axes.items():
            place, k = divmod(place, len(values))
            point[key] = values[k]
        return point

    def values(self, each: Between | Whole | OneOf) -> list[Any]:
        if isinstance(each, OneOf):
            return list(each.values)
        found = [each.at((k + 0.5) / self.levels) for k in range(self.levels)]
        return [value for value, _ in itertools.groupby(found)]


@tuners.register("tpe")
class TreeParzen(Tuner):
    """Tree-structured Parzen estimator, by optuna (the extra `tune`): learns where good settings are."""

    startup: Count = 8  # trials at random, before it begins to learn

    def check_installed(self) -> None:
        try:
            import optuna  # noqa: F401
        except ImportError:
            raise InputError(
                'tune: the tuner "tpe" needs optuna; pip install "dpadmm-mpi[tune]", or choose --tuner random'
            ) from None

    def propose(self, space: Space, told: Sequence[Told], number: int, seed: int) -> Point:
        if len(told) < self.startup:
            return random_point(space, generator(seed, Purpose.TRIALS, iteration=number))
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        chance = int(generator(seed, Purpose.TRIALS, iteration=number).integers(2**31))
        distributions = {key: _distribution(each) for key, each in space.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=chance, multivariate=True, n_startup_trials=0)
            study = optuna.create_study(sampler=sampler)
            for (point, _), value in zip(told, finite_values(told), strict=True):
                params = {key: _outwards(space[key], point[key]) for key in space}
                study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
            proposed = study.ask(distributions).params
        return {key: _inwards(each, proposed[key]) for key, each in space.items()}


def finite_values(told: Sequence[Told]) -> list[float]:
    """What could not be run counts as much as the worst that could."""
    known = [trial.value for trial in told if trial.value is not None]
    worst = max(known, default=0.0)
    return [worst if trial.value is None else trial.value for trial in told]


def _distribution(each: Between | Whole | OneOf) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(each, OneOf):
        return CategoricalDistribution(list(range(len(each.values))))
    if isinstance(each, Whole):
        return IntDistribution(each.low, each.high, log=each.log)
    return FloatDistribution(each.low, each.high, log=each.log)


def _outwards(each: Between | Whole | OneOf, value: Any) -> Any:
    """A choice is known to optuna by its place: values may be tables."""
    return each.values.index(value) if isinstance(each, OneOf) else value


def _inwards(each: Between | Whole | OneOf, value: Any) -> Any:
    return each.values[value] if isinstance(each, OneOf) else value
