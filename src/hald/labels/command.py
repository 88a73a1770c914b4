"""`hald labels`: look at label stores, verify, import, export and clear them away."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hald.errors import UserError
from hald.files import tree_bytes
from hald.plan import make_plan
from hald.plan.config import config_from
from hald.plan.summary import size

if TYPE_CHECKING:  # torch takes seconds to import; help texts should not
    from hald.labels.store import LabelStore


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the subcommands."""
    parser = commands.add_parser(
        "labels",
        help="soft-label stores: ls, info, verify, import, export, gc",
        description="Soft-label stores of the configured `stores:` folder.",
        epilog="examples:\n"
        "  hald labels ls\n"
        "  hald labels verify                         # every hash of every store\n"
        "  hald labels verify --deep 2 STORE.zarr     # and label two of its views again\n"
        "  hald labels export STORE.zarr /tmp/out     # for the released trainer\n"
        "  hald labels import /data/fadrm_bs16_slc100_ipc10 --images results/images/x.zarr --to imported.zarr\n"
        "  hald labels gc                             # what no experiment needs; --remove to delete it",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    _action(actions, "ls", "list the stores", _ls)
    info = _action(actions, "info", "explain one store", _info)
    info.add_argument("store", type=Path)
    verify = _action(actions, "verify", "check every hash; name what is bad", _verify)
    verify.add_argument("stores", type=Path, nargs="*", help="default: all stores of the config")
    verify.add_argument(
        "--deep", type=int, default=0, metavar="N", help="label N views of each store again and compare"
    )
    bring = _action(actions, "import", "read a label directory of the released HALD code", _import)
    bring.add_argument("source", type=Path, help="folder with epoch_<e>.tar and sampler_indices_dict.pt")
    bring.add_argument("--images", type=Path, required=True, help="image set (.zarr) that the labels are about")
    bring.add_argument("--to", type=Path, required=True, metavar="STORE", help="store to make")
    bring.add_argument("--codec", default="i16", choices=["u8", "i16", "f16"], help="default: i16, exact to fp16")
    export = _action(actions, "export", "write a store in the released format, with its images", _export)
    export.add_argument("store", type=Path)
    export.add_argument("target", type=Path, help="folder to make")
    collect = _action(actions, "gc", "list stores that no experiment needs", _gc)
    collect.add_argument("--remove", action="store_true", help="remove them (asks first)")
    collect.add_argument("--yes", action="store_true", help="with --remove: do not ask")


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, run: object
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="KEY=VALUE", help="change settings, as for snakemake"
    )
    parser.set_defaults(run=run)
    return parser


def _open(path: Path) -> "LabelStore":
    from hald.labels.store import LabelStore

    return LabelStore(path)


def _stores(folder: Path) -> Iterator[Path]:
    """Finished stores below a `stores:` folder."""
    yield from sorted(path.parent for path in folder.glob("*/*.zarr/zarr.json"))


def _ls(options: argparse.Namespace) -> int:
    plan = make_plan(config_from(options.config))
    needed = {plan.store_dir(key): plan.views[key] for key in plan.labels}
    print(f"{'store':<58}{'views':>7}{'planned':>9}{'images':>8}{'classes':>9}  {'codec':<6}{'labels':>10}")
    for path in _stores(Path(plan.stores)):
        try:
            store = _open(path)
        except UserError as error:
            print(f"{path.relative_to(plan.stores)!s:<58}  unreadable: {error}")
            continue
        header = store.header
        wanted = str(needed.get(path, "-"))
        print(
            f"{path.relative_to(plan.stores)!s:<58}{len(store.views()):>7}{wanted:>9}{header.count:>8}"
            f"{len(header.classes):>9}  {header.codec:<6}{size(label_bytes(store)):>10}"
        )
    return 0


def label_bytes(store: "LabelStore") -> int:
    """Bytes of all whole views, markers included, images and teachers not."""
    arrays = sum(entry["bytes"] for view in store.views() for entry in store.marked_files(view).values())
    return int(arrays) + sum(store.marker(view).stat().st_size for view in store.views())


def _info(options: argparse.Namespace) -> int:
    store = _open(options.store)
    header, views = store.header, store.views()
    teachers = ", ".join(f"{entry['arch']} ({entry['top1']:.2f} % top-1)" for entry in header.teachers)
    lines = {
        "store": store.folder,
        "format": header.format,
        "key": header.key,
        "views": f"{len(views)} whole" + (f", up to number {views[-1]}" if views else ""),
        "images": f"{header.count} at {header.size} px, batches of {header.batch} ({header.batches} per view)",
        "classes": f"{len(header.classes)}: {', '.join(header.classes[:6])}{' ...' if len(header.classes) > 6 else ''}",
        "soft labels": f"{len(views) * header.count} (SLC {len(views) * header.count // len(header.classes)})",
        "codec": header.codec + (f", {header.top_k} logits kept" if header.top_k else ""),
        "bytes": f"labels {size(label_bytes(store))}, everything {size(tree_bytes(store.folder))}",
        "teachers": teachers or "none (imported)",
        "BN statistics": header.spec.get("bn_mode", "unknown"),
        "crops": ", ".join(
            f"{name} {header.view_settings[name]}" for name in ("scale", "ratio", "flip", "mix", "seed")
        ),
        "made with": ", ".join(f"{name} {version}" for name, version in header.versions.items()),
    }
    for name, value in lines.items():
        print(f"{name:<15}{value}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from hald.device import setup
    from hald.labels.verify import verify_store

    stores = options.stores or list(_stores(Path(make_plan(config_from(options.config)).stores)))
    if not stores:
        print("there are no label stores to verify")
    bad = 0
    for path in stores:
        problems = 0
        for problem in verify_store(path, options.deep, setup(2)):
            print(problem)
            problems += 1
        if not problems:
            store = _open(path)
            print(f"{path}: {len(store.views())} views, {size(label_bytes(store))} of labels, all as they should be")
        bad += problems
    return 1 if bad else 0


def _import(options: argparse.Namespace) -> int:
    from hald.labels.exchange import import_labels
    from hald.synthesis.imageset import open_set

    images = open_set(options.images)
    import_labels(options.source, images.images(), images.classes, options.to, options.codec)
    print(f"{options.to}: {len(_open(options.to).views())} views")
    return 0


def _export(options: argparse.Namespace) -> int:
    from hald.labels.exchange import export_labels

    store = _open(options.store)
    export_labels(store, options.target)
    print(f"{options.target}: {len(store.views())} label epochs and {store.header.count} images")
    return 0


def _gc(options: argparse.Namespace) -> int:
    """Stores that no file of config/experiments (nor the config's own choice) needs."""
    everything = sorted(path.stem for path in Path("config/experiments").glob("*.yaml"))
    raw = config_from(options.config)
    plans = [make_plan(raw), *(make_plan({**raw, "experiments": [name], "override": {}}) for name in everything)]
    needed = {plan.store_dir(key) for plan in plans for key in plan.labels}
    unused = [path for path in _stores(Path(plans[0].stores)) if path not in needed]
    for path in unused:
        print(f"{path}  {size(tree_bytes(path))}")
    if not unused:
        print(f"every store in {plans[0].stores} is needed by an experiment")
    elif not options.remove:
        print(f"{len(unused)} not needed by {', '.join(everything)}; remove with `hald labels gc --remove`")
    elif options.yes or _confirmed(len(unused)):
        for path in unused:
            shutil.rmtree(path)
        print(f"removed {len(unused)}")
    return 0


def _confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise UserError("nothing was removed: say --yes when there is nobody to ask")
    return input(f"remove {count} stores for good? [y/N] ").strip().lower() == "y"
