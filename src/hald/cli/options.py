"""Options that several commands have."""

import argparse


def add_config(parser: argparse.ArgumentParser) -> None:
    """Let a command change settings: `--config KEY=VALUE ...`."""
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="KEY=VALUE", help="change settings, as for snakemake"
    )
