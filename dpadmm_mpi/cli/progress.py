"""How a run tells what it is doing: a bar on a terminal, lines with their time in a batch log. Standard error only."""

import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dpadmm_mpi.cli.options import note as say_note
from dpadmm_mpi.engine.simulation import in_words
from dpadmm_mpi.methods.base import Plan, fingerprint
from dpadmm_mpi.parallel.launcher import instead_of_sharing, usable_cores
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.showing import brief, printable

LINE_SECONDS = 10.0  # between plain lines
BAR = "{desc} {percentage:3.0f} %|{bar}| {elapsed}, {remaining} left, {postfix}"
# Where schedulers tell a job its number.
JOB_NUMBERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


def log(text: str) -> None:
    """A line of a batch log."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    print(f"{now} {printable(text)}", file=sys.stderr, flush=True)


def log_header(transport: Transport, command: str) -> list[str]:
    """The first lines of a batch log: what runs where. To be called on all ranks; rank 0 has the lines."""
    gathered = transport.gather_objects((platform.node(), usable_cores()))
    if transport.rank != 0:
        return []
    from importlib import metadata

    hosts = Counter(host for host, _ in gathered)
    ranks = "1 rank" if transport.size == 1 else f"{transport.size} ranks, {transport.library}"
    where = next(iter(hosts)) if len(hosts) == 1 else ", ".join(f"{host} ({count})" for host, count in hosts.items())
    job = next((f", job {os.environ[name]}" for name in JOB_NUMBERS if name in os.environ), "")
    cores = {host: len(set().union(*(some for there, some in gathered if there == host))) for host in hosts}
    crowded = [instead_of_sharing(count, cores[host]) for host, count in hosts.items() if count > cores[host]]
    return [f"dpadmm {metadata.version('dpadmm-mpi')} on {where}, {ranks}{job}", f"command: {command}", *crowded[:1]]


class Progress:
    """Watches one configuration on rank 0. The lines of `header` are logged, and taken, by the first that begins."""

    def __init__(self, header: list[str]) -> None:
        self._header = header
        self._plan: Plan[Any] | None = None
        self._bar: Any = None
        self._last_line = time.monotonic()

    def begin(self, plan: Plan[Any]) -> None:
        self._plan = plan
        account = plan.accounts[-1] if plan.topology.has_hub else plan.accounts[0]
        self._spent, self._unit = account.values, "P" if account.delta is None else "epsilon"
        config, terminal = plan.config, sys.stderr.isatty()
        while self._header and not terminal:
            log(self._header.pop(0))
        for note in plan.notes:
            say_note(note)
        if terminal:
            from tqdm import tqdm

            total = config.runs * plan.iterations
            self._bar = tqdm(total=total, desc=brief(config.name), bar_format=BAR, leave=False, dynamic_ncols=True)
        else:
            runs = "1 run" if config.runs == 1 else f"{config.runs} runs"
            log(
                f"{brief(config.name)}: {config.method_name} on {plan.nodes} nodes, {runs} of {plan.iterations} iterations, "
                f"configuration sha256 {fingerprint(config)[:16]}"
            )

    def row(self, runs: range, iteration: int, values: Mapping[str, Any]) -> None:
        assert self._plan is not None
        config = self._plan.config
        # Iterations over all runs, as `dpadmm watch` counts them.
        done = runs.start * self._plan.iterations + len(runs) * iteration
        spent, loss = self._spent[iteration], values["loss"].mean()
        where = f"{in_words(runs)} of {config.runs}, iteration {iteration} of {self._plan.iterations}"
        what = f"{where}, loss {loss:.4f}, {self._unit} {spent:.3g}"
        if self._bar is not None:
            if not self._bar.n:  # what a checkpoint has brought took no time
                self._bar.initial = self._bar.n = self._bar.last_print_n = done
            self._bar.set_postfix_str(what, refresh=False)
            self._bar.update(done - self._bar.n)
        elif time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            log(f"{brief(config.name)}: {what}")

    def end(self, seconds: float) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._plan is not None:
            log(f"{brief(self._plan.config.name)}: ended after {seconds:.3g} s")
