"""``spuir list`` as a user calls it."""

import json

import pytest
from click.testing import CliRunner

import spuir
from spuir.cli.app import main
from spuir.cli.list import KINDS
from spuir.environments import list_environments
from spuir.policies import list_policies


def spuir_command(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_every_member_with_a_line(kind):
    members = json.loads(spuir_command("list", kind, "--json").stdout)[kind]
    shown = spuir_command("list", kind).stdout
    assert all(name in shown for name in members)
    assert all(summary and "\n" not in summary for summary in members.values())
    known = {
        "policies": list_policies(),
        "environments": list_environments(),
        "experiments": spuir.list_experiments(),
    }
    assert list(members) == known.get(kind, list(members))


def test_list_without_a_kind_lists_all():
    assert list(json.loads(spuir_command("list", "--json").stdout)) == list(KINDS)
