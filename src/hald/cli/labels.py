"""`hald labels`: look at label stores, verify, import, export and clear them away."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hald.cli.options import add_config
from hald.config.read import config_from, experiment_names
from hald.errors import UserError
from hald.files import size
from hald.pipeline import Plan, make_plan

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
        "  hald labels import DIR --images syn_data/ --classes manifest.json --to imported.zarr   # a folder of files\n"
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
        "--deep", type=_views, default=0, metavar="N", help="label N views of each store again and compare"
    )
    _add_exchange(actions)
    collect = _action(actions, "gc", "list what no experiment needs: stores, left-over folders, old plans", _gc)
    collect.add_argument("--remove", action="store_true", help="remove it, without asking")
    collect.add_argument(
        "--imported", action="store_true", help="also imported stores and those with names of their own"
    )
    collect.add_argument("--others", action="store_true", help="also what other users made: their configs may need it")


def _add_exchange(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    bring = _action(actions, "import", "read a label directory of the released HALD code", _import)
    bring.add_argument("source", type=Path, help="folder with epoch_<e>.tar and sampler_indices_dict.pt")
    bring.add_argument(
        "--images", type=Path, required=True, help="what the labels are about: an image set, or one folder per class"
    )
    bring.add_argument(
        "--classes", type=Path, metavar="FILE", help="class names in order: text, or JSON with `classes`"
    )
    bring.add_argument("--to", type=Path, required=True, metavar="STORE", help="store to make")
    bring.add_argument(
        "--codec", default="i16", choices=["u8", "u4", "u2", "i16", "f16"], help="default: i16, exact to fp16"
    )
    export = _action(actions, "export", "write a store in the released format, with its images", _export)
    export.add_argument("store", type=Path)
    export.add_argument("target", type=Path, help="folder to make")


def _views(text: str) -> int:
    """A number of views to label again: at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found '{text}', expected the number of views to label again, 1 or more")
    return int(text)


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, run: object
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    add_config(parser)
    parser.set_defaults(run=run)
    return parser


def _open(path: Path) -> "LabelStore":
    from hald.labels.store import LabelStore

    return LabelStore(path)


def _ls(options: argparse.Namespace) -> int:
    from hald.cli.leftovers import stores_in
    from hald.labels.describe import label_bytes

    plan = make_plan(config_from(options.config))
    needed = {plan.folder("relabel", key): plan.needed.get(("relabel", key), 0) for key in plan.labels}
    print(f"{'store':<58}{'views':>7}{'planned':>9}{'images':>8}{'classes':>9}  {'codec':<6}{'labels':>10}")
    for path in stores_in(Path(plan.stores)):
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


def _info(options: argparse.Namespace) -> int:
    from hald.labels.describe import describe

    for name, value in describe(_open(options.store)).items():
        print(f"{name:<15}{value}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from hald.cli.leftovers import stores_in
    from hald.labels.describe import label_bytes
    from hald.labels.verify import verify_store
    from hald.numerics.device import setup

    stores = options.stores or list(stores_in(Path(make_plan(config_from(options.config)).stores)))
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
            if options.deep and store.header.teachers:
                print(f"{path}: {min(options.deep, len(store.views()))} views labelled again, with the same answers")
            if options.deep and not store.header.teachers:
                print(f"{path}: no deep check, because it was imported without its teacher; its hashes were checked")
        bad += problems
    return 1 if bad else 0


def _import(options: argparse.Namespace) -> int:
    from hald.labels.imagefolder import class_list, given_images
    from hald.labels.released_import import import_labels

    images, classes = given_images(options.images, class_list(options.classes, options.source))
    import_labels(options.source, images, classes, options.to, options.codec, str(options.images.resolve()))
    print(f"{options.to}: {len(_open(options.to).views())} views")
    return 0


def _export(options: argparse.Namespace) -> int:
    from hald.labels.released_export import export_labels

    store = _open(options.store)
    export_labels(store, options.target)
    print(f"{options.target}: {len(store.views())} label epochs and {store.header.count} images")
    return 0


def _all_plans(options: argparse.Namespace) -> list[Plan]:
    """The config's own plan first, then one for every experiment of the project."""
    raw = config_from(options.config)
    alone = ({**raw, "experiments": [name], "override": {}} for name in experiment_names())
    return [make_plan(raw), *map(make_plan, alone)]


def _gc(options: argparse.Namespace) -> int:
    """What no experiment of the project (nor the config's own choice) needs."""
    from hald.cli.leftovers import find_leftovers, remove

    found = list(find_leftovers(_all_plans(options), options.imported, options.others))
    going = [entry for entry in found if not entry.kept]
    total = size(sum(entry.bytes for entry in going))
    for entry in found:
        days = (time.time() - entry.written) / 86400
        print(f"{entry.path}  {size(entry.bytes)}, last written {days:.1f} days ago, of {entry.owner}")
        print(f"    {entry.why}" + (f"; kept: {entry.kept}" if entry.kept else ""))
    if not going:
        print("nothing to remove: " + ("all of this is kept" if found else "every store is needed by an experiment"))
    elif not options.remove:
        print(f"{len(going)} not needed ({total}); remove with `hald labels gc --remove`")
    else:
        for entry in going:
            remove(entry)
            print(f"removed {entry.path}")
        print(f"removed {len(going)} ({total})")
    return 0
