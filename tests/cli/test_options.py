"""Options that several commands share."""

import pytest
from click.testing import CliRunner

from spuir.cli.app import main
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


@pytest.mark.parametrize("command", ["doctor", "evaluate", "tune", "train"])
def test_commands_on_logs_list_options_from_the_most_to_the_least_needed(command: str) -> None:
    listed = CliRunner().invoke(main, [command, "--help"]).output
    order = ["--format", "--action-column", "--reward-column", "--propensity-column", "--rename", "--every"]
    order += ["--batch-size", "--rewards", "--window", "--actions", "--as-of", "--rename-rewards", "--type NAME"]
    places = [listed.index(f" {option}") for option in order]
    assert places == sorted(places)
