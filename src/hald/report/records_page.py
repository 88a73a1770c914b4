"""Self-contained HTML pages: their frame, and the page with every record behind a table."""

import html
import json
from pathlib import Path

from hald.files import read_json
from hald.report.spec import TableSpec

STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#1c2733;margin:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{caption-side:top;text-align:left;font-weight:600;padding-bottom:.6rem}
th,td{padding:.35rem .9rem;border-bottom:1px solid #dde3ea;text-align:right;white-space:nowrap}
th.head{text-align:left}thead th{border-bottom:2px solid #1c2733}
td.best{font-weight:700;background:#eaf4ee}td small{color:#6b7785}
details{margin:.3rem 0}pre{font-size:.75rem;background:#f5f7f9;padding:.8rem;overflow:auto}
p{color:#6b7785;font-size:.85rem}"""


def records_page(table: TableSpec, folders: dict[str, Path]) -> str:
    """A self-contained page with every record behind a table: one line each, the whole of it on a click."""
    parts = []
    for run, source in {cell.run: folders[cell.run] for cell in table.cells}.items():
        files = [source] if source.suffix == ".json" else [source / f"seed-{seed}.json" for seed in range(table.seeds)]
        for path in files:
            if path.is_file():
                record = read_json(path)
                top1 = f" <b>{record['top1']:.2f} %</b>" if "top1" in record else ""
                folder = path.parent
                name = f"{folder.parent.name}/{folder.name}{'' if path == source else ' ' + path.stem}"
                text = html.escape(json.dumps(record, indent=1, ensure_ascii=False))
                parts.append(f"<details><summary>{html.escape(name)}{top1}</summary><pre>{text}</pre></details>")
            else:
                parts.append(f"<p>{html.escape(str(path))}: not there yet ({run})</p>")
    return page(f"{table.caption}: run records", "\n".join(parts))


def page(title: str, body: str) -> str:
    """A page with our style and nothing from elsewhere."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
