"""The tool behind `make mutants`: which changes it finds in a module, and what it counts."""

import ast

import pytest

from mutants.__main__ import summary
from mutants.changes import candidates, changed, signatures
from mutants.cover import Test as Covered
from mutants.draw import Mutant, difference, replaced
from mutants.places import place_of
from mutants.trial import Outcome

SOURCE = '''"""Words."""
RATE = 0.5


def step(x: float, first: float = 1.0, *, twice: bool = False) -> float:
    """Words."""
    if x < 0:
        raise ValueError(f"x is {x}")
    y = step(x, first, twice=twice) if twice else x * RATE
    print("nothing to see", 3)
    return y + first
'''
# The changed line of each.
CHANGES = {
    "RATE = 0.505",
    "def step(x: float, first: float = 1.01, *, twice: bool = False) -> float:",
    "def step(x: float, first: float = 0.0, *, twice: bool = False) -> float:",
    "def step(x: float, first: float = 1.0, *, twice: bool = True) -> float:",
    "if x <= 0:",
    "if False:",
    "if x < 1:",
    "y = step(x, first, twice=twice) if not twice else x * RATE",
    "y = step(x, first) if twice else x * RATE",
    "y = step(x, twice=twice) if twice else x * RATE",
    "y = step(first, x, twice=twice) if twice else x * RATE",
    "y = step(x, first, twice=twice) if twice else x / RATE",
    "return y - first",
}


def test_every_change_of_a_module_is_found_and_can_be_put_in() -> None:
    """Numbers, comparisons, arithmetic, arguments, guards; nothing in messages, output, types and docstrings."""
    found = candidates("m", SOURCE, signatures({"m": ast.parse(SOURCE)}))
    texts = [changed(SOURCE, item) for item in found]
    assert all(text is not None and ast.parse(text) for text in texts)
    assert {difference(SOURCE, str(text))[2] for text in texts} == CHANGES
    assert len(texts) == len(CHANGES)


@pytest.mark.parametrize(
    ("line", "function", "names"), [(2, "<module>", {"RATE"}), (7, "step", set()), (9, "step", set())]
)
def test_a_change_has_a_place(line: int, function: str, names: set[str]) -> None:
    place = place_of(ast.parse(SOURCE), line)
    assert (place.function, place.names) == (function, names)
    assert line in place.lines


def test_a_change_by_hand_names_the_line_where_it_begins() -> None:
    assert list(replaced("a = 1\nb = 1\n", 2, ["1", "2"])) == ["a = 1\nb = 2\n"]
    assert list(replaced("a = (1\n  + 2)\n", 1, ["1 + 2", "3"])) == ["a = (3)\n"]
    assert list(replaced("a = 1\nb = 1\n", 2, ["a = 1", "a = 2"])) == []


def test_scores_count_what_is_called_equivalent_beyond_three_per_cent() -> None:
    def mutant(tests: tuple[Covered, ...] = ()) -> Mutant:
        return Mutant("m.py", "m", "constant", 1, "f", "1", "2", "", tests)

    fast, slow = Covered("fast", 1.0, 1.0, False), Covered("slow", 1.0, 1.0, True)
    outcomes = [Outcome(mutant((fast, slow)), "failed", "fast") for _ in range(60)]
    outcomes += [Outcome(mutant((fast, slow)), "time", "slow") for _ in range(20)]
    outcomes += [Outcome(mutant((fast,)), "survived") for _ in range(9)] + [Outcome(mutant(), "survived")]
    found = summary(outcomes, [mutant() for _ in range(10)])
    assert (found["changes"], found["killed"], found["survived"], found["not_run_by_any_test"]) == (100, 80, 10, 1)
    assert (found["called_equivalent"], found["counted_as_survivors"]) == (10, 7)
    assert found["score"] == round(100 * 80 / 97, 1)
    assert found["score_of_fast_tests"] == round(100 * 60 / 97, 1)
