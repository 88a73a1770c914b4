"""`hald images`: look at image sets, write them for other tools, take in those made elsewhere."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from hald.cli.options import add_config
from hald.config.read import config_from
from hald.errors import UserError
from hald.files import read_json, size, tree_bytes
from hald.pipeline import make_plan


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the subcommands."""
    parser = commands.add_parser(
        "images",
        help="distilled image sets: ls, info, export, import",
        description="Distilled image sets of the configured `results:` folder.",
        epilog="examples:\n"
        "  hald images ls\n"
        "  hald images info results/images/digits/SET.zarr\n"
        "  hald images export SET.zarr out --format imagefolder   # one folder of PNG files per class\n"
        "  hald images export SET.zarr out --format parquet       # out/train.parquet: load_dataset('out') opens it\n"
        "  hald images import /data/fadrm_ipc10 --dataset results/datasets/NAME_KEY --ipc 10 --to imported.zarr",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    ls = actions.add_parser("ls", help="list the sets", description="list the sets")
    add_config(ls)
    ls.set_defaults(run=_ls)
    info = actions.add_parser("info", help="explain one set", description="explain one set")
    info.add_argument("set", type=Path)
    info.set_defaults(run=_info)
    export = actions.add_parser("export", help="write a set for other tools", description="write a set for other tools")
    export.add_argument("set", type=Path)
    export.add_argument("target", type=Path, help="folder to make")
    export.add_argument("--format", required=True, choices=["imagefolder", "parquet"])
    export.set_defaults(run=_export)
    bring = actions.add_parser("import", help="make a set of a folder of images", description="make a set of a folder")
    bring.add_argument("source", type=Path, help="class folders: names, new<ccc> or <ccccc>; JPEG or PNG")
    bring.add_argument("--dataset", type=Path, required=True, help="prepared dataset that the classes are those of")
    bring.add_argument("--ipc", type=int, required=True, help="images per class to take")
    bring.add_argument("--to", type=Path, required=True, metavar="SET", help="image set (.zarr) to make")
    bring.add_argument("--teacher", type=Path, help="folder of a teacher that grades the set")
    bring.set_defaults(run=_import)


def _sets(folder: Path) -> Iterator[Path]:
    """Finished sets below a results folder."""
    yield from sorted(path.parent for path in folder.glob("images/*/*.zarr/image_set.json"))


def _ls(options: argparse.Namespace) -> int:
    plan = make_plan(config_from(options.config))
    needed = {plan.folder("synthesize", key) for key in plan.images}
    print(f"{'set':<44}{'planned':>9}{'classes':>9}{'ipc':>5}{'classified':>12}{'diversity':>11}{'bytes':>10}")
    for path in _sets(Path(plan.results)):
        record = read_json(path / "image_set.json")
        share, cosine = record.get("classified"), record.get("diversity")
        print(
            f"{path.relative_to(Path(plan.results, 'images'))!s:<44}{'yes' if path in needed else '-':>9}"
            f"{len(record['classes']):>9}{record['ipc']:>5}{'-' if share is None else f'{share:.1f} %':>12}"
            f"{'-' if cosine is None else f'{cosine:.4f}':>11}{size(tree_bytes(path)):>10}"
        )
    return 0


def _info(options: argparse.Namespace) -> int:
    from hald.synthesis.image_set import open_set

    images = open_set(options.set)
    record, losses = images.record(), images.losses()
    known = losses[losses == losses]
    lines = {
        "set": images.folder,
        "method": record.get("method", "unknown"),
        "images": f"{record['count']}, {images.ipc} per class",
        "classes": f"{len(images.classes)}: {', '.join(images.classes[:6])}{' ...' if len(images.classes) > 6 else ''}",
        "final loss": f"mean {known.mean():.4f}, largest {known.max():.4f}" if len(known) else "none",
        "digest": images.digest,
        "preview": images.folder / "preview.png",
        "bytes": size(tree_bytes(images.folder)),
    }
    for teacher in record.get("teachers", []):
        cosine = teacher["diversity"]
        alike = "" if cosine is None else f", mean cosine within classes {cosine:.4f} (lower: more diverse)"
        lines[f"by {teacher['arch'].rpartition('/')[2]}"] = f"{teacher['classified']:.1f} % classified as meant{alike}"
    for note in ("note", "resized", "class_order"):
        if note in record:
            lines[note.replace("_", " ")] = record[note]
    for name, value in lines.items():
        print(f"{name:<15}{value}")
    return 0


def _export(options: argparse.Namespace) -> int:
    from hald.synthesis.exchange import export_folder, export_parquet
    from hald.synthesis.image_set import open_set

    write = export_folder if options.format == "imagefolder" else export_parquet
    print(f"{options.target}: {write(open_set(options.set), options.target)} images")
    return 0


def _import(options: argparse.Namespace) -> int:
    from hald.synthesis.exchange import import_folder
    from hald.synthesis.image_set import open_set

    if options.ipc < 1:
        raise UserError(f"--ipc {options.ipc}: take one image of each class at least")
    if not (options.dataset / "manifest.json").is_file():
        raise UserError(
            f"there is no prepared dataset at {options.dataset}; name one of results/datasets/ "
            f"(`snakemake --cores all --until dataset` makes them)"
        )
    import_folder(options.source, options.dataset, options.to, options.ipc, options.teacher)
    print(f"{options.to}: {open_set(options.to).record()['count']} images")
    return 0
