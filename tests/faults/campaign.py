"""Kills, power cuts and errors of the system at single calls, over all families: how often, and with which result.

python -m faults.campaign COUNT [SEED]      so many faults in all; a table at the end, exit code 1 if something did not hold
"""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from faults.machine import Fault, Life, Machine, complaint, hung, remember_accounts, restart_with_shim
from faults.power import Disk, File, put, read_record

ERRORS = (
    errno.EIO, errno.EDQUOT, errno.EINTR, errno.EPERM, errno.ENOSPC, errno.EROFS, errno.ESTALE, errno.EACCES, errno.EMFILE,
)  # fmt: skip
CALLS = (
    "open", "read", "write", "fsync", "rename", "link", "unlink", "rmdir", "mkdir", "flock", "ftruncate", "fallocate", "fstat",
    "opendir", "stat",
)  # fmt: skip
ABSENT = ((errno.EOPNOTSUPP, "flock"), (errno.ENOSYS, "flock"), (errno.EPERM, "link"), (errno.EOPNOTSUPP, "link"),
          (errno.EOPNOTSUPP, "fallocate"), (errno.ENOSYS, "fallocate"), (errno.EPERM, "flock"))  # fmt: skip
ROOM = 1 << 30  # bytes that the campaign's folder may need

HUB: dict[str, Any] = {"network": {"nodes": 3}}
FAMILIES: dict[str, dict[str, Any]] = {
    "decentralised": {"algorithm": {"method": "r-admm"}, "network": {"graph": "ring", "nodes": 4},
                      "privacy": {"perturbation": "primal", "alpha": 5.0}, "record": {"trajectory": True, "optimum": True}},
    "star": HUB | {"algorithm": {"method": "ps-admm", "inner_steps": 5}, "privacy": {"noise_std": 0.3}},
    "curated": HUB | {"algorithm": {"method": "dp-admm"}, "privacy": {"noise_std": 0.05}},
}  # fmt: skip


def write_config(folder: Path, family: str) -> Path:
    import tomli_w

    raw: dict[str, Any] = {"seed": 5, "runs": 2, "iterations": 5, "data": {"records": 60, "features": 3}} | FAMILIES[family]
    raw["record"] = {**raw.get("record", {}), "checkpoint": 1}
    path = folder / f"{family}.toml"
    path.write_text(tomli_w.dumps(raw))
    return path


class Campaign:
    """Faults in a folder of its own, and what came of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng, self.machine = folder, random.Random(seed), Machine()
        self.done: Counter[tuple[str, str]] = Counter()
        self.struck: Counter[tuple[str, str]] = Counter()  # those whose fault was met
        self.failures: list[str] = []
        self.hangs = self.lost = self.internal = 0
        self._often: dict[tuple[str, str], int] = {}  # calls of each kind in a run or a command
        self.configs, self.expected, self.records = {}, {}, {}
        remember_accounts()
        for family in FAMILIES:
            self.configs[family] = write_config(folder, family)
            _load_everything(self.configs[family])
            place = self.place("undisturbed")
            record = folder / f"{family}.calls"
            life = self.machine.live(self.run(family, place), place, record=record)
            assert life.code == 0, life.errors
            self.expected[family] = folder / f"{family}.h5"
            (place / "out.h5").rename(self.expected[family])
            self.records[family] = read_record(record)

    def place(self, kind: str) -> Path:
        """An empty folder."""
        return Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.folder))

    def run(self, family: str, place: Path, *more: str) -> list[object]:
        return ["run", self.configs[family], "-o", place / "out.h5", "--serial", *more]

    def judge(self, kind: str, where: str, what: str, wrong: str | None, struck: bool = True) -> None:
        self.done[kind, where] += 1
        self.struck[kind, where] += struck
        if wrong is not None:
            self.hangs += "hangs" in wrong
            self.lost += "lost" in wrong
            self.internal += "no sentence" in wrong
            self.failures.append(f"{kind}, {where}, {what}: {wrong}")
            print(self.failures[-1], flush=True)

    def resumed(self, family: str, place: Path, resume: Callable[[], Life] | None = None) -> str | None:
        """What is wrong with the file after --resume without faults; it must be the undisturbed one."""
        from dpadmm_mpi.storage.checkpoint import restart_folder
        from dpadmm_mpi.storage.compare import compare

        life = resume() if resume is not None else self.machine.live(self.run(family, place, "--resume"), place)
        if hung(life):
            return "--resume hangs"
        if life.code != 0:
            return f"--resume ended with {life.code}: {life.errors[-300:]}"
        if differences := list(compare(self.expected[family], place / "out.h5")):
            return f"another result: {differences[:3]}"
        return "the restart folder is left" if restart_folder(place / "out.h5").exists() else None

    def reached(self, place: Path) -> tuple[float, float]:
        """Run and iteration of the last usable checkpoint."""
        from dpadmm_mpi.errors import InputError
        from dpadmm_mpi.storage.checkpoint import find
        from dpadmm_mpi.storage.result import read_attributes

        try:
            if read_attributes(place / "out.h5").get("complete"):
                return (float("inf"), 0.0)
        except InputError:
            pass
        found = find(place / "out.h5")
        return (-1.0, 0.0) if found is None else (float(found.checkpoint.run), float(found.checkpoint.iteration))

    # Errors of the system

    def error_while_running(self, family: str, call: str, error: int) -> None:
        place, fault = self.place("error"), Fault(call, self.rng.randrange(1, self.often(family, call) + 1), "error", error)
        life = self.machine.live(self.run(family, place), place, fault)
        wrong = complaint(life, mercy=error == errno.EINTR) or self.resumed(family, place)
        self.judge("error", f"run, {family}", str(fault), wrong, life.calls >= fault.when)
        shutil.rmtree(place, ignore_errors=True)

    def often(self, family: str, call: str) -> int:
        """How many such calls a run makes."""
        key = (family, call)
        if key not in self._often:
            place = self.place("count")
            self._often[key] = max(1, self.machine.live(self.run(family, place), place, Fault(call)).calls)
            shutil.rmtree(place, ignore_errors=True)
        return self._often[key]

    def error_while_resuming(self, family: str, call: str, error: int) -> None:
        place = self.place("resume")
        self.machine.live(self.run(family, place), place, Fault("fsync", self.rng.randrange(12, 24), "before"))
        before = self.reached(place)
        fault = Fault(call, self.rng.randrange(1, 2 + self.often(family, call) // 2), "error", error)
        life = self.machine.live(self.run(family, place, "--resume"), place, fault)
        wrong = complaint(life, mercy=error == errno.EINTR)
        if wrong is None and self.reached(place) < before:
            wrong = f"lost: {before} before, {self.reached(place)} after"
        self.judge("error", f"--resume, {family}", str(fault), wrong or self.resumed(family, place), life.calls >= fault.when)
        shutil.rmtree(place, ignore_errors=True)

    def interrupted_while_reading(self, family: str, command: str) -> Iterator[None]:
        """By a signal at each question to the file system, one after the other: nobody notices."""
        when = 1
        while when == 1 or when <= self._often[command, "stat"]:
            self.error_while_reading(family, command, "stat", errno.EINTR, when)
            when += 1
            yield

    def error_while_reading(self, family: str, command: str, call: str, error: int, when: int | None = None) -> None:
        place = self.place("read")
        for name in ("a.h5", "b.h5"):
            shutil.copy(self.expected[family], place / name)
        (place / "records.csv").write_text("x,y,label\n" + "".join(f"{k / 9},{k % 3},{k % 2}\n" for k in range(20)))
        words: dict[str, list[object]] = {
            "show": ["show", place / "a.h5"],
            "plot": ["plot", place / "a.h5", "-o", place / "a.png"],
            "report": ["report", place / "a.h5", "-o", place / "a.html"],
            "watch": ["watch", place / "a.h5", "--once"],
            "diff": ["diff", place / "a.h5", place / "b.h5"],
            "audit": ["audit", place / "a.h5", "--candidates", 1, "--adversaries", 0],
            "compose": ["compose", place / "a.h5"],
            "data info": ["data", "info", place / "records.csv"],
        }
        if (command, call) not in self._often:
            self._often[command, call] = max(1, self.machine.live(words[command], place, Fault(call)).calls)
        fault = Fault(call, when or self.rng.randrange(1, self._often[command, call] + 1), "error", error)
        before = (place / "a.h5").read_bytes()
        life = self.machine.live(words[command], place, fault)
        wrong = complaint(life, mercy=error == errno.EINTR)
        if (place / "a.h5").read_bytes() != before:
            wrong = "lost: the file that was read has changed"
        self.judge("error", command, str(fault), wrong, life.calls >= fault.when)
        shutil.rmtree(place, ignore_errors=True)

    def error_while_caching(self, call: str, error: int) -> None:
        """Records from a csv file, prepared into the cache."""
        place = self.place("cache")
        rows = "".join(f"{k / 99},{(k * 7 % 10) / 20},{k % 2 * 2 - 1}\n" for k in range(60))
        (place / "records.csv").write_text("x,y,label\n" + rows)
        (place / "own.toml").write_text(
            f'iterations = 2\n[data]\nsource = "csv"\npath = "{place}/records.csv"\npreprocess = ["scale-rows"]\n'
        )
        os.environ["DPADMM_DATA"] = str(place / "cache")
        words = ["run", place / "own.toml", "-o", place / "out.h5", "--serial"]
        written = call in ("write", "mkdir", "rename")
        fault = Fault(call, self.rng.randrange(1, 4 if written else 7), "error", error)
        life = self.machine.live(words, place / ("cache" if written else "records"), fault)
        wrong = complaint(life, mercy=error == errno.EINTR)
        again = self.machine.live([*words, "--force"], place)
        self.judge("error", "cache and records", str(fault), wrong or complaint(again, mercy=True), life.calls >= fault.when)
        del os.environ["DPADMM_DATA"]
        shutil.rmtree(place, ignore_errors=True)

    def file_system_without(self, family: str, error: int, call: str) -> None:
        """Every such call fails: the run works."""
        place, fault = self.place("without"), Fault(call, 1, "always", error)
        life = self.machine.live(self.run(family, place), place, fault)
        wrong = complaint(life, mercy=True)
        if wrong is None and "dpadmm: note:" not in life.errors:
            wrong = "it says nothing"
        self.judge("call that a file system lacks", family, str(fault), wrong or self.resumed(family, place), life.calls > 0)
        shutil.rmtree(place, ignore_errors=True)

    # Kills

    def kill(self, family: str) -> None:
        """A chain of three kills at calls, then to the end."""
        place, total = self.place("kill"), self.often(family, "*")
        before, wrong = (-1.0, 0.0), None
        for _ in range(3):
            call = self.rng.choice(["*", "write", "fsync", "rename", "unlink", "open"])
            calls = total if call == "*" else self.often(family, call)
            fault = Fault(call, self.rng.randrange(1, calls + 1), self.rng.choice(["before", "after", "torn"]))
            life = self.machine.live(self.run(family, place, "--resume"), place, fault)
            if life.code != -signal.SIGKILL:
                wrong = wrong or complaint(life)
            after = self.reached(place)
            if after < before:
                wrong = wrong or f"lost: {before} before, {after} after"
            before = after
            self.judge("kill at a call", family, str(fault), wrong, life.code == -signal.SIGKILL)
        if wrong := self.resumed(family, place):
            self.failures.append(f"kill, {family}: {wrong}")
            print(self.failures[-1], flush=True)
        shutil.rmtree(place, ignore_errors=True)

    # Power cuts

    def power_cut(self, family: str) -> None:
        calls = self.records[family]
        at = self.rng.randrange(1, len(calls) + 1)
        disk, durable = Disk(), (-1.0, 0.0)
        for call in calls[:at]:
            disk.apply(call)
            if call.name == "fsync" and call.path.endswith(".restart"):
                durable = max(durable, _checkpoint_in(disk))
        before = Path(calls[0].path).parent
        place = self.place("cut")
        put(disk.after_the_cut(self.rng), before, place)
        found, wrong = self.reached(place), None
        if found < durable:
            wrong = f"lost: {durable} was on the disk, {found} is found"
        self.judge("power cut", family, f"after call {at} of {len(calls)}", wrong or self.resumed(family, place))
        shutil.rmtree(place, ignore_errors=True)

    # Several ranks and variants

    def ranks(self, family: str, variants: bool, kill: bool) -> None:
        """Under mpiexec: a fault on one rank of two; with variants, in packs."""
        place = self.place("ranks")
        config = self.configs[family]
        words: list[object] = ["run", config, "-o", place / "out.h5", "--resume"]
        if variants:
            config = place / "variants.toml"
            more = "".join(f'\n[[variant]]\nname = "{name}"\nseed = {seed}\n' for name, seed in (("out", 5), ("other", 6)))
            config.write_text(self.configs[family].read_text() + more)
            words = ["run", config, "-o", place, "--resume", "--pack"]
        call = self.rng.choice(["write", "fsync", "rename", "open", "unlink"])
        how = self.rng.choice(["before", "after", "torn"]) if kill else "error"
        error = 0 if kill else self.rng.choice([e for e in ERRORS if e != errno.EINTR])
        fault = Fault(call, self.rng.randrange(1, self.often(family, call) + 1), how, error)
        life = _mpiexec(words, fault.environment(place))
        wrong = "it hangs" if hung(life) else None
        if not kill:
            wrong = wrong or ("no sentence: " + life.errors[-300:] if "internal error" in life.errors else None)
        if wrong is None and variants:
            again = _mpiexec(words, {})
            wrong = self._same(family, place / "out.h5") if again.code == 0 else f"--resume ended with {again.code}"
        elif wrong is None:
            wrong = self.resumed(family, place, lambda: _mpiexec(words, {}))
        kind = "kill at a call" if kill else "error"
        self.judge(kind, f"two ranks, {'pack of variants, ' if variants else ''}{family}", str(fault), wrong, life.code != 0)
        shutil.rmtree(place, ignore_errors=True)

    def _same(self, family: str, path: Path) -> str | None:
        from dpadmm_mpi.storage.compare import compare

        found = [line for line in compare(self.expected[family], path) if not line.startswith(("/@name", "/@config"))]
        return f"another result: {found[:3]}" if found else None

    # All of it

    def table(self) -> str:
        lines = ["| what | where | injected | met a call |", "|---|---|---|---|"]
        for (kind, where), count in sorted(self.done.items()):
            lines.append(f"| {kind} | {where} | {count} | {self.struck[kind, where]} |")
        total = sum(self.done.values())
        lines.append(f"| all | | {total} | {sum(self.struck.values())} |")
        lines.append(f"\nhangs {self.hangs}, lost {self.lost}, internal errors {self.internal}, failures {len(self.failures)}")
        return "\n".join(lines)


def _load_everything(config: Path) -> None:
    """In the parent of all lives, which then have it."""
    import dpadmm_mpi
    from dpadmm_mpi.audit import exact as _audit  # noqa: F401
    from dpadmm_mpi.cli import compose, data, jobs, main, privacy, results, run  # noqa: F401
    from dpadmm_mpi.reports.html import page

    result = dpadmm_mpi.run(str(config))
    assert result is not None
    page([result])


def _checkpoint_in(disk: Disk) -> tuple[float, float]:
    """Run and iteration of the checkpoint that is certain."""
    import io

    import msgspec

    from dpadmm_mpi.storage.checkpoint import Checkpoint

    for path, what in disk.certain.items():
        if path.endswith("/checkpoint") and isinstance(what, File):
            content = io.BytesIO(what.certain)
            content.seek(12)
            found = msgspec.msgpack.decode(content.read(), type=Checkpoint)
            return float(found.run), float(found.iteration)
    return (-1.0, 0.0)


def _mpiexec(words: Sequence[object], environment: dict[str, str]) -> Life:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    shim = os.environ["LD_PRELOAD"]
    outside = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    outside |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    outside |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    settings = [f"{key}={value}" for key, value in environment.items()] + ([f"LD_PRELOAD={shim}"] if environment else [])
    command = [str(mpiexec), "-n", "2", "env", *settings, sys.executable, "-m", "dpadmm_mpi", *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=outside, check=False)
    except subprocess.TimeoutExpired as late:
        return Life(-signal.SIGALRM, "", str(late.stderr), 0)
    return Life(done.returncode, done.stdout, done.stderr, 0)


COMMANDS = ("show", "plot", "report", "watch", "diff", "audit", "compose", "data info")


def faults(campaign: Campaign, ranks: bool) -> Iterator[None]:
    """Without end, a fault before each yield: a bit of everything, families in turn."""
    rng, families, turn = campaign.rng, list(FAMILIES), 0
    for command in ("show", "diff", "watch"):
        yield from campaign.interrupted_while_reading("decentralised", command)
    while True:
        family, turn = families[turn % len(families)], turn + 1
        for call in rng.sample(CALLS, 3):
            campaign.error_while_running(family, call, ERRORS[turn % len(ERRORS)])
            yield
        for call in rng.sample(CALLS, 2):
            campaign.error_while_resuming(family, call, rng.choice(ERRORS))
            yield
        for command in rng.sample(COMMANDS, 2):
            call = rng.choice(["open", "read", "fstat", "stat", *(["write"] if command in ("plot", "report") else [])])
            campaign.error_while_reading("decentralised", command, call, rng.choice(ERRORS))
            yield
        campaign.error_while_caching(rng.choice(["open", "read", "write", "mkdir", "rename", "fstat"]), rng.choice(ERRORS))
        campaign.file_system_without(family, *ABSENT[turn % len(ABSENT)])
        yield
        campaign.kill(family)
        yield
        for _ in range(4):
            campaign.power_cut(family)
            yield
        if ranks and turn % 3 == 0:
            campaign.ranks(rng.choice(families), variants=turn % 2 == 0, kill=turn % 4 < 2)


def main() -> None:
    restart_with_shim()
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with the table of what was done until then
    fast = Path("/dev/shm")  # where syncing costs nothing
    roomy = os.access(fast, os.W_OK) and shutil.disk_usage(fast).free > ROOM
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=fast if roomy else None))
    campaign = Campaign(folder, seed)
    try:
        for _ in faults(campaign, ranks="--serial" not in sys.argv):
            if sum(campaign.done.values()) >= count:
                break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        print(campaign.table())
    print(json.dumps({"faults": sum(campaign.done.values()), "seconds": round(time.monotonic() - begin)}))
    sys.exit(1 if campaign.failures else 0)


if __name__ == "__main__":
    main()
