"""Options that several commands share."""

import pytest

from spuir.cli.options import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("none", None),
        ("balanced", "balanced"),
    ],
)
def test_values(text, value):
    assert parse(text) == value
    assert type(parse(text)) is type(value)
