"""Batch scripts, run by a real bash with stand-ins for mpiexec and the scheduler's own commands."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from support import TOP, MakeConfig, Process, WriteToml, command, popen, sentences

from dpadmm_mpi.cli.schedulers import LOSSES, SCHEDULERS, BatchJob, script

TEMPLATES = {"slurm": "job.sbatch", "pbs": "job.pbs", "lsf": "job.lsf", "sge": "job.sge"}
# What scripts/job.* show: `dpadmm submit sweep.toml --ranks 20 --time 4:00:00` for a file with twelve configurations.
TEMPLATE = BatchJob("sweep", ("sweep.toml",), ranks=20, seconds=4 * 3600, tasks=12, programs=Path("/path/to/venv/bin"))
# The fourth job of array 77, as each scheduler says it.
NUMBERS = {
    "SLURM_JOB_ID": "80", "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3",
    "PBS_JOBID": "77[3].server", "PBS_ARRAY_INDEX": "3", "LSB_JOBID": "77", "LSB_JOBINDEX": "4",
    "JOB_ID": "77", "SGE_TASK_ID": "4",
}  # fmt: skip
StandIns: TypeAlias = Callable[..., Path]  # make(name=text): programs in a folder, which is returned
each_scheduler = pytest.mark.parametrize("scheduler", SCHEDULERS)


@pytest.fixture
def stand_ins(tmp_path: Path) -> StandIns:
    """make(name=text): programs in a folder with an awkward name, which a job is told to find."""
    folder = tmp_path / "it's $HOME/bin"
    folder.mkdir(parents=True)

    def make(**programs: str) -> Path:
        for name, text in programs.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)
        return folder

    return make


def start(scheduler: str, job: BatchJob, folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, **NUMBERS, "PBS_O_WORKDIR": str(folder)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    path = folder / "job"
    path.write_text(script(scheduler, job))
    return popen(["bash", path], env=environment, cwd=folder, **pipes)


@each_scheduler
@pytest.mark.parametrize("tasks", [1, 12])
def test_arguments_arrive_as_they_were_typed(stand_ins: StandIns, tmp_path: Path, scheduler: str, tasks: int) -> None:
    """Whatever is in a name, mpiexec gets it in one piece; an array adds its number, counted from 0."""
    folder = stand_ins(mpiexec=r'printf "%s\0" "$@" > arguments; echo "$OMP_NUM_THREADS" > threads')
    odd = ("a b.toml", "-o", 'it\'s "$(touch x)"; `y` *', "--set", 'name="x\ny"', "--set", "data.path=\\tmp")
    process = start(scheduler, BatchJob("x", odd, 5, 3600, tasks, programs=folder), tmp_path)
    assert process.communicate()[1] == ""
    expected = ["-n", "5", "dpadmm", "run", *odd, "--resume"]
    expected += ["--walltime", "00:58:00"] if scheduler in ("pbs", "sge") else []
    expected += ["--index", "3"] if tasks > 1 else []
    *arrived, option, file, end = (tmp_path / "arguments").read_text().split("\0")
    assert (arrived, option, end) == (expected, "--lost", "")
    assert file.startswith(f"{tmp_path}/x-")
    assert not Path(file).exists()  # nothing was lost
    assert (tmp_path / "threads").read_text() == "1\n"
    assert process.returncode == 0


REQUEUES = {"slurm": "scontrol requeue 77_3", "pbs": "qrerun 77[3].server", "lsf": None, "sge": None}
AGAIN = {"slurm": 75, "pbs": 75, "lsf": 75, "sge": 99}  # the script's own code; LSF and SGE put the job back for it
WAITING = 'trap "touch told; sleep 0.3; exit 75" USR1; touch ready; while true; do sleep 0.05; done'
CALLED = 'echo "$(basename "$0") $*" >> called'


@each_scheduler
def test_the_warning_reaches_mpiexec_and_75_puts_the_job_back(stand_ins: StandIns, tmp_path: Path, scheduler: str) -> None:
    folder = stand_ins(mpiexec=WAITING, scontrol=CALLED, qrerun=CALLED)
    process = start(scheduler, BatchJob("x", (), 5, 3600, 12, programs=folder), tmp_path)
    wait_for(process, lambda: (tmp_path / "ready").exists())
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=20)
    assert (tmp_path / "told").exists()
    assert process.returncode == AGAIN[scheduler]
    called = (tmp_path / "called").read_text() if (tmp_path / "called").exists() else ""
    assert called == ("" if REQUEUES[scheduler] is None else f"{REQUEUES[scheduler]}\n")


@each_scheduler
def test_any_number_of_warnings_does_not_end_the_wait(stand_ins: StandIns, tmp_path: Path, scheduler: str) -> None:
    """The job goes on after each of them until it leaves by itself, and its code is the script's."""
    stubborn = 'trap "echo >> told" USR1; touch ready; while [ ! -e leave ]; do sleep 0.05; done; exit 75'
    process = start(
        scheduler, BatchJob("x", (), 5, 3600, programs=stand_ins(mpiexec=stubborn, scontrol=CALLED, qrerun=CALLED)), tmp_path
    )
    wait_for(process, lambda: (tmp_path / "ready").exists())
    for number in range(1, 4):
        process.send_signal(signal.SIGUSR1)
        wait_for(process, lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text().count("\n") == number)  # noqa: B023
    (tmp_path / "leave").touch()
    process.communicate(timeout=20)
    assert process.returncode == AGAIN[scheduler]


@each_scheduler
def test_a_warning_at_the_very_beginning_is_handed_on(stand_ins: StandIns, tmp_path: Path, scheduler: str) -> None:
    """Warned by the job itself as its first act, when the script may not have come to its next line."""
    eager = 'trap "exit 75" USR1; kill -USR1 $PPID; for _ in $(seq 100); do sleep 0.05; done; exit 1'
    folder = stand_ins(mpiexec=eager, scontrol="exit 0", qrerun="exit 0")
    for _ in range(20):
        process = start(scheduler, BatchJob("x", (), 5, 3600, programs=folder), tmp_path)
        process.communicate()
        assert process.returncode == AGAIN[scheduler]


def wait_for(process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None
        time.sleep(0.02)


LOSING = 'echo "a host" > "${@: -1}"; exit {code}'  # in the file behind --lost


@each_scheduler
@pytest.mark.parametrize("code", [1, 137])
def test_a_lost_host_puts_the_job_back_whatever_the_launchers_code_but_not_for_ever(
    stand_ins: StandIns, tmp_path: Path, scheduler: str, code: int
) -> None:
    folder = stand_ins(mpiexec=LOSING.replace("{code}", str(code)), scontrol=CALLED, qrerun=CALLED)
    codes = []
    for _ in range(LOSSES + 1):
        process = start(scheduler, BatchJob("x", (), 5, 3600, 12, programs=folder), tmp_path)
        process.communicate(timeout=20)
        codes.append(process.returncode)
    assert codes == [AGAIN[scheduler]] * LOSSES + [code]
    called = (tmp_path / "called").read_text() if (tmp_path / "called").exists() else ""
    assert called == ("" if REQUEUES[scheduler] is None else LOSSES * f"{REQUEUES[scheduler]}\n")
    stand_ins(mpiexec=LOSING.replace("{code}", "0"))  # the last rank had left before
    process = start(scheduler, BatchJob("x", (), 5, 3600, 12, programs=folder), tmp_path)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_lsf_itself_puts_75_back() -> None:
    assert "\n#BSUB -Q 75\n" in script("lsf", TEMPLATE)


def test_a_single_slurm_job_is_put_back_by_its_own_number(stand_ins: StandIns, tmp_path: Path) -> None:
    process = start("slurm", BatchJob("x", (), 5, 3600, programs=stand_ins(mpiexec="exit 75", scontrol=CALLED)), tmp_path)
    process.communicate()
    assert (tmp_path / "called").read_text() == "scontrol requeue 80\n"


def test_pbs_says_what_to_do_where_qrerun_is_not_allowed(stand_ins: StandIns, tmp_path: Path) -> None:
    process = start("pbs", BatchJob("x", (), 5, 3600, programs=stand_ins(mpiexec="exit 75", qrerun="exit 159")), tmp_path)
    assert process.communicate()[1] == "stopped with a checkpoint: submit this script again to go on\n"
    assert process.returncode == 75


@each_scheduler
@pytest.mark.parametrize("code", [0, 1, 2, 137])
def test_other_codes_end_the_job(stand_ins: StandIns, tmp_path: Path, scheduler: str, code: int) -> None:
    folder = stand_ins(mpiexec=f"exit {code}", scontrol=CALLED, qrerun=CALLED)
    process = start(scheduler, BatchJob("x", (), 5, 3600, programs=folder), tmp_path)
    process.communicate()
    assert process.returncode == code
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("name", ['it\'s "odd" [1-3]', "-rf", "%j", "ä ö", "a\n#SBATCH --uid=0", "x" * 300])
@each_scheduler
def test_names_are_tame_in_the_header(scheduler: str, name: str) -> None:
    header = script(scheduler, BatchJob(name, (), 1, 3600)).split("\n\n")[0].splitlines()[1:]
    marker = {"slurm": "#SBATCH --[a-z-]+", "pbs": "#PBS -[A-Za-z]+", "lsf": "#BSUB -[A-Za-z]+", "sge": r"#\$ -[A-Za-z]+"}[
        scheduler
    ]
    plain = script(scheduler, BatchJob("x", (), 1, 3600)).split("\n\n")[0].splitlines()[1:]
    assert [re.findall(f"^{marker}", line) for line in header] == [re.findall(f"^{marker}", line) for line in plain]
    assert all(re.match(marker, line) for line in header)
    assert all(re.fullmatch(r'#[A-Za-z0-9 =:,@%."/$_-]+', line) and len(line) < 100 for line in header)


@each_scheduler
def test_templates_are_what_submit_writes(scheduler: str) -> None:
    text = (TOP / "scripts" / TEMPLATES[scheduler]).read_text()
    assert text == script(scheduler, TEMPLATE)


# What a site may want, as each scheduler says it.
WANTED = {
    "slurm": [
        "#SBATCH --account=physics",
        "#SBATCH --mem-per-cpu=800M",
        "#SBATCH --mail-user=me@x.org",
        "#SBATCH --mail-type=END,FAIL",
    ],
    "pbs": ["#PBS -A physics", "#PBS -l select=5:ncpus=1:mpiprocs=1:mem=800mb", "#PBS -M me@x.org", "#PBS -m ae"],
    "lsf": ["#BSUB -P physics", '#BSUB -R "rusage[mem=800MB]"', "#BSUB -u me@x.org", "#BSUB -N"],
    "sge": ["#$ -P physics", "#$ -l mem_free=800M", "#$ -M me@x.org", "#$ -m ae", "#$ -pe orte 5"],
}  # fmt: skip


@each_scheduler
def test_what_a_site_may_want(stand_ins: StandIns, tmp_path: Path, scheduler: str) -> None:
    """Directives stand in the header; lines of the user's own, the data folder and modules are there before the run begins."""
    marker = SCHEDULERS[scheduler].marker
    folder = stand_ins(
        srun='printf "%s\n" "$@" "$DPADMM_DATA" "$MORE" > arguments', module='echo "$@" > loaded', mpiexec="exit 1"
    )
    job = BatchJob(
        "x", ("my.toml",), 5, 3600, 12, programs=folder, account="physics", megabytes=800, modules=("gcc/13", "openmpi"),
        mail="me@x.org", lines=(f"{marker} -z 1", "export MORE='a b'"), launcher="srun --n={ranks}", groups=4, data="/a b",
        parallel_environment="orte",
    )  # fmt: skip
    header = script(scheduler, job).split("\n\n")[0].splitlines()
    assert {*WANTED[scheduler], f"{marker} -z 1"} <= set(header)
    assert not any(" -t" in line or "-J 0" in line or "array" in line or "[1-" in line for line in header)  # one job for all
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "PBS_O_WORKDIR": str(tmp_path)}
    subprocess.run(["bash"], input=script(scheduler, job), env=environment, cwd=tmp_path, text=True, check=True, timeout=20)
    walltime = ["--walltime", "00:58:00"] if SCHEDULERS[scheduler].watches_clock else []
    expected = ["--n=5", "dpadmm", "run", "my.toml", "--resume", *walltime, "--pack", "4", "--lost", "/a b", "a b"]
    arrived = (tmp_path / "arguments").read_text().splitlines()
    del arrived[arrived.index("--lost") + 1]
    assert arrived == expected
    assert (tmp_path / "loaded").read_text() == "load gcc/13 openmpi\n"


def submit(*arguments: object, **options: Any) -> Process:
    return command("submit", "--scheduler", "slurm", *arguments, **options)


def test_ranks_and_array_come_from_the_configuration(config: MakeConfig, write_toml: WriteToml) -> None:
    path = write_toml(config() | {"variant": [{"name": "a"}, {"name": "b", "network": {"graph": "ring", "nodes": 4}}]})
    assert "#SBATCH --array=0-1\n" in submit(path).stdout
    assert "mpiexec -n 4 dpadmm" in submit(path).stdout  # more ranks than nodes would be refused
    assert "mpiexec -n 3 dpadmm" in submit(path, "--ranks", 3).stdout
    assert "mpiexec -n 4 dpadmm" in submit(path, "--ranks", 100).stdout
    alone = submit(write_toml(config(), "alone.toml"), "--set", "privacy.delta=1e-6", "--partition", "long").stdout
    assert "mpiexec -n 6 dpadmm" in alone
    assert "--array" not in alone
    assert "--index" not in alone
    assert "--set privacy.delta=1e-6 --resume" in alone
    assert "#SBATCH --partition=long\n" in alone
    packed = submit(path, "--pack", 2, environment={"DPADMM_DATA": "/some where"}).stdout
    assert "mpiexec -n 8 dpadmm" in packed and "--resume --pack 2" in packed and "--array" not in packed
    assert "export DPADMM_DATA='/some where'\n" in packed


def test_memory_comes_from_the_estimate(config: MakeConfig, write_toml: WriteToml) -> None:
    """Twice what `check` says of the largest rank of the largest variant that can work, to the next 100 MB."""
    large = {"name": "large", "data": {"records": 200_000, "features": 100}}
    impossible = {"name": "impossible", "data": {"records": 2}}
    path = write_toml(config() | {"variant": [{"name": "a"}, large, impossible]})
    said = command("check", path, "--only", "large", "--ranks", 2).stdout
    per_rank = float(re.search(r"memory about ([\d.]+) MB per rank", said)[1])  # type: ignore[index]
    written = int(re.search(r"--mem-per-cpu=(\d+)M", submit(path, "--ranks", 2).stdout)[1])  # type: ignore[index]
    assert written % 100 == 0 and 0 <= written - 2 * per_rank <= 101
    assert "#SBATCH --mem-per-cpu=4000M\n" in submit(path, "--memory", "4G").stdout
    assert "--mem" not in submit(path, "--memory", "none").stdout


def test_variants_do_not_share_a_file(config: MakeConfig, write_toml: WriteToml, tmp_path: Path) -> None:
    """Neither a job of an array nor one by hand may write what another variant writes."""
    path = write_toml(config() | {"variant": [{"name": "a"}, {"name": "b"}]})
    for process in (submit(path, "-o", "x.h5"), command("run", path, "-o", tmp_path / "x.h5", "--index", 0)):
        assert process.returncode == 2
        assert "there are 2 configurations; name a folder" in sentences(process)[0]
    assert command("run", path, "-o", tmp_path / "x.h5", "--only", "a").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--time", "4h"), "dpadmm: --time 4h: write hours, minutes and seconds, as in 12:00:00"),
        (("--time", "0:01:59"), "dpadmm: --time 00:01:59: too short, the run is told to stop 60 seconds before the limit; "
         "give it at least 00:02:00"),
        (("--queue", "a b"), 'dpadmm: --queue "a b": not the name of a queue or partition'),
        (("--account", "a b"), 'dpadmm: --account "a b": not the name of an account or project'),
        (("--mail", "me"), 'dpadmm: --mail "me": not an address'),
        (("--module", "x; rm"), 'dpadmm: --module "x; rm": not the name of a module'),
        (("--line", "a\nb"), "dpadmm: --line: one line each; give the option again for another"),
        (("--memory", "4"), "dpadmm: --memory 4: write megabytes or gigabytes, as in 800M or 4G, or none, or estimate"),
        (("--set", "itertions=3"), 'dpadmm: itertions: unknown key; did you mean "iterations"?'),
    ],
)  # fmt: skip
def test_what_cannot_be_submitted_is_refused(arguments: tuple[str, str], sentence: str) -> None:
    process = submit(*arguments)
    assert process.returncode == 2
    assert sentences(process) == [sentence]
    assert process.stdout == ""


def test_now_without_a_scheduler_on_this_machine(tmp_path: Path) -> None:
    process = submit("--now", environment={"PATH": str(tmp_path)})
    assert process.returncode == 2
    assert sentences(process)[0].startswith("dpadmm: --now: sbatch is not on this machine; ")


def test_now_hands_the_script_to_the_scheduler(stand_ins: StandIns, tmp_path: Path) -> None:
    folder = stand_ins(sbatch="/bin/cat > received; echo Submitted batch job 7")
    process = submit("--now", environment={"PATH": str(folder)}, cwd=tmp_path)
    assert process.stdout == "Submitted batch job 7\n"
    assert (tmp_path / "received").read_text() == submit().stdout
