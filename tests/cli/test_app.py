"""The command ``spuir`` from the outside: its commands, their help, and how it reports a misuse."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import spuir
from spuir.cli.app import COMMANDS, main


def spuir_command(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_what_an_output_cannot_encode_ends_no_command(encoding, tmp_path):
    """Terminals and files of Windows, and servers without a locale, have no Unicode."""
    log = tmp_path / "log.csv"
    log.write_text("action,reward,age\n" + "Łódź,1,30\n−5 %,0,40\n" * 20, encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": encoding}

    def printed(*options):
        command = [sys.executable, "-m", "spuir", "doctor", str(log), *options]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, env=environment)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout.decode(encoding)

    assert ("Łódź" if encoding == "utf-8" else "?") in printed()
    assert "Łódź" in str(json.loads(printed("--json")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "-n", "x"], "'x' is not a valid integer"),
        (["run", "--seed", "-1"], "-1 is not in the range"),
        (["run", "--preset", "papr"], "'papr' is not one of 'default', 'authors-code'"),
        (["plan", "--dim", "4"], "Missing option"),
        (["run", "--polciy", "puir"], "No such option"),
        (["--what"], "No such option"),
    ],
    ids=" ".join,
)
def test_a_misuse_is_reported_in_one_sentence(arguments, words):
    done = spuir_command(*arguments)
    assert done.exit_code == 2 and not done.stdout
    sentence = done.stderr.strip()
    assert "\n" not in sentence and sentence.startswith("Error: ")
    assert words in sentence and sentence.endswith("--help.")


def test_no_command_is_help():
    assert "Commands:" in spuir_command().output


def test_version_and_help():
    assert spuir_command("--version").stdout.strip() == f"spuir {spuir.__version__}"
    command = [sys.executable, "-m", "spuir", "--help"]
    assert (
        subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout[:13] == "Usage: spuir "
    )
    for command in COMMANDS.names():
        assert spuir_command(command, "--help").exit_code == 0
        assert command in spuir_command("--help").stdout


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS.names())], ids=" ".join)
def test_help_does_not_load_the_numerics(arguments):
    code = f"import sys; from spuir.cli.app import main\ntry: main({arguments})\nexcept SystemExit: pass\n"
    code += "print({'numpy', 'scipy', 'rich', 'matplotlib', 'pyarrow', 'pandas'} & set(sys.modules) or 'light')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "light"


@pytest.mark.parametrize(("typed", "meant"), [("trian", "train"), ("rnu", "run"), ("docter", "doctor")])
def test_a_mistyped_command_is_answered_with_the_nearest(typed, meant):
    done = spuir_command(typed, "--help")
    assert done.exit_code == 2 and not done.stdout
    assert done.stderr == f"Error: command: got {typed!r}, but no command has that name; did you mean {meant!r}?\n"


def test_a_command_that_resembles_none_is_answered_with_all():
    done = spuir_command("zzz")
    every = "doctor, train, evaluate, tune, decide, serve, load-test, show, run, list, plan, reproduce"
    assert done.exit_code == 2 and f"the names are {every}" in done.stderr


WRONG = {
    "doctor": (["nope.csv"], ["log.csv", "--format", "cvs"], ["log.csv", "--rename", "age"]),
    "train": (["bare.csv", "-b", "9"], ["log.csv", "-p", "pui"], ["log.csv", "-s", "alfa=1"]),
    "evaluate": (["bare.csv"], ["log.csv", "-p", "puir", "--estimator", "drr"], ["log.csv", "--level", "2"]),
    "tune": (["bare.csv"], ["log.csv", "--budget", "0"], ["log.csv", "-p", "uniform"]),
    "decide": (["nope.spuir", "log.csv"], ["log.csv", "log.csv"], ["log.csv"]),
    "serve": (["--port", "x"], ["--repair"], ["--port", "99999"]),
    "load-test": (["--rate", "x"], ["--url", "nope"], ["--seconds", "0"]),
    "show": (["nope.spuir"], ["log.csv"], ["log.csv", "-n", "-1"]),
    "run": (["-e", "synthetik"], ["-n", "0", "-w", "1", "-q"], ["-s", "alfa=1"]),
    "list": (["polices"], ["--jsn"], ["policies", "features"]),
    "plan": (["-t", "0", "-d", "2", "-m", "2"], ["-d", "2", "-m", "2"], ["-t", "x", "-d", "2", "-m", "2"]),
    "reproduce": (["--only", "nope"], ["--data", "nope"], ["--policy", "nope"]),
}
"""Three mistakes with each command."""


def test_mistakes_are_listed_for_every_command():
    assert set(WRONG) == set(COMMANDS.names())


@pytest.mark.parametrize(
    "arguments", [[name, *given] for name, mistakes in WRONG.items() for given in mistakes], ids=" ".join
)
def test_a_mistake_ends_in_one_clear_sentence(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{20 + row},{'ab'[row % 2]},{row % 3},0.5,{row // 10}" for row in range(60)]
    Path("log.csv").write_text("\n".join(["age,action,reward,propensity,episode", *rows]), encoding="utf-8")
    Path("bare.csv").write_text("age,action\n31,a\n", encoding="utf-8")
    done = spuir_command(*arguments)
    assert done.exit_code == 2 and not done.stdout
    sentence = done.stderr.strip()
    assert "\n" not in sentence and sentence.startswith("Error: ") and sentence[-1] in ".?"
    # What is wrong; then the rule and the remedy, or where to read them.
    assert ", but " in sentence or sentence.endswith("--help.")


def commands():
    """Yield every command with the context that its help is printed in, the group ``spuir`` first."""
    with click.Context(main, info_name="spuir", **main.context_settings) as top:
        yield from below(main, top)


def below(command, context):
    """Yield a command and, of a group, all commands in it."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from below(member, click.Context(member, parent=context, info_name=name))


@pytest.mark.parametrize(
    ("option", "command"),
    [
        pytest.param(option, command.name, id=f"{command.name} {option.opts[-1]}")
        for command, context in commands()
        for option in command.get_params(context)
        if isinstance(option, click.Option)
    ],
)
def test_every_option_has_a_help_text_and_shows_its_default(option, command):
    assert option.help, f"spuir {command} {option.opts[-1]} has no help text"
    meaning, _, default = option.help.partition("  [default: ")
    assert meaning[0].isupper() and meaning.endswith("."), "a help text is a sentence"
    assert len(meaning) > 10, "a help text says more than the name"
    if default:
        assert default.endswith("]")
    else:
        stated = option.show_default or option.is_flag or option.required or option.multiple
        assert stated, f"spuir {command} {option.opts[-1]} does not say its default"
