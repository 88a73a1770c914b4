"""Golden cases: what every stage computes on tiny fixed inputs, beside what it should.

    python tests/goldens/cases.py             # all cases: how far each number is from what is expected
    python tests/goldens/cases.py relabel     # those of one part of the package, as `hald bless` names it
    python tests/goldens/cases.py --moved     # which numbers of its YAML a case does not notice, moved by one per cent
    python tests/goldens/cases.py --store     # what has no independent computation is stored anew (stored.json)

A case is reached through YAML and run by the workflow's own scripts. Independent ones are compared with reference.py,
which computes the same in float64 and knows nothing of the package; the others with what an earlier commit found.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import case_analyses
import case_datasets
import case_labels
import case_networks
import case_squeeze
import case_synthesis
import case_trainings
import torch
from bench import CASES, STORED, Bench, Check, noticed_numbers, run

PARTS = (case_datasets, case_networks, case_squeeze, case_synthesis, case_labels, case_trainings, case_analyses)
__all__ = ["CASES", "PARTS", "Bench", "Check", "run"]
FROM_BEFORE = ("network_", "analysis_")  # how cases begin that are compared with stored numbers


def main() -> int:
    """Run all cases, or those of the parts that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help="default: all")
    parser.add_argument("--moved", action="store_true", help="move every number of the YAML by one per cent")
    parser.add_argument("--store", action="store_true", help="store what has no independent computation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name, (parts, _) in CASES.items() if not options.parts or {*parts} & {*options.parts}]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        if options.moved:
            noticed: dict[tuple[str, ...], bool] = {}
            for _, paths in noticed_numbers(names, Path(folder)):
                noticed |= {path: was or noticed.get(path, False) for path, was in paths.items()}
            print("numbers that no case notices when they are moved by one per cent:")
            print("\n".join(".".join(path) for path, was in sorted(noticed.items()) if not was) or "none")
            return 0
        bench = Bench(Path(folder), storing={} if options.store else None)
        for name in names:
            parts = CASES[name][0]
            worst = max(run(name, bench), key=Check.error)
            bad += worst.error() > 1
            how = "stored" if name.startswith(FROM_BEFORE) else "independent"
            of = parts[0] if len(parts) < 4 else f"{len(parts)} parts"
            print(f"{of:<24}{name:<34}{how:<12}{worst.error():8.3f} of what rounding may make: {worst.name}")
        if bench.storing is not None:
            known = json.loads(STORED.read_text()) if STORED.exists() else {}
            STORED.write_text(json.dumps(known | bench.storing, indent=0) + "\n")
    print(f"{bad} of {len(names)} cases are not as expected")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
