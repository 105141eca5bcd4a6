"""Results made by hand: some runs of a few curves."""

from collections.abc import Sequence

import numpy as np

from dpadmm_mpi.storage.result import Result


def runs(*curves: Sequence[float], bound: Sequence[float] = (1.0,), seconds: float = 1.0) -> Result:
    """A curve of the loss for each run, from iteration 0 on; every second iteration reads the records."""
    loss = np.array(curves, dtype=float)
    shape = (*loss.shape, 2)
    kkt = np.full(shape, np.nan)
    kkt[:, 1::2] = 1e-12
    arrays = {
        "run": np.arange(len(loss)),
        "iteration": np.arange(loss.shape[1]),
        "loss": loss,
        "test_error": loss / 10.0,
        "privacy/bound": np.asarray(bound, dtype=float),
        "kkt_residual": kkt,
        "timing/compute_seconds": np.full(shape, seconds),
    }
    return Result("memory", arrays, {}, {"/": {"complete": True}, "timing": {"seconds": 1.0}})


def ends(*values: float, bound: float = 1.0) -> Result:
    """Runs of one step from 9 to these values."""
    return runs(*([9.0, value] for value in values), bound=[0.0, bound])
