"""Put the output of commands into documents: every block `<!-- from: COMMAND -->` ... `<!-- end -->` is made anew.

python docs/fill.py README.md
"""

import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"(<!-- from: (?P<command>.+?) -->\n).*?(<!-- end -->)", re.S)


def filled(text: str) -> str:
    """`text` with every block replaced by what its command prints now."""

    def replace(match: re.Match[str]) -> str:
        done = subprocess.run(match["command"], shell=True, text=True, capture_output=True, check=True)
        return f"{match[1]}{done.stdout.strip()}\n{match[3]}"

    return BLOCK.sub(replace, text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(filled(path.read_text()))
