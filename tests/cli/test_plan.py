"""``spuir plan`` as a user calls it."""

import json

from click.testing import CliRunner

from spuir.cli.app import main


def spuir_command(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


def test_plan_prints_and_writes_json():
    done = spuir_command("plan", "--steps", 126_000, "--dim", 40, "--actions", 5)
    assert "B = 1,403" in done.stdout
    assert "N = 90" in done.stdout
    assert "Do not sketch" in done.stdout
    data = json.loads(spuir_command("plan", "--steps", 126_000, "--dim", 40, "--actions", 5, "--json").stdout)
    assert (data["batch_size"], data["episodes"], data["sketch_size"]) == (1403, 90, 148)


def test_plan_refuses_nonsense():
    done = spuir_command("plan", "--steps", 0, "--dim", 40, "--actions", 5)
    assert done.exit_code == 2
    assert "steps: got 0" in done.stderr


def test_a_plan_for_more_steps_than_floats_count_is_refused():
    done = spuir_command("plan", "-t", "1" + "0" * 400, "-d", 4, "-m", 2)
    assert done.exit_code == 2 and "it must be a finite number" in done.stderr
