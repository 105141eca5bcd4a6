"""Batch scripts for Slurm, PBS, LSF and SGE. All do the same: start the ranks, warn them in time, go on after a checkpoint, and
after the loss of a host.

Open MPI's mpiexec hands SIGUSR1 on to the ranks, but ends them itself on SIGTERM; so USR1 is what the scripts send.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dpadmm_mpi.errors import InputError, RunError

RESUME = 75  # exit code of a run that was stopped with a checkpoint
LOSSES = 5  # of hosts, after which a job is not put back any more
SGE_AGAIN = 99  # exit code of a job that SGE puts back into the queue
LAUNCHER = "mpiexec -n {ranks}"


@dataclass(frozen=True)
class BatchJob:
    name: str
    arguments: tuple[str, ...]  # of `dpadmm run`
    ranks: int
    seconds: int  # the time limit
    tasks: int = 1  # configurations; more than one make an array
    queue: str | None = None  # or partition
    programs: Path | None = None  # the folder with dpadmm, if the job does not find it by itself
    account: str | None = None  # or project
    megabytes: int | None = None  # of a rank; None: what the site gives
    modules: tuple[str, ...] = ()
    mail: str | None = None  # an address
    lines: tuple[str, ...] = ()  # more of them: directives into the header, others before the run
    launcher: str = LAUNCHER
    groups: int | None = None  # variants at a time, of --pack
    data: str | None = None  # DPADMM_DATA
    parallel_environment: str = "mpi"  # of SGE

    @property
    def label(self) -> str:
        """The name, as every scheduler takes it."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", self.name).strip("-_")[:60] or "dpadmm"

    @property
    def is_array(self) -> bool:
        return self.tasks > 1 and self.groups is None


@dataclass(frozen=True)
class Scheduler:
    marker: str  # of directives
    submit: str  # its command, which reads a script from standard input
    warning: int  # seconds before the limit at which the run is told to stop
    header: Callable[[BatchJob], list[str]]
    index: str  # the array's number for this job, counted from 0
    identity: Callable[[BatchJob], str]  # the job's number in the shell, the same after it was put back
    again: Callable[[BatchJob], list[str]]  # what to do after exit code 75
    before: tuple[str, ...] = ()
    watches_clock: bool = False  # the run itself, because the scheduler does not warn


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"


def _slurm(job: BatchJob) -> list[str]:
    number = "%A_%a" if job.is_array else "%j"
    return [
        f"#SBATCH --job-name={job.label}",
        f"#SBATCH --ntasks={job.ranks}",
        "#SBATCH --cpus-per-task=1",
        f"#SBATCH --time={clock(job.seconds)}",
        *([f"#SBATCH --array=0-{job.tasks - 1}"] if job.is_array else []),
        *([f"#SBATCH --partition={job.queue}"] if job.queue else []),
        *([f"#SBATCH --account={job.account}"] if job.account else []),
        *([f"#SBATCH --mem-per-cpu={job.megabytes}M"] if job.megabytes else []),
        *([f"#SBATCH --mail-user={job.mail}", "#SBATCH --mail-type=END,FAIL"] if job.mail else []),
        f"#SBATCH --output={job.label}-{number}.out",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        f"#SBATCH --signal=B:USR1@{SCHEDULERS['slurm'].warning}",
    ]


def _pbs(job: BatchJob) -> list[str]:
    return [
        f"#PBS -N {job.label}",
        f"#PBS -l select={job.ranks}:ncpus=1:mpiprocs=1{f':mem={job.megabytes}mb' if job.megabytes else ''}",
        f"#PBS -l walltime={clock(job.seconds)}",
        *([f"#PBS -J 0-{job.tasks - 1}"] if job.is_array else []),
        *([f"#PBS -q {job.queue}"] if job.queue else []),
        *([f"#PBS -A {job.account}"] if job.account else []),
        *([f"#PBS -M {job.mail}", "#PBS -m ae"] if job.mail else []),
        "#PBS -j oe",
        "#PBS -r y",
        "#PBS -V",
    ]


def _lsf(job: BatchJob) -> list[str]:
    array, number = (f"[1-{job.tasks}]", "%J_%I") if job.is_array else ("", "%J")
    minutes = -(-job.seconds // 60)
    return [
        f'#BSUB -J "{job.label}{array}"',
        f"#BSUB -n {job.ranks}",
        f"#BSUB -W {minutes // 60}:{minutes % 60:02}",
        *([f"#BSUB -q {job.queue}"] if job.queue else []),
        *([f"#BSUB -P {job.account}"] if job.account else []),
        *([f'#BSUB -R "rusage[mem={job.megabytes}MB]"'] if job.megabytes else []),
        *([f"#BSUB -u {job.mail}", "#BSUB -N"] if job.mail else []),
        f"#BSUB -o {job.label}-{number}.out",
        "#BSUB -wa USR1",
        f"#BSUB -wt {SCHEDULERS['lsf'].warning // 60}",
        f"#BSUB -Q {RESUME}",
    ]


def _slurm_identity(job: BatchJob) -> str:
    """The last job of an array has the number of the whole array: requeueing by that one would mean all its jobs."""
    return "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" if job.is_array else "$SLURM_JOB_ID"


def _sge(job: BatchJob) -> list[str]:
    number = "$JOB_ID.$TASK_ID" if job.is_array else "$JOB_ID"
    return [
        f"#$ -N {'' if job.label[0].isalpha() else 'j'}{job.label}",  # a name begins with a letter
        "#$ -S /bin/bash",
        "#$ -cwd",
        f"#$ -pe {job.parallel_environment} {job.ranks}",
        f"#$ -l h_rt={clock(job.seconds)}",
        *([f"#$ -t 1-{job.tasks}"] if job.is_array else []),
        *([f"#$ -q {job.queue}"] if job.queue else []),
        *([f"#$ -P {job.account}"] if job.account else []),
        *([f"#$ -l mem_free={job.megabytes}M"] if job.megabytes else []),
        *([f"#$ -M {job.mail}", "#$ -m ae"] if job.mail else []),
        f"#$ -o {job.label}-{number}.out",
        "#$ -j y",
        "#$ -r y",
    ]


SCHEDULERS = {
    "slurm": Scheduler(
        marker="#SBATCH",
        submit="sbatch",
        warning=60,
        header=_slurm,
        index='"$SLURM_ARRAY_TASK_ID"',
        identity=_slurm_identity,
        again=lambda job: [f'scontrol requeue "{_slurm_identity(job)}"'],
    ),
    "pbs": Scheduler(
        marker="#PBS",
        submit="qsub",
        warning=120,
        header=_pbs,
        index='"$PBS_ARRAY_INDEX"',
        identity=lambda _: "$PBS_JOBID",
        again=lambda _: [
            "# Many sites leave qrerun to their operators.",
            'qrerun "$PBS_JOBID" || echo "stopped with a checkpoint: submit this script again to go on" >&2',
        ],
        before=('cd "$PBS_O_WORKDIR" || exit 2',),
        watches_clock=True,
    ),
    "lsf": Scheduler(
        marker="#BSUB",
        submit="bsub",
        warning=120,
        header=_lsf,
        index='"$((LSB_JOBINDEX - 1))"',
        identity=lambda job: "${LSB_JOBID}_$LSB_JOBINDEX" if job.is_array else "$LSB_JOBID",
        again=lambda _: [f'echo "stopped with a checkpoint: LSF puts the job back into the queue (-Q {RESUME})" >&2'],
    ),
    "sge": Scheduler(
        marker="#$",
        submit="qsub",
        warning=120,
        header=_sge,
        index='"$((SGE_TASK_ID - 1))"',
        identity=lambda job: "$JOB_ID.$SGE_TASK_ID" if job.is_array else "$JOB_ID",
        again=lambda _: [f"exit {SGE_AGAIN}  # with this code SGE puts the job back into the queue"],
        watches_clock=True,
    ),
}


def script(scheduler: str, job: BatchJob) -> str:
    """The batch script of a job."""
    kind = SCHEDULERS[scheduler]
    if job.seconds < 2 * kind.warning:
        raise InputError(
            f"--time {clock(job.seconds)}: too short, the run is told to stop {kind.warning} seconds before the limit; "
            f"give it at least {clock(2 * kind.warning)}"
        )
    launcher = job.launcher.replace("{ranks}", str(job.ranks))
    run = f"{launcher} {shlex.join(['dpadmm', 'run', *job.arguments, '--resume'])}"
    if kind.watches_clock:
        run += f" --walltime {clock(job.seconds - kind.warning)}"
    if job.is_array:
        run += f" --index {kind.index}"
    losses = f'"$PWD/{job.label}-{kind.identity(job)}.lost."'
    if job.groups is not None:
        run += f" --pack {job.groups}"
    directives = [line for line in job.lines if line.startswith(kind.marker)]
    lines = [
        "#!/bin/bash",
        *kind.header(job),
        *directives,
        "",
        *kind.before,
        *([shlex.join(["module", "load", *job.modules])] if job.modules else []),
        *([f"export DPADMM_DATA={shlex.quote(job.data)}"] if job.data else []),
        *([f'export PATH={shlex.quote(str(job.programs))}:"$PATH"'] if job.programs else []),
        "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1",
        *(line for line in job.lines if line not in directives),
        "",
        "# USR1: stop after this iteration, write a checkpoint, leave with 75. mpiexec and srun hand it on to the ranks.",
        "told=yes",
        'trap \'told=yes; [ -z "$!" ] || kill -USR1 "$!"\' USR1',
        f"lost=$(mktemp {losses}XXXXXX)  # should a host be lost, it will be named here",
        f'{run} --lost "$lost" &',
        'while [ -n "$told" ]; do  # every USR1 ends the wait, but not the run',
        "  told=",
        '  wait "$!"',
        "  code=$?",
        "done",
        'if [ "$code" -ne 0 ] && [ -s "$lost" ]; then  # go on with the hosts that are left, but not for ever',
        f"  set -- {losses}*",
        f'  [ "$#" -gt {LOSSES} ] || code={RESUME}',
        "else",
        '  rm -f "$lost"',
        "fi",
        f'if [ "$code" -eq {RESUME} ]; then',
        *(f"  {line}" for line in kind.again(job)),
        "fi",
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def hand_in(scheduler: str, text: str) -> str:
    """Submit a script; what the scheduler says to it."""
    program = SCHEDULERS[scheduler].submit
    if shutil.which(program) is None:
        raise InputError(f"--now: {program} is not on this machine; leave --now out to see the script, and submit it there")
    process = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        said = "; ".join(process.stderr.split("\n")).strip("; ") or f"exit code {process.returncode}"
        raise RunError(f"{program} did not take the job: {said}")
    return process.stdout.strip()
