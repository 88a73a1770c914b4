"""The one exception that is meant for people."""


class UserError(ValueError):
    """Something the user can mend: the message says what was found, what was expected and what to type.

    Jobs and commands print it without a traceback; every other exception is ours and keeps its traceback.
    """
