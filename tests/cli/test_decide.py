"""``spuir decide`` and ``spuir show`` as a user calls them."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import spuir
from spuir.cli.app import main
from spuir.training import train
from spuir.training.coefficient_moves import read_moves
from tests.cli.tables import OFFERS, ROLES, customers, history


def call(*arguments: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the shop."""
    folder = tmp_path_factory.mktemp("shop")
    names = {"offer": "action", "bought": "reward", "chance": "propensity", "day": "episode"}
    train(history(folder / "history.csv"), "puir", rename=names, out=folder / "model.spuir", workers=1)
    return folder / "model.spuir"


@pytest.fixture
def tonight(tmp_path: Path) -> Path:
    """Customers to decide about."""
    customers(40, 5).assign(e_mail="a@b.c").to_csv(tmp_path / "tonight.csv", index=False)
    return tmp_path / "tonight.csv"


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_decisions_are_those_of_the_bandit_and_open_as_a_log(
    model: Path, tonight: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / f"decisions.{ending}"
    result = call("decide", model, tonight, "--id-column", "customer", "--out", out)
    assert result.exit_code == 0, result.output
    assert "40 decisions of model 4-" in result.stdout
    bandit, people = spuir.load(model), customers(40, 5)
    expected = bandit.decide(people, ids=people.customer.tolist())
    log = spuir.logs.open_log(out, kind="decisions")  # type: ignore[attr-defined]
    rows = log.table()
    assert rows["decision_id"].to_pylist() == people.customer.tolist()
    assert rows["action"].to_pylist() == expected.actions.tolist()
    np.testing.assert_allclose(rows["propensity"].to_numpy(), expected.propensities, rtol=1e-12)
    np.testing.assert_allclose(np.array(rows["probabilities"].to_pylist()), expected.probabilities, rtol=1e-12)
    assert set(rows["policy_version"].to_pylist()) == {bandit.version_} and set(rows["episode"].to_pylist()) == {4}
    assert set(log.context) == {"age", "device"}  # what the model does not read stays where it is
    assert "time" in rows.column_names


def test_a_repeated_call_repeats_the_decisions_and_writes_json(model: Path, tonight: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "one.csv", tmp_path / "two.csv"]
    told = [
        json.loads(call("decide", model, tonight, "--id-column", "customer", "-o", out, "--json").stdout)
        for out in outs
    ]
    first, second = (pd.read_csv(out).drop(columns="time") for out in outs)
    pd.testing.assert_frame_equal(first, second)
    assert told[0]["rows"] == 40 and sum(one["rows"] for one in told[0]["actions"].values()) == 40


def test_decisions_that_explore_nothing_are_noted(model: Path, tonight: Path, tmp_path: Path) -> None:
    given = ("--id-column", "customer", "-o", tmp_path / "d.csv", "--json")
    blind = call("decide", model, tonight, *given)
    assert "propensity 1, because the model has floor=0: no other policy can be evaluated" in blind.stderr
    assert json.loads(blind.stdout)["propensities"] == {"least": 1.0, "largest": 1.0}
    assert not call("decide", model, tonight, *given, "-q").stderr
    names = {"offer": "action", "bought": "reward", "chance": "propensity", "day": "episode"}
    policy = spuir.make_policy("puir", floor=0.1)
    train(history(tmp_path / "history.csv"), policy, rename=names, out=tmp_path / "floor.spuir", workers=1)
    done = call("decide", tmp_path / "floor.spuir", tonight, *given)
    assert "propensity 1" not in done.stderr
    assert 0.1 <= json.loads(done.stdout)["propensities"]["least"] < 1


def test_only_eligible_actions_are_chosen(model: Path, tonight: Path, tmp_path: Path) -> None:
    given = ("decide", model, tonight, "--id-column", "customer", "-o", tmp_path / "d.csv", "-q", "--eligible")
    assert call(*given, "coupon,nothing").exit_code == 0
    assert set(pd.read_csv(tmp_path / "d.csv").action) <= {"coupon", "nothing"}
    assert "did you mean 'coupon'?" in call(*given, "cupon").stderr


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda t: t, [], "need a column 'decision_id'; say which one it is"),
        (lambda t: t, ["--id-column", "custmer"], "did you mean 'customer'?"),
        (lambda t: t.rename(columns={"age": "Age"}), ["--id-column", "customer"], "(--rename Age=age)"),
        (lambda t: t.assign(customer="same"), ["--id-column", "customer"], "t.csv': got 'same' again at row 1"),
        (lambda t: t.assign(customer=None), ["--id-column", "customer"], "t.csv': got none at row 0"),
        (lambda t: t.assign(age="old"), ["--id-column", "customer"], "column 'age'"),
        (lambda t: t[:0], ["--id-column", "customer"], "table: got no rows"),
        (lambda t: t, ["--id-colum", "customer"], "Did you mean '--id-column'? See "),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_nothing_is_written(
    model: Path, tmp_path: Path, change, arguments: list[str], words: str
) -> None:
    change(customers(5, 1)).to_csv(tmp_path / "t.csv", index=False)
    result = call("decide", model, tmp_path / "t.csv", "--out", tmp_path / "d.parquet", *arguments)
    assert result.exit_code == 2 and words in result.stderr and "Traceback" not in result.output
    assert not (tmp_path / "d.parquet").exists()


def test_an_id_of_an_earlier_file_is_named_with_its_file_and_row(model: Path, tmp_path: Path) -> None:
    for name, ids in (("a.csv", ["x", "y"]), ("b.csv", ["z", "x"])):
        customers(2, 1).assign(customer=ids).to_csv(tmp_path / name, index=False)
    given = tmp_path / "a.csv", tmp_path / "b.csv", "--id-column", "customer", "--out", tmp_path / "d.csv"
    assert re.search(r"decision_id in file '\S*b\.csv': got 'x' again at row 1", call("decide", model, *given).stderr)


def test_nothing_that_is_read_is_overwritten(model: Path, tonight: Path) -> None:
    before = tonight.read_bytes(), model.read_bytes()
    for source, out in (
        (tonight, model),
        (tonight, tonight),
        (tonight.parent, tonight),
        (tonight.parent / "*.csv", tonight),
    ):
        result = call("decide", model, source, "--id-column", "customer", "-o", out)
        assert result.exit_code == 2 and "would overwrite" in result.stderr, (source, out)
    assert (tonight.read_bytes(), model.read_bytes()) == before
    assert "no such file" in call("decide", "absent.spuir", tonight).stderr


def test_an_id_column_that_the_model_reads_is_refused_with_a_way_that_works(tmp_path: Path) -> None:
    people = customers(40, 5).rename(columns={"customer": "customer no"})
    log = people.assign(action=np.resize(OFFERS, 40), reward=1.0)
    log.to_csv(tmp_path / "log.csv", index=False)
    people.to_csv(tmp_path / "tonight.csv", index=False)
    learning = ("train", tmp_path / "log.csv", "-b", 20, "-p", "sbucb", "-o", tmp_path / "m", "-w", 1, "-q")
    deciding = ("decide", tmp_path / "m", tmp_path / "tonight.csv", "--id-column", "customer no", "-q")
    assert call(*learning).exit_code == 0
    refused = call(*deciding, "-o", tmp_path / "d.csv")
    assert refused.exit_code == 2 and "a column is one or the other" in refused.stderr
    option, value = shlex.split(refused.stderr.partition("(")[2].partition(")")[0])
    assert call(*learning, option, value).exit_code == 0
    assert call(*deciding, "-o", tmp_path / "d.csv").exit_code == 0


def test_the_remedy_for_a_missing_column_is_quoted_for_a_shell(tmp_path: Path) -> None:
    people = customers(40, 5).rename(columns={"age": "age in years"})
    people.assign(action=np.resize(OFFERS, 40), reward=1.0).to_csv(tmp_path / "log.csv", index=False)
    customers(40, 5).rename(columns={"age": "age (years)"}).to_csv(tmp_path / "tonight.csv", index=False)
    call("train", tmp_path / "log.csv", "--id-column", "customer", "-b", 20, "-o", tmp_path / "m", "-w", 1, "-q")
    deciding = ("decide", tmp_path / "m", tmp_path / "tonight.csv", "--id-column", "customer", "-o", tmp_path / "d.csv")
    refused = call(*deciding).stderr
    assert "no column 'age in years'" in refused
    assert call(*deciding, *shlex.split(re.findall(r"\((--rename '.*')\)", refused)[0])).exit_code == 0


def test_a_model_made_in_python_decides_by_its_columns(tmp_path: Path) -> None:
    people = customers(50, 3)[["customer", "age"]]
    bandit = spuir.Bandit("sbucb", 2, random_state=0)
    bandit.partial_fit(people[["age"]], np.arange(50) % 2, people.age / 80).save(tmp_path / "m")
    people.to_csv(tmp_path / "t.csv", index=False)
    result = call("decide", tmp_path / "m", tmp_path / "t.csv", "--id-column", "customer", "-o", tmp_path / "d.csv")
    assert result.exit_code == 0, result.output
    expected = bandit.decide(people[["age"]], ids=people.customer)
    assert pd.read_csv(tmp_path / "d.csv").action.tolist() == expected.actions.tolist()


class TestShow:
    def test_it_says_what_a_model_is_and_how_it_was_made(self, model: Path) -> None:
        result = call("show", model)
        assert result.exit_code == 0, result.output
        for words in ("puir", "4-", "history.csv", "1200", "age, device", "2026-01-01", "share of the policy", *OFFERS):
            assert words in result.stdout, words

    def test_json_has_rewards_mix_and_coefficients(self, model: Path) -> None:
        told = json.loads(call("show", model, "--json", "-n", 3).stdout)
        bandit = spuir.load(model)
        assert (told["version"], told["episodes"]) == (bandit.version_, 4)
        assert [line["action"] for line in told["actions"]] == OFFERS
        assert sum(line["rows"] for line in told["actions"]) == 1_200
        assert sum(line["share"] for line in told["actions"]) == pytest.approx(1)
        assert len(told["coefficients"]) == 3

    def test_contrasts_moves_and_imputed_shares(self, model: Path, tmp_path: Path) -> None:
        text = call("show", model, "-n", 2).stdout
        assert "largest contrasts of two actions" in text and "imputed share" in text
        told = json.loads(call("show", model, "--json", "-n", 2).stdout)
        bandit = spuir.load(model)
        assert len(told["contrasts"]) == 2
        largest = told["contrasts"][0]
        frame = bandit.contrast(largest["action"], largest["against"]).set_index("feature").loc[largest["feature"]]
        assert (largest["difference"], largest["standard_error"]) == pytest.approx(tuple(frame))
        shares = [line["imputed_share"] for line in told["actions"]]
        assert shares == pytest.approx(bandit.action_weights().imputed_share.tolist())
        assert told["moves"] == []  # it was trained in Python, which records nothing beside the model
        call("train", history(tmp_path / "log.csv"), *ROLES, "-p", "puir", "-o", tmp_path / "m.spuir", "-w", 1, "-q")
        moves = json.loads(call("show", tmp_path / "m.spuir", "--json", "-n", 2).stdout)["moves"]
        assert moves == read_moves(tmp_path / "m.spuir")[:2] and len(moves) == 2
        assert "changes of coefficients" in call("show", tmp_path / "m.spuir").stdout

    def test_small_coefficients_keep_their_digits(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(3)
        income = rng.normal(4e4, 9e3, 300)
        frame = pd.DataFrame({"income": income, "action": rng.choice(OFFERS, 300), "reward": income * 2e-6})
        frame.to_csv(tmp_path / "log.csv", index=False)
        call("train", tmp_path / "log.csv", "-b", 100, "-p", "sbucb", "-o", tmp_path / "m.spuir", "-w", 1, "-q")
        text = call("show", tmp_path / "m.spuir").stdout
        assert re.search(r"income +│ +[12]\.\d+e-06 ± \d", text), text

    def test_the_units_of_coefficients_are_said(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(3)
        frame = pd.DataFrame({"income": rng.normal(4e4, 9e3, 300), "action": rng.choice(OFFERS, 300)})
        log = frame.assign(reward=frame.income * 2e-6)
        log.to_csv(tmp_path / "log.csv", index=False)
        plain, scaled = tmp_path / "plain.spuir", tmp_path / "scaled.spuir"
        call("train", tmp_path / "log.csv", "-b", 100, "-p", "sbucb", "-o", plain, "-w", 1, "-q")
        train(log, "sbucb", batch_size=100, encoding={"scale": True, "intercept": True}, out=scaled, workers=1)
        # A standard deviation of the income is 9,000 units of it.
        sizes = [json.loads(call("show", path, "--json", "-n", 1).stdout) for path in (plain, scaled)]
        ratio = sizes[1]["coefficients"][0]["coefficient"] / sizes[0]["coefficients"][0]["coefficient"]
        assert ratio == pytest.approx(9e3, rel=0.2)
        assert [one["units"].partition(" ")[2].partition(" ")[0] for one in sizes] == ["unit", "standard"]
        assert call("show", plain).stdout.count("per unit of the column") == 2
        assert " ".join(call("show", scaled).stdout.split()).count("per standard deviation of a number or date") == 2

    def test_random_features_are_said_to_have_no_unit(self, tmp_path: Path) -> None:
        rows = np.random.default_rng(0).normal(size=(60, 2))
        for name, count in (("puir-kernel", 2), ("puir", 0)):
            bandit = spuir.Bandit(spuir.make_policy(name, intercept=True), ["a", "b"], random_state=0)
            bandit.partial_fit(rows, ["a", "b"] * 30, rows[:, 0]).save(tmp_path / name)
            shown = " ".join(call("show", tmp_path / name).stdout.split())
            assert shown.count("the random features fourier_0, fourier_1, … have no unit") == count
            assert ("fourier_" in shown) == bool(count)

    def test_older_and_unlearned_models_are_shown_too(self, tmp_path: Path) -> None:
        spuir.Bandit("uniform", 2).save(tmp_path / "m", metadata={"owner": "crm"})
        result = call("show", tmp_path / "m")
        assert result.exit_code == 0 and "crm" in result.stdout
        old = Path(__file__).parents[1] / "fixtures" / "v0_1"
        assert all(call("show", path).exit_code == 0 for path in (old / "puir.spuir", old / "live-actions.spuir"))
        assert call("show", __file__).exit_code == 2


def test_from_a_csv_file_to_the_next_night_without_python(tmp_path: Path) -> None:
    """Doctor, train, decide, and train on what came of it: the whole way of someone who has CSV files."""
    log, model, decisions = history(tmp_path / "history.csv"), tmp_path / "m.spuir", tmp_path / "decisions.csv"
    assert call("doctor", log, *ROLES).exit_code in (0, 1)
    assert call("train", log, *ROLES, "-p", "puir", "--out", model, "-q", "-w", 1).exit_code == 0
    customers(200, 9).to_csv(tmp_path / "tonight.csv", index=False)
    given = ("decide", model, tmp_path / "tonight.csv", "--id-column", "customer", "--out", decisions)
    assert call(*given).exit_code == 0
    people, decided = customers(200, 9), pd.read_csv(decisions)
    best = np.where(people.device == "phone", "gift", "coupon")
    assert (decided.action == best).mean() > 0.8
    decided.loc[decided.action == best, ["decision_id"]].assign(value=1.0).to_csv(tmp_path / "sales.csv", index=False)
    nightly = ("train", decisions, "--from", model, "--rewards", tmp_path / "sales.csv", "--reward-column", "value")
    learned = call(*nightly, "-w", 1)
    assert learned.exit_code == 0, learned.output
    assert "share of the policy" in learned.stdout and spuir.load(model).n_episodes_ == 5
    again = call(*nightly, "-w", 1)
    assert again.exit_code == 2 and "200 rows that were learned in the last episode" in again.stderr
    # More sales came in since: the ids tell that it is the same night.
    decided[["decision_id"]].assign(value=1.0).to_csv(tmp_path / "sales.csv", index=False)
    assert call(*nightly, "-w", 1).exit_code == 2 and spuir.load(model).n_episodes_ == 5
    assert call(*nightly, "-w", 1, "--allow-repeat").exit_code == 0
    # The next night has the same customers: other decisions, although their ids are the same.
    assert call(*given).exit_code == 0
    assert call(*nightly, "-w", 1).exit_code == 0 and spuir.load(model).n_episodes_ == 7


def test_customers_unlike_the_sample_are_reported(model: Path, tmp_path: Path) -> None:
    customers(150, 5).assign(device="watch").to_csv(tmp_path / "tonight.csv", index=False)
    given = ("decide", model, tmp_path / "tonight.csv", "--id-column", "customer", "--out", tmp_path / "d.csv")
    result = call(*given)
    assert result.stderr.startswith("· column 'device' has drifted: 100% of the values are levels without a feature")
    assert "drift" in result.stdout
    assert json.loads(call(*given, "--json").stdout)["drift"]["columns"]["device"]["unseen"] == 150
