"""A project that runs on the test cluster, and what Slurm itself remembers of its jobs."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from conftest import Project, copy_project

HERE = Path(__file__).parent
BASE = Path("/run/hald-slurm")
SLURM = {"SLURM_CONF": str(BASE / "slurm.conf"), "PATH": f"{BASE / 'bin'}:{os.environ['PATH']}"}
GPU_RULES = {"squeeze", "rank", "statistics", "recover", "synthesize", "relabel", "evaluate", "analysis"}
GPU_NODES = {"n1", "n2"}
# The profile's settings are those of a real cluster; only waiting is shortened.
QUICK = ["--slurm-init-seconds-before-status-checks", "3", "--latency-wait", "10"]


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm remembers of one job."""

    number: int
    rule: str
    what: str  # rule and wildcards
    state: str
    node: str
    submitted: float
    started: float
    ended: float
    minutes: int
    memory: int  # MB
    gpus: int
    restarts: int


@dataclass
class Run:
    """A project and its main Snakemake process."""

    project: Project
    process: subprocess.Popen[str] | None = None
    output: Path = Path()

    @property
    def folder(self) -> Path:
        return self.project.folder

    def start(self, *targets: str) -> None:
        """Begin `snakemake --profile slurm all`."""
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *QUICK, "all", *targets]
        self.output = self.folder.with_suffix(".out")
        with self.output.open("a") as stream:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment(self.folder),
                stdout=stream,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def finish(self, seconds: float = 500) -> int:
        """Wait for the main process to end; its exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def until(self, what: Callable[[], object], seconds: float = 200) -> None:
        """Wait for something to be the case."""
        assert self.process is not None
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"timeout\n{self.text()[-3000:]}\n{slurm('squeue', '--states=all')}"
            assert self.process.poll() is None, self.text()[-6000:]
            time.sleep(0.2)

    def text(self) -> str:
        """What the main process printed."""
        return self.output.read_text()

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run another command in the project's folder."""
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env=environment(self.folder),
            text=True,
            capture_output=True,
        )

    def log(self, rule: str) -> str:
        """Logs of a rule's jobs, one after the other."""
        return "\n".join(path.read_text() for path in sorted((self.folder / f"results/logs/{rule}").rglob("*.log")))

    def place(self, job: SlurmJob) -> str:
        """Where the job's own log says that it ran."""
        (line,) = re.findall(rf"at work on (.*Slurm job {job.number}\b.*)", self.log(job.rule))
        return str(line)

    def files(self, pattern: str) -> list[Path]:
        return sorted((self.folder / "results").glob(pattern))

    def jobs(self, rule: str | None = None) -> list[SlurmJob]:
        """Slurm's own account of this project's jobs, ended ones too."""
        return self.mine((accounted if has_accounting() else remembered)(), rule)

    def mine(self, found: list[tuple[str, SlurmJob]], rule: str | None) -> list[SlurmJob]:
        """Those of all jobs that this project submitted, or of one rule."""
        return [job for workdir, job in found if workdir == str(self.folder) and rule in (None, job.rule)]

    def lacks(self, kind: str) -> Path:
        """The receipt of the units of a folder that has lost them."""
        (folder,) = self.files(f"{kind}/*/*")
        return folder / "done/00000-00009.json"

    def ranked(self) -> int:
        """Classes whose crops are ranked."""
        return len(self.files("rankings/*/*/*.npz"))

    def running(self, rule: str) -> list[SlurmJob]:
        """Jobs that run now: the controller knows it before the database does."""
        return [job for job in self.mine(remembered(), rule) if job.state == "RUNNING"]


def environment(folder: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name != "HALD_PLAN"}
    return clean | SLURM | {"PYTHONPATH": str(folder / "src")}


def slurm(*command: str) -> str:
    """Ask the cluster."""
    return subprocess.run(command, env=os.environ | SLURM, check=True, text=True, capture_output=True).stdout


def has_accounting() -> bool:
    """Whether this cluster writes its jobs to a database (and soon forgets them otherwise)."""
    return "accounting_storage/slurmdbd" in (BASE / "slurm.conf").read_text()


def remembered() -> list[tuple[str, SlurmJob]]:
    """All jobs that the controller still knows: folder and job."""
    return [parse(line) for line in slurm("scontrol", "show", "jobs", "--oneliner").splitlines() if "JobId=" in line]


def moment(text: str) -> float:
    """A time as Slurm writes it; not a number where there is none yet."""
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) if text[:1].isdigit() else float("nan")


def megabytes(text: str) -> int:
    """`1500M`, `15.6G`."""
    found = re.search(r"mem=([\d.]+)([MG])", text)
    return round(float(found[1]) * (1000 if found[2] == "G" else 1)) if found else 0


def accounted() -> list[tuple[str, SlurmJob]]:
    """All jobs in the database. A job that was put back into the queue has a line for every start."""
    fields = "JobIDRaw,Comment,State,NodeList,Submit,Start,End,TimelimitRaw,ReqTRES,WorkDir"
    listing = slurm("sacct", "-X", "-a", "-D", "--starttime=now-1days", "-n", "-P", f"--format={fields}")
    latest: dict[int, tuple[str, SlurmJob]] = {}
    for line in listing.splitlines():
        number, comment, state, node, submitted, started, ended, minutes, wanted, workdir = line.split("|")
        before = latest.get(int(number))
        job = SlurmJob(
            number=int(number),
            rule=comment.removeprefix("rule_").split("_")[0],
            what=comment,
            state=state.split()[0],  # CANCELLED by 0
            node=node,
            submitted=moment(submitted),
            started=moment(started),
            ended=moment(ended),
            minutes=int(minutes) if minutes.isdigit() else 0,
            memory=megabytes(wanted),
            gpus=int((re.search(r"gres/gpu=(\d+)", wanted) or [0, 0])[1]),
            restarts=before[1].restarts + 1 if before else 0,
        )
        latest[int(number)] = (workdir, job)
    return list(latest.values())


def parse(line: str) -> tuple[str, SlurmJob]:
    """One line of `scontrol show jobs --oneliner`: the folder it worked in, and the job."""

    def field(name: str) -> str:
        found = re.search(rf"(?:^| ){name}=(\S*)", line)
        return found.group(1) if found else ""

    hours, minutes = field("TimeLimit").split(":")[:2]
    job = SlurmJob(
        number=int(field("JobId")),
        rule=field("Comment").removeprefix("rule_").split("_")[0],
        what=field("Comment"),
        state=field("JobState"),
        node=field("NodeList"),
        submitted=moment(field("SubmitTime")),
        started=moment(field("StartTime")),
        ended=moment(field("EndTime")),
        minutes=60 * int(hours.split("-")[-1]) + int(minutes),
        memory=megabytes(field("TRES")),
        gpus=int((re.search(r"gpu:(\d+)", field("TresPerJob")) or [0, 0])[1]),
        restarts=int(field("Restarts")),
    )
    return field("WorkDir"), job


def make_project(folder: Path) -> Project:
    project = copy_project(folder)
    shutil.copy(HERE / "experiment.yaml", folder / "config/experiments/cluster.yaml")
    # fixed, so that jobs are the same however slow this machine is today
    sizes = "jobs: {views_per_job: 20, seeds_per_job: 2, units_per_job: 10}"
    (folder / "config/config.yaml").write_text(f"experiments: [cluster]\ndatasets: {{digits: {{floor: 0}}}}\n{sizes}\n")
    return project


def guarded(run: Run) -> Iterator[Run]:
    """No job of a failed test goes on behind the next one's back."""
    yield run
    if run.process is not None and run.process.poll() is None:
        run.process.kill()
    for job in run.jobs():
        if job.state in ("RUNNING", "PENDING"):
            slurm("scancel", str(job.number))


def same_results(run: Run, project: Project) -> None:
    """Tables, records and analyses are the same bytes."""
    for pattern in ("tables/[!.]*", "runs/*/*/seed-?.json", "analyses/*/*/analysis.json"):
        theirs = {
            path.relative_to(project.folder): path.read_bytes() for path in (project.folder / "results").glob(pattern)
        }
        ours = {path.relative_to(run.folder): path.read_bytes() for path in run.files(pattern)}
        assert theirs, pattern
        assert ours == theirs, f"{pattern} differ"


@dataclass(frozen=True)
class Overheads:
    """Seconds of an allocation before the work begins and after it has ended (worst job), and a report."""

    before: float
    after: float
    text: str


def overheads(run: Run) -> Overheads:
    """From Slurm's times (whole seconds) and the times in the jobs' own logs."""
    rows = []
    for job in run.jobs():
        for path in (run.folder / f"results/logs/{job.rule}").rglob("*.log"):
            text = path.read_text()
            if re.search(rf"Slurm job {job.number}\b", text):
                begun, done = (clock(job, line[:8]) for line in (text.splitlines()[0], text.splitlines()[-1]))
                rows.append((job.started - job.submitted, begun - job.started, done - begun, job.ended - done))
    names = ("in the queue", "start-up", "at work", "ending")
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    nodes = Counter(job.node for job in run.jobs())
    text = f"{len(rows)} jobs, seconds per job: " + ", ".join(f"{n} {m:.1f}" for n, m in zip(names, mean, strict=True))
    text += f"; jobs by node, from Slurm's own records: {dict(sorted(nodes.items()))}"
    return Overheads(max(row[1] for row in rows), max(row[3] for row in rows), text)


def clock(job: SlurmJob, text: str) -> float:
    """A log's time of day as a moment of the job's day."""
    day = time.strftime("%Y-%m-%d", time.localtime(job.started))
    return time.mktime(time.strptime(f"{day} {text}", "%Y-%m-%d %H:%M:%S"))


def put_before(project: Project, rule: str, code: str) -> None:
    """Have the jobs of a rule do something first. (The script is no part of any key.)"""
    begin = "run(snakemake)"
    guarded = f"if snakemake.rule == '{rule}':\n{textwrap.indent(code, '    ')}"
    project.edit("workflow/scripts/job.py", begin, f"{guarded}\n{begin}")


def limit(project: Project, rule: str, **resources: str) -> None:
    """Give a rule other resources in the profile. (On the command line they would replace all those of the profile.)"""
    path = project.folder / "slurm/config.yaml"
    profile = yaml.safe_load(path.read_text())
    profile["set-resources"][rule] |= {name: yaml.safe_load(value) for name, value in resources.items()}
    path.write_text(yaml.safe_dump(profile))


# A job that needs 2 GB beside its own.
HOG = """import time
HOG = bytearray(b"1") * (2 << 30)
time.sleep(3)  # Slurm looks every second
"""


def out_of_memory(run: Run, rule: str) -> None:
    """A job above its memory is killed, and has more the next time."""
    first, *_, last = sorted(run.jobs(rule), key=lambda job: job.number)
    assert first.state in ("OUT_OF_MEMORY", "FAILED", "CANCELLED")
    assert last.state == "COMPLETED"
    assert last.memory > first.memory == 1500
    print(f"memory: {first.state} with {first.memory} MB, {last.state} with {last.memory} MB; no unit had begun")
