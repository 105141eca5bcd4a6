"""A Slurm cluster, private to a test: own keys, sockets, ports and folders; nothing outlives it.

with Cluster() as cluster:
    cluster.run("sinfo")

Of one node, or with `Cluster(machines)` of a node on each of several hosts; there the first one has the controller too.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from hosts.machines import Machines
from support import Process, as_from_a_terminal, popen

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
CPUS = 8  # promised to Slurm, whatever the machine has; on several hosts, so that jobs need two of them:
FEW_CPUS = 2
MEMORY = "RealMemory=4000"
SECONDS = 60  # to come up, or to lose its last job

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire is also how long a requeued job waits before it starts again; 120 seconds unless told.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
# A node that does not answer is down after so many seconds, which end its last job; 300 unless told.
SlurmdTimeout=6
MessageTimeout=3
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0
{nodes}
PartitionName=short Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there cannot be a cluster on this machine; None if there can."""
    absent = [program for program in PROGRAMS if _find(program) is None]
    if absent:
        return f"Slurm is not installed here (no {', '.join(absent)}); on Debian: slurmctld, slurmd, slurm-client, munge"
    return None if os.geteuid() == 0 else "the private Slurm cluster is started as root only"


class Cluster:
    def __init__(self, machines: Machines | None = None) -> None:
        self.machines = machines
        # Sockets have short names, so pytest's long folders do not do.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        # Nothing of another Slurm that these tests may be running under.
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        self.environment = outside | {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            if "slurmctld" in self._daemons and self._daemons["slurmctld"].poll() is None:
                self._end_jobs()
        finally:
            for daemon in reversed(self._daemons.values()):
                daemon.terminate()
                try:
                    daemon.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *arguments: object, **options: Any) -> Process:
        """One of Slurm's commands, or another program, in the cluster's environment."""
        settings: dict[str, Any] = {"env": self.environment, "timeout": SECONDS, "check": False} | options
        words = [*self._on(None, settings.get("cwd")), *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, preexec_fn=as_from_a_terminal, **settings)

    def job(self, identity: str) -> dict[str, str]:
        """The fields of `scontrol show job`, by name."""
        line = self.run("scontrol", "show", "job", "--oneliner", identity).stdout
        return dict(field.split("=", 1) for field in line.split() if "=" in field)

    def logs(self) -> str:
        """For the message of a test that failed."""
        return "\n".join(f"{path}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def _start(self) -> None:
        self.folder.chmod(0o755)  # munge wants its socket to be within reach of everybody
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        controller, node = _free_ports(2)
        if self.machines is None:
            host, address = socket.gethostname().split(".")[0], "127.0.0.1"
            nodes = [f"NodeName=one NodeHostname={host} NodeAddr={address} CPUs={CPUS} {MEMORY}"]
        else:
            host, address = next(iter(self.machines.addresses.items()))
            known = self.machines.addresses.items()
            nodes = [f"NodeName={name} NodeAddr={ip} CPUs={FEW_CPUS} {MEMORY}" for name, ip in known]
        values = {"host": host, "address": address, "controller": controller, "node": node, "nodes": "\n".join(nodes)}
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder, **values))
        files = (f"--{kind}-file={self.folder}/munge.{kind}" for kind in ("key", "pid", "log", "seed"))
        self._daemon("munged", "--foreground", f"--socket={self.folder}/munge.socket", *files)
        self._until(lambda: (self.folder / "munge.socket").exists())
        self._daemon("slurmctld", "-D")
        for name in ["one"] if self.machines is None else self.machines.names:
            self._daemon("slurmd", "-D", "-N", name, host=None if self.machines is None else name)
        self._until(lambda: self.run("sinfo", "--noheader", "--format=%T").stdout.split() == ["idle"])

    def _daemon(self, program: str, *arguments: str, host: str | None = None) -> None:
        # setpriv: whoever ends the tests, and however, ends the daemons too.
        command = ["setpriv", "--pdeathsig", "TERM", *self._on(host), _find(program), *arguments]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        name = program if host is None else f"{program} on {host}"
        self._daemons[name] = popen(command, env=self.environment, start_new_session=True, **quiet)

    def _on(self, host: str | None, folder: Path | None = None) -> list[str]:
        """What goes before a command on a host; None: the first."""
        return [] if self.machines is None else self.machines.enter(host or self.machines.names[0], folder)

    def _until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() > limit or any(daemon.poll() is not None for daemon in self._daemons.values()):
                raise RuntimeError(f"the Slurm cluster did not come up:\n{self.logs()}")
            time.sleep(0.2)

    def _end_jobs(self) -> None:
        """Running jobs are children of their own daemons, not of slurmd: end them while there is someone to do it."""
        self.run("scancel", "--user=root")
        self.run("scancel", "--user=root", "--signal=KILL", "--full")
        limit = time.monotonic() + SECONDS
        while self.run("squeue", "--noheader").stdout.strip() and time.monotonic() < limit:
            time.sleep(0.2)


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
