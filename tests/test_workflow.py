"""The whole chain through Snakemake, small: what runs, what does not run again, what is refused."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import ALL_JOBS, Project, copy_project, job_counts
from hald.networks.build import build_model
from hald.networks.weights import save_weights

pytestmark = pytest.mark.slow


@pytest.fixture
def copy(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished project that a test may change."""
    return finished.copied(tmp_path / "copy")


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def test_everything_is_there(finished: Project) -> None:
    tables = {path.name for path in (finished.folder / "results/tables").glob("[!.]*")}
    suffixes = ("csv", "md", "tex", "html", "records.html")
    assert tables == {f"{name}.{suffix}" for name in ("main", "other") for suffix in suffixes}
    assert len(files(finished.folder, "results/runs/*/*/seed-?.json")) == 2 * 2 + 1
    assert not list((finished.folder / "results/.partial").rglob("*"))  # nothing unfinished is left behind
    log = files(finished.folder, "results/logs/squeeze/*/*.log")[0].read_text()
    assert re.search(r"epoch 2/2 .*/s .* left  loss", log)


def test_a_second_run_does_nothing(finished: Project) -> None:
    assert "Nothing to be done" in finished.run().stdout


def test_a_dry_run_with_other_settings_changes_nothing(finished: Project) -> None:
    assert finished.planned("--config", "override={tiny: {evaluations: {hald: {lr: 0.5}}}}")["evaluate"] == 2
    assert "Nothing to be done" in finished.run().stdout


def test_the_catalogue_snakefile_has_the_same_default_target(project: Project) -> None:
    assert project.planned("-s", "workflow/Snakefile") == ALL_JOBS


def test_one_table_schedules_only_its_own_ancestors(project: Project) -> None:
    counts = project.planned("results/tables/other.csv")
    assert counts == {"dataset": 1, "squeeze": 1, "synthesize": 1, "relabel": 1, "evaluate": 1, "table": 1}


def test_an_evaluation_setting_reruns_runs_and_tables_only(copy: Project) -> None:
    copy.edit("config/experiments/tiny.yaml", "hard_epochs: 1", "hard_epochs: 2")
    assert copy.planned() == {"evaluate": 2, "table": 2, "all": 1}


def test_changed_relabel_code_reruns_labels_and_below(copy: Project) -> None:
    copy.edit("src/hald/labels/relabel.py", "FORWARD = 512", "FORWARD = 256")
    assert copy.planned() == {"relabel": 2, "evaluate": 3, "table": 2, "all": 1}


def test_changed_words_rerun_nothing(copy: Project) -> None:
    copy.edit("src/hald/labels/relabel.py", '"""Relabel: the', '"""Other words: the')
    copy.edit("workflow/scripts/job.py", '"""Every', '"""A')
    assert "Nothing to be done" in copy.run("-n").stdout


def test_going_back_to_earlier_settings_makes_the_table_again_without_training(copy: Project) -> None:
    before = (copy.folder / "results/tables/main.csv").read_text()
    copy.edit("config/experiments/tiny.yaml", "hard_epochs: 1", "hard_epochs: 2")
    copy.run("results/tables/main.csv")
    assert (copy.folder / "results/tables/main.csv").read_text() != before
    copy.edit("config/experiments/tiny.yaml", "hard_epochs: 2", "hard_epochs: 1")
    assert copy.planned("results/tables/main.csv") == {"table": 1}
    copy.run("results/tables/main.csv")
    assert (copy.folder / "results/tables/main.csv").read_text() == before


def test_a_removed_record_is_the_only_thing_made_again(copy: Project) -> None:
    victim = files(copy.folder, "results/runs/digits/rded*soft3*/seed-0.json")[0]
    content = victim.read_bytes()
    victim.unlink()
    assert copy.planned("results/tables/main.csv") == {"evaluate": 1, "table": 1}
    copy.run("results/tables/main.csv")
    assert victim.read_bytes() == content


def test_a_store_elsewhere_spares_teacher_and_images(finished: Project, project: Project, tmp_path: Path) -> None:
    stores = shutil.copytree(finished.folder / "results/labels", tmp_path / "shared")
    arguments = ("--config", f"stores={stores}")
    assert project.planned(*arguments) == {"dataset": 1, "evaluate": 3, "table": 2, "all": 1}
    project.run(*arguments)
    ours, theirs = ((p.folder / "results/tables/main.csv").read_text() for p in (project, finished))
    assert ours == theirs


def test_a_shared_store_grows_without_teacher_and_images(finished: Project, project: Project, tmp_path: Path) -> None:
    stores = shutil.copytree(finished.folder / "results/labels", tmp_path / "shared")
    project.edit("config/experiments/tiny.yaml", "slc: [4]", "slc: [6]")
    arguments = ("--config", f"stores={stores}", "--until", "relabel", "--")
    table = "results/tables/main.csv"
    assert project.planned(*arguments, table) == {"relabel": 1}
    project.run(*arguments, table)
    store = files(stores, "digits/rded*.zarr")[0]
    assert [path.name for path in files(store, "views/*.json")] == ["00000.json", "00001.json", "00002.json"]


def test_a_run_never_removes_views_that_another_one_made_meanwhile(finished: Project, project: Project) -> None:
    """Not when its own job for them begins, nor when that fails."""
    begin = "run(snakemake)"
    theirs = f"shutil.copytree('{finished.folder}/results/labels', 'results/labels', dirs_exist_ok=True)"
    meanwhile = f"if snakemake.rule == 'relabel':\n    import shutil\n    {theirs}\n    raise SystemExit(1)\n"
    project.edit("workflow/scripts/job.py", begin, f"{meanwhile}\n{begin}")
    table = "results/tables/main.csv"
    assert project.run("--until", "relabel", "--", table, check=False).returncode != 0
    assert len(files(project.folder, "results/labels/digits/rded*.zarr/views/*.json")) == 2
    project.edit("workflow/scripts/job.py", meanwhile, "")
    assert project.planned("--until", "relabel", "--", table) == {}


def test_a_view_that_was_removed_is_made_again(copy: Project) -> None:
    marker = files(copy.folder, "results/labels/digits/rded*.zarr/views/00001.json")[0]
    shutil.rmtree(copy.folder / "results/runs")
    assert "relabel" not in copy.planned()
    marker.unlink()
    assert copy.planned()["relabel"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_store_that_cannot_grow_is_refused_before_any_work(
    finished: Project, project: Project, tmp_path: Path
) -> None:
    stores = shutil.copytree(finished.folder / "results/labels", tmp_path / "shared")
    project.edit("config/experiments/tiny.yaml", "slc: [4]", "slc: [6]")
    arguments = ("--config", f"stores={stores}", "--", "results/tables/main.csv")
    subprocess.run(["mount", "--bind", stores, stores], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", stores], check=True)
        done = project.run(*arguments, check=False)
    finally:
        subprocess.run(["umount", stores], check=True)
    assert done.returncode != 0
    assert "lacks views that this run needs, and" in done.stdout
    assert "Traceback" not in done.stdout


def test_incomplete_marks_do_not_hide_the_rest_of_the_work(copy: Project) -> None:
    """A killed main process leaves marks behind; the next run must still do all that is missing."""
    import base64

    manifest = files(copy.folder, "results/datasets/*/manifest.json")[0].relative_to(copy.folder)
    marks = copy.folder / ".snakemake/incomplete"
    marks.mkdir(exist_ok=True)
    (marks / base64.b64encode(str(manifest).encode()).decode()).write_text("")
    shutil.rmtree(copy.folder / "results/teachers")
    shutil.rmtree(copy.folder / "results/labels")
    shutil.rmtree(copy.folder / "results/images")
    shutil.rmtree(copy.folder / "results/runs")
    expected = ALL_JOBS.copy()
    del expected["dataset"], expected["rank"], expected["preview"]
    assert copy.planned() == expected


def test_a_preview_waits_for_images_of_which_a_killed_job_left_an_empty_folder(copy: Project) -> None:
    images = files(copy.folder, "results/images/digits/rded*.zarr")[0]
    shutil.rmtree(copy.folder / "results/labels")
    shutil.rmtree(images)
    images.mkdir()
    sheet = files(copy.folder, "results/figures/previews/digits/rded*.png")[0].relative_to(copy.folder)
    (copy.folder / sheet).unlink()
    assert copy.planned(str(sheet)) == {"synthesize": 1, "preview": 1}


def test_source_edited_during_a_run_is_noticed_by_its_jobs(copy: Project) -> None:
    shutil.rmtree(copy.folder / "results/runs")
    # the first job of the run edits the code of the stage to come
    copy.edit(
        "workflow/scripts/job.py",
        "run(snakemake)",
        "import os\nfrom pathlib import Path\n"
        "source, edited = Path('src/hald/evaluation/losses/kl.py'), Path(f'{os.getpid()}.py')\n"
        "edited.write_text(source.read_text() + 'EDITED = 1\\n')\nedited.replace(source)\n\n"
        "run(snakemake)",
    )
    done = copy.run(check=False)
    assert done.returncode != 0
    assert "the source code of stage evaluate changed since this run was planned" in done.stdout


def test_slurm_profile_and_lint_are_clean_without_a_cluster(project: Project) -> None:
    done = project.call([sys.executable, "-m", "snakemake", "--profile", "slurm", "-n", "all"])
    assert "evaluate" in done.stdout
    lint = project.call([sys.executable, "-m", "snakemake", "--lint"])
    assert "your workflow is in a good condition" in lint.stdout


def test_other_rerun_triggers_and_rerun_incomplete_are_refused(project: Project) -> None:
    for words, message in (
        (["--rerun-triggers", "mtime", "params"], "for changes of mtime, params"),
        (["--rerun-incomplete"], "Leave it out: jobs go on from what is whole"),
    ):
        done = project.run("-n", *words, check=False)
        assert done.returncode != 0
        assert message in " ".join(done.stdout.split())


def test_a_dry_run_says_what_is_wrong_with_the_profile(tmp_path: Path) -> None:
    copy = copy_project(tmp_path / "project")
    copy.edit("slurm/config.yaml", "  # slurm_partition: gpu", "  partition: gpu")
    done = copy.call([sys.executable, "-m", "snakemake", "--profile", "slurm", "-n", "all"], check=False)
    assert done.returncode != 0
    assert "the profile gives every rule the resource 'partition'. Did you mean 'slurm_partition'?" in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("soft_only: {order", "soft_only: {ordr"), "unknown key 'ordr'. Did you mean 'order'?"),
        (("ipc: [2]", "ipc: [0]"), "0 is less than the minimum of 1"),
        (("slc: [4]", "slc: [0]"), "0 is less than the minimum of 1"),
        (("ipc: [2]", "ipc: [500]"), r"class '\d' has \d+ training images, the planned image sets need 500"),
        (("dataset: digits", "dataset: cifar100"), "dataset 'cifar100': .* set datasets.cifar100.root"),
    ],
)
def test_bad_input_is_refused_before_any_work(project: Project, change: tuple[str, str], message: str) -> None:
    project.edit("config/experiments/tiny.yaml", *change)
    command = ["env", "-u", "HALD_DATA", sys.executable, "-m", "snakemake", "--cores", "1"]
    done = project.call(command, check=False)
    assert done.returncode != 0
    assert re.search(message, done.stdout), done.stdout[-3000:]
    assert "Traceback" not in done.stdout
    assert not (project.folder / "results/datasets").exists()


def test_a_checkpoint_with_other_classes_is_refused_before_any_work(project: Project) -> None:
    weights = project.folder / "hundred.safetensors"
    save_weights(build_model("small/resnet10-w4", 100, 32), weights)
    project.edit(
        "config/experiments/tiny.yaml", "recipe: {epochs: 2", f"source: path, path: {weights}, recipe: {{epochs: 2"
    )
    done = project.run(check=False)
    assert done.returncode != 0
    assert re.search(r"'fc.weight' is \(100, 32\), the network has \(10, 32\)|'fc.bias' is \(100,\)", done.stdout)
    assert not (project.folder / "results/datasets").exists()


@pytest.mark.parametrize("artefact", ["teachers/*/*/teacher.json", "images/*/*/image_set.json", "labels/*/*/zarr.json"])
def test_other_class_orders_are_refused_before_any_work(copy: Project, artefact: str) -> None:
    (record,) = files(copy.folder, f"results/{artefact}")[:1]
    content = json.loads(record.read_text())
    classes = (content["attributes"] if record.name == "zarr.json" else content)["classes"]
    classes[0], classes[1] = classes[1], classes[0]
    record.write_text(json.dumps(content))
    done = copy.run("--config", "override={tiny: {evaluations: {hald: {lr: 0.002}}}}", check=False)
    assert done.returncode != 0
    assert re.search(r"has class order .* number 0 is '1'.* number 0 is '0'.* do not belong together", done.stdout)
    assert "localrule" not in done.stdout.partition("Select jobs")[2]
    assert "Finished jobid" not in done.stdout


def test_a_corrupt_image_is_named_and_nothing_is_made(project: Project, tmp_path: Path) -> None:
    write_folder(tmp_path / "data", classes=10, train=3)
    broken = tmp_path / "data/train/3/1.png"
    broken.write_bytes(broken.read_bytes()[:40])
    done = run_on_folder(project, tmp_path / "data")
    assert done.returncode != 0
    assert str(broken) in done.stdout
    assert not (project.folder / "results/teachers").exists()


def test_fetched_weights_are_found_offline(project: Project, tmp_path: Path) -> None:
    """Weights that lie where the rule `weights` puts them are used without asking any network."""
    write_folder(tmp_path / "data", classes=1000, train=2)
    save_weights(build_model("torchvision/squeezenet1_1", 1000, 32), project.folder / WEIGHTS)
    network = "arch: torchvision/squeezenet1_1, source: torchvision"
    project.edit(
        "config/experiments/tiny.yaml", "arch: small/resnet10-w4, recipe: {epochs: 2", f"{network}, recipe: {{epochs: 2"
    )
    done = run_on_folder(project, tmp_path / "data", "--until", "squeeze", classes=1000)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "rule weights" not in done.stdout
    (record,) = files(project.folder, "results/teachers/*/*/teacher.json")
    assert json.loads(record.read_text())["source"] == "torchvision"


WEIGHTS = "results/weights/torchvision/squeezenet1_1/IMAGENET1K_V1.safetensors"


def write_folder(root: Path, classes: int, train: int) -> None:
    """An image folder of small random pictures, one of each class to test with."""
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("test", 1)):
        for label in range(classes):
            folder = root / split / f"{label}"
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / f"{i}.png")


def run_on_folder(project: Project, root: Path, *arguments: str, classes: int = 10) -> subprocess.CompletedProcess[str]:
    dataset = f"source: imagefolder, root: {root}, size: 32, classes: {classes}, mean: [0, 0, 0], std: [1, 1, 1]"
    (project.folder / "config/config.yaml").write_text(f"experiments: [tiny]\ndatasets: {{own: {{{dataset}}}}}\n")
    project.edit("config/experiments/tiny.yaml", "dataset: digits", "dataset: own")
    return project.run(*arguments, check=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("arch: small/resnet10-w4, recipe", "arch: torchvision/squeezenet1_1, recipe"),
            "sre2l matches the statistics of BN",
        ),
        (
            ("rded: {method: rded, mipc: 600, num_crop: 2}", "rded: {method: external, path: out, bn_mode: running}"),
            "no folder for class number 9",
        ),
        (
            ("rded: {method: rded, mipc: 600, num_crop: 2}", "rded: {method: fadrm, mipc: 600}"),
            r"the planned image sets need 500",
        ),
    ],
)
def test_images_that_cannot_be_made_are_refused_before_any_work(
    project: Project, change: tuple[str, str], message: str
) -> None:
    for label in range(9):
        (project.folder / f"out/new{label:03d}").mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (32, 32)).save(project.folder / f"out/new{label:03d}/class{label:03d}_id{k:03d}.png")
    project.edit("config/experiments/tiny.yaml", *change)
    if "squeezenet" in change[1]:
        project.edit("config/experiments/tiny.yaml", "{method: rded, mipc: 600, num_crop: 2}", "{method: sre2l}")
    if "fadrm" in change[1]:
        project.edit("config/experiments/tiny.yaml", "ipc: [2], slc: [4]", "ipc: [500], slc: [500]")
    done = project.run(check=False)
    assert done.returncode != 0
    assert message in " ".join(done.stdout.split()), done.stdout[-3000:]
    assert "Traceback" not in done.stdout
    assert not (project.folder / "results/teachers").exists()


def test_too_few_images_are_noticed_at_once_when_the_dataset_is_known(copy: Project) -> None:
    copy.edit("config/experiments/tiny.yaml", "ipc: [2]", "ipc: [500]")
    done = copy.run(check=False)
    assert done.returncode != 0
    assert "the planned image sets need 500" in done.stdout.replace("\n", " ")
    assert "Finished jobid" not in done.stdout


def test_a_dry_run_needs_no_dataset(project: Project) -> None:
    project.edit("config/experiments/tiny.yaml", "dataset: digits", "dataset: imagenet1k")
    done = project.call(["env", "-u", "HALD_DATA", sys.executable, "-m", "snakemake", "-n", "--cores", "1"])
    assert "evaluate" in done.stdout


@pytest.mark.parametrize(
    ("preset", "jobs"),
    [
        ("sre2l/imagenet1k", {"recover": 50}),
        ("lpld/imagenet1k", {"recover": 100, "statistics": 1}),
        ("fadrm/imagenet1k", {"recover": 50, "rank": 100}),
        ("rded/imagenet1k", {"rank": 100}),
    ],
)
def test_imagenet_at_ipc_50_without_the_dataset(project: Project, preset: str, jobs: dict[str, int]) -> None:
    project.edit("config/experiments/tiny.yaml", "dataset: digits", "dataset: imagenet1k")
    project.edit("config/experiments/tiny.yaml", "{method: rded, mipc: 600, num_crop: 2}", f"{{preset: {preset}}}")
    project.edit("config/experiments/tiny.yaml", "ipc: [2], slc: [4]", "ipc: [50], slc: [50]")
    table = ["-n", "--cores", "1", "--until", "synthesize", "--", "results/tables/main.csv"]
    done = project.call(["env", "-u", "HALD_DATA", sys.executable, "-m", "snakemake", *table])
    assert job_counts(done.stdout) == {"dataset": 1, "squeeze": 1, "synthesize": 1} | jobs


def test_a_weak_teacher_stops_the_pipeline(project: Project) -> None:
    done = project.run("--config", "datasets={digits: {floor: 99.9}}", check=False)
    assert done.returncode != 0
    assert "the dataset's floor is 99.9 %" in done.stdout
    assert not (project.folder / "results/labels").exists() or not files(project.folder, "results/labels/*/*/zarr.json")


def test_a_failed_job_shows_the_end_of_its_log_and_its_traceback(copy: Project) -> None:
    shutil.rmtree(copy.folder / "results/runs")
    copy.edit(
        "src/hald/evaluation/divergence.py",
        "    return F.kl_div(",
        "    raise RuntimeError('broken on purpose')\n    return F.kl_div(",
    )
    done = copy.run(check=False)
    assert done.returncode != 0
    assert "RuntimeError: broken on purpose" in done.stdout
    assert any("Traceback" in log.read_text() for log in files(copy.folder, "results/logs/evaluate/*/*.log"))
