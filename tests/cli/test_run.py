"""``spuir run`` as a user calls it."""

import csv
import json
import sys

import pytest
from click.testing import CliRunner

import spuir
from spuir.cli.app import main
from spuir.cli.run import COMPARED, assign
from spuir.errors import ParameterError
from spuir.policies import list_policies

SHORT = ("run", "-p", "sbucb,puir", "-n", "4", "-b", "60", "--seeds", "2", "-w", "1")


def spuir_command(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


def test_run_writes_table_figure_and_numbers(tmp_path):
    pytest.importorskip("matplotlib")
    done = spuir_command(*SHORT, "-o", tmp_path)
    assert done.exit_code == 0
    for text in ("sbucb", "puir", "±", "regret per step", "CVR", "4 episodes of 60 decisions, 2 seeds, default preset"):
        assert text in done.stdout
    assert "wrote" in done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"results.csv", "results.json", "average_reward.png", "average_reward.svg"}
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 4
    assert {(row["policy"], row["seed"]) for row in rows} == {(p, s) for p in ("sbucb", "puir") for s in "01"}


def test_json_goes_to_standard_output_alone(tmp_path):
    done = spuir_command(*SHORT, "-o", tmp_path, "--json", "--quiet")
    data = json.loads(done.stdout)
    assert done.stderr == ""
    assert data == json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert data["preset"] == "default"
    assert data["policies"]["sbucb"]["alpha"] == vars(spuir.make_policy("sbucb"))["alpha"]
    assert data["seeds"] == data["environment"]["parameters"]["seed"] == [0, 1]
    assert data["versions"]["spuir"] == spuir.__version__


def test_quiet_says_nothing(tmp_path):
    done = spuir_command(*SHORT, "-o", tmp_path, "-q")
    assert (done.exit_code, done.output) == (0, "")


def test_settings_reach_policies_and_environment(tmp_path):
    settings = (
        "alpha=0.3",
        "puir.discount=0.5",
        "environment.dim=7",
        "environment.seed=9",
        "environment.censored=true",
    )
    done = spuir_command(*SHORT, "-o", tmp_path, "--json", *(part for one in settings for part in ("--set", one)))
    data = json.loads(done.stdout)
    assert data["policies"]["sbucb"]["alpha"] == data["policies"]["puir"]["alpha"] == 0.3
    assert data["policies"]["puir"]["discount"] == 0.5
    assert data["policies"]["sbucb"]["discount"] != 0.5
    assert data["environment"]["parameters"]["dim"] == 7
    assert data["environment"]["parameters"]["seed"] == [9]
    assert data["environment"]["parameters"]["censored"] is True


def test_presets_differ(tmp_path):
    alphas = []
    for preset in (("--preset", "paper"), ()):
        done = spuir_command(
            "run", "-p", "sbucb", "-n", 1, "-b", 20, "--seeds", 1, "-w", 1, *preset, "--json", "-o", tmp_path
        )
        alphas.append(json.loads(done.stdout)["policies"]["sbucb"]["alpha"])
    assert alphas[0] == 1.0 != alphas[1]


def test_environments_without_clicks_have_no_conversion_columns(tmp_path):
    done = spuir_command(*SHORT, "-o", tmp_path, "-e", "linear")
    assert done.exit_code == 0
    assert "CVR" not in done.stdout


def test_without_matplotlib_the_rest_is_written_and_the_remedy_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = spuir_command(*SHORT, "-o", tmp_path)
    assert done.exit_code == 0
    assert 'pip install "spuir[plot]"' in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"results.csv", "results.json"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-p", "puri"), "did you mean 'puir'"),
        (("-e", "linaer"), "did you mean 'linear'"),
        (("--set", "alhpa=1"), "did you mean 'alpha'?"),
        (("--set", "alpha=-1"), "must be a finite number ≥ 0"),
        (("--set", "spuir.alpha=1"), "neither a chosen policy"),
        (("--set", "environment.nose=1", "-e", "linear"), "did you mean 'noise'"),
        (("--set", "alpha"), "name=value"),
        (("-n", "0"), "episodes of run"),
    ],
)
def test_every_refusal_is_one_sentence_and_exit_code_2(arguments, message, tmp_path):
    done = spuir_command(*SHORT, "-o", tmp_path, "-q", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_unwritable_folder_is_a_refusal(tmp_path):
    (tmp_path / "file").write_text("")
    done = spuir_command(*SHORT, "-o", tmp_path / "file", "-q")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


def test_the_default_policies_are_registered():
    assert set(COMPARED) <= set(list_policies())


def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr("spuir.reproduction.runner.run_all", lambda *_: pytest.fail("it ran"))
    for out in (tmp_path / "taken", tmp_path / "taken" / "below"):
        done = spuir_command(*SHORT, "-o", out)
        assert done.exit_code == 2 and "cannot be written" in done.stderr and "--out" in done.stderr


def test_assign_gives_each_policy_what_it_has():
    given = assign(["a=1", "two.b=x", "environment.c=2", "two.a=3"], {"one": ["a"], "two": ["a", "b"]}, ["c"])
    assert given == {"one": {"a": 1}, "two": {"a": 3, "b": "x"}, "environment": {"c": 2}}
    with pytest.raises(ParameterError, match="the names are a, b"):
        assign(["zzzzz=1"], {"one": ["a"], "two": ["a", "b"]}, [])


def test_running_out_of_memory_is_reported_in_one_sentence(tmp_path):
    done = spuir_command(*SHORT, "-o", tmp_path, "-q", "-b", 2**39)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: memory: ") and done.stderr.count("\n") == 1


def test_an_interrupt_ends_with_130(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("spuir.reproduction.runner.run_all", interrupt)
    done = spuir_command(*SHORT, "-o", tmp_path, "-q")
    assert (done.exit_code, done.stderr) == (130, "stopped\n")


@pytest.mark.parametrize(
    ("given", "message"), [(("-p", ","), "--policy: got ','"), (("-b", "9" * 30), "not in the range")]
)
def test_values_that_name_nothing_or_too_much_are_refused(given, message, tmp_path):
    done = spuir_command("run", *given, "-o", tmp_path, "-q")
    assert done.exit_code == 2 and message in done.stderr
