"""What counts as a change of the source behind a stage, and which changes lines that were run do show."""

from textwrap import dedent

import pytest

from hald.source_changes import Code, unseen_changes

MODULES = {
    "hald.a": """
        from dataclasses import dataclass
        from hald.b import scaled

        FACTOR = 3
        UNREAD = 4
        TABLE = {}
        for number in (1, 2):
            TABLE[number] = number * 10

        @dataclass
        class Options:
            weight: float = 0.5
            other: float = 0.25

            def double(self):
                return self.weight * 2  # run

            def half(self):
                return self.other / 2

        def compute(x, options):
            if x > 100:  # run
                x = 100
            y = scaled(x) * FACTOR + TABLE[1]  # run
            return y + options.double()  # run

        def never(x):
            return x + UNREAD
    """,
    "hald.b": """
        def scaled(x):
            return x * 7  # run

        def shifted(x):
            return x * 7
    """,
    "hald.c": """
        def apart(x):
            return x + 1
    """,
}


def unseen(*changes: tuple[str, str, str]) -> list[str]:
    """Those of the changes (module, old text, new text) that lines marked with `# run` do not show."""
    old = {name: dedent(text) for name, text in MODULES.items()}
    new = dict(old)
    for module, text, other in changes:
        assert text in new.setdefault(module, ""), text
        new[module] = new[module].replace(text, other) if text else new[module] + other
    lines = {(m, n) for m, text in new.items() for n, line in enumerate(text.splitlines(), 1) if "# run" in line}
    return [f"{one.module}:{one.text}" for one in unseen_changes(Code(old, old), Code(new, new), ["hald.a"], lines)]


def test_nothing_changed() -> None:
    assert unseen() == []


@pytest.mark.parametrize(
    "changes",
    [
        [("hald.a", "def never(x):", 'def never(x):\n    """Words."""\n    # more')],
        [("hald.a", "    y = scaled(x) * FACTOR", "    y = FACTOR * scaled(x)")],
        [("hald.a", "FACTOR = 3", "FACTOR = 4")],
        [("hald.a", "weight: float = 0.5", "weight: float = 0.6")],
        [("hald.a", "number * 10", "number * 11")],
        [("hald.a", "def compute(x, options)", "def compute(x, options, more=0)")],
        # no run comes to these
        [("hald.b", "def shifted(x):\n    return x * 7", "def shifted(x):\n    return x * 8")],
        [("hald.c", "x + 1", "x + 2")],
        [("hald.a", "    if x > 100:  # run\n        x = 100\n", "")],
        [("hald.a", "        x = 100\n", "        raise ValueError(x)\n")],
    ],
)
def test_what_is_run_or_out_of_reach_is_shown(changes: list[tuple[str, str, str]]) -> None:
    assert unseen(*changes) == []


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ([("hald.a", "x = 100", "x = 101")], ["hald.a:x = 101"]),
        ([("hald.a", "UNREAD = 4", "UNREAD = 5")], ["hald.a:UNREAD = 5"]),
        ([("hald.a", "other: float = 0.25", "other: float = 0.5")], ["hald.a:other: float = 0.5"]),
        ([("hald.a", "self.other / 2", "self.other / 3")], ["hald.a:return self.other / 3"]),
        ([("hald.a", "x + UNREAD", "x - UNREAD")], ["hald.a:return x - UNREAD"]),
        ([("hald.a", "    return x + UNREAD", "    x = 2 * x\n    return x + UNREAD")], ["hald.a:x = 2 * x"]),
        ([("hald.a", "def never(x):\n    return", "def never(x):\n    if x:\n        return")],
         ["hald.a:if x:", "hald.a:return x + UNREAD"]),
        ([("hald.a", "import scaled", "import shifted as scaled")], []),  # `y = ...` is run, and so shows it
        ([("hald.a", "", "\ndef added(x):\n    return x\n")], ["hald.a:def added(x):", "hald.a:return x"]),
    ],
)  # fmt: skip
def test_what_is_not_run_is_named(changes: list[tuple[str, str, str]], lines: list[str]) -> None:
    assert unseen(*changes) == lines


def test_a_statement_that_goes_from_a_function_that_is_not_run_is_named() -> None:
    assert unseen(("hald.a", "        x = 100\n", "        x = 100\n        x = 99\n")) == ["hald.a:x = 99"]
    twice = [("hald.a", "def never(x):\n    return x + UNREAD", "def never(x):\n    return UNREAD")]
    assert unseen(*twice) == ["hald.a:return UNREAD"]


def test_a_move_changes_nothing() -> None:
    """Into another module, by itself: whoever imports it names the new place."""
    moved = [
        ("hald.b", "def scaled(x):\n    return x * 7  # run\n", ""),
        ("hald.d", "", "def scaled(x):\n    return x * 7  # run\n"),
        ("hald.a", "from hald.b import scaled", "from hald.d import scaled"),
    ]
    assert unseen(*moved) == []
    not_run = [("hald.a", "def never(x):\n    return x + UNREAD", ""), ("hald.a", "UNREAD = 4\n", "")]
    there = "from hald.a import FACTOR\nUNREAD = 4\n\ndef never(x):\n    return x + UNREAD\n"
    assert (
        unseen(*not_run, ("hald.d", "", there), ("hald.a", "FACTOR = 3", "from hald.d import never\nFACTOR = 3")) == []
    )


def test_a_moved_function_that_finds_another_constant_is_a_change() -> None:
    there = "UNREAD = 5\n\ndef never(x):\n    return x + UNREAD\n"
    gone = [("hald.a", "def never(x):\n    return x + UNREAD", "def use(x):\n    return never(x)")]
    found = unseen(*gone, ("hald.d", "", there), ("hald.a", "FACTOR = 3", "from hald.d import never\nFACTOR = 3"))
    assert "hald.d:return x + UNREAD" in found
