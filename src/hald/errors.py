"""The one exception that is meant for people."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user can mend: the message says what was found, what was expected and what to type.

    Jobs and commands print it without a traceback; every other exception is ours and keeps its traceback.
    """


def suggest(name: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, or the list of what there is."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(known) or 'none'}."
