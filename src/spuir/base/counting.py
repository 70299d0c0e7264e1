"""Numbers with their nouns, for sentences that people read."""


def counted(count: int, noun: str, rest: str = "") -> str:
    """Return a number with its noun, in the plural unless there is one, and the ``rest`` after it.

    >>> counted(1, "episode"), counted(1200, "row", "without a reward")
    ('1 episode', '1,200 rows without a reward')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}{' ' if rest else ''}{rest}"
