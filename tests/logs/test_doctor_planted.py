"""Thirty problems planted in a clean log, one at a time: the doctor finds each, and nothing else of that severity.

The list joins what two reviews planted: 16 that an earlier doctor missed, 7 of which it said nothing useful, and 7 that
it found. Honest columns that predict the reward well raise no alarm, and neither do two clean logs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from spuir.cli.app import main
from spuir.errors import InputError
from spuir.logs import cut_episodes, join_logs, open_log, split_log
from spuir.logs.doctor import Diagnosis, examine
from spuir.logs.doctor.findings import SEVERITIES
from spuir.logs.parts import TablePart
from tests.environments.files import find

pd = pytest.importorskip("pandas")

ROWS = 4000
LABELS = np.array(["A", "B", "C"])


def shop() -> Any:
    """Return a clean log: offers of eight days, bought or not."""
    rng = np.random.default_rng(14)
    age, visits = rng.normal(40, 12, ROWS).round(), rng.poisson(3.0, ROWS)
    codes = rng.integers(0, 3, ROWS)
    bought = rng.random(ROWS) < np.clip(0.15 + 0.004 * (age - 40) + 0.1 * (codes == 2), 0.02, 0.9)
    return pd.DataFrame(
        {
            "decision_id": [f"d{row}" for row in range(ROWS)],
            "time": pd.date_range("2026-01-05", periods=ROWS, freq="172s"),
            "action": LABELS[codes],
            "reward": bought.astype(float),
            "propensity": 1 / 3,
            "age": age,
            "visits": visits,
            "score": rng.normal(size=ROWS),
            "city": rng.choice(["Oslo", "Rome", "Bonn", "Lyon"], ROWS),
            "member": rng.random(ROWS) < 0.4,
        }
    )


def campaign() -> Any:
    """Return another clean log: amounts with heavy tails, an adaptive policy, missing values."""
    rng = np.random.default_rng(15)
    n = 3000
    shares = np.linspace(0.5, 0.8, n)
    codes = (rng.random(n) > shares).astype(int)
    paid = np.where(rng.random(n) < 0.2 + 0.1 * codes, rng.lognormal(3, 1.2, n), 0.0)
    income = rng.lognormal(10, 0.7, n).round()
    return pd.DataFrame(
        {
            "time": pd.date_range("2026-03-01", periods=n, freq="5min"),
            "action": np.where(codes == 0, "mail", "call"),
            "reward": paid - paid.mean(),
            "propensity": np.where(codes == 0, shares, 1 - shares),
            "income": np.where(rng.random(n) < 0.1, np.nan, income / 1000),
            "last_order": rng.lognormal(3, 1.2, n),
            "orders": rng.geometric(0.2, n),
            "segment": rng.choice(np.array(["x", "y", None], dtype=object), n),
        }
    )


SHOP = shop()
rng = np.random.default_rng(16)
DAY = {"every": "day"}


def at(column: str, rows: Any, value: Any) -> Callable[[Any], Any]:
    """Return the change that puts a value into some rows of a column."""

    def change(frame: Any) -> Any:
        values = frame[column].astype(object).to_numpy(copy=True)
        values[rows] = value
        return frame.assign(**{column: pd.Series(values).infer_objects()})

    return change


def add(**columns: Any) -> Callable[[Any], Any]:
    """Return the change that sets columns, given as values or made from the log."""
    return lambda frame: frame.assign(
        **{name: make(frame) if callable(make) else make for name, make in columns.items()}
    )


def noisy(frame: Any, correlation: float) -> Any:
    """Return a column with this correlation with the reward."""
    standard = (frame.reward - frame.reward.mean()) / frame.reward.std()
    return correlation * standard + np.sqrt(1 - correlation**2) * rng.normal(size=len(frame))


class Plant(NamedTuple):
    """A problem: how it is planted, the check and the column that report it, and how the log is cut."""

    plant: Callable[[Any], Any]
    check: str
    column: str | None
    options: dict[str, Any] = {}  # noqa: RUF012 - read only
    rows: tuple[int, ...] = ()


EPISODES = [f"e{number}" for number in range(1, 13)]
PLANTED = {
    # Missed before.
    "a leak of correlation 0.97": Plant(add(pulse=lambda f: noisy(f, 0.97)), "tells reward", "pulse"),
    "a leak of 99 % agreement": Plant(
        add(seen=lambda f: np.where(np.arange(ROWS) % 100 == 7, 1 - f.reward, f.reward)), "tells reward", "seen"
    ),
    "the reward in another unit": Plant(
        add(reward=lambda f: np.where(np.arange(ROWS) < 2500, f.reward, 100 * f.reward)), "reward unit", "reward"
    ),
    "a late new action": Plant(
        add(action=lambda f: np.where((np.arange(ROWS) > 2400) & (f.member), "D", f.action)), "late action", "action"
    ),
    "zeros in the last 5 %": Plant(at("reward", np.s_[3800:], 0.0), "rewards end", "reward"),
    "labels A and a": Plant(at("action", np.s_[100:1500:2], "a "), "similar actions", "action"),
    "−999 for missing": Plant(at("age", np.s_[::40], -999.0), "sentinel", "age"),
    "an outlier of 1e12": Plant(at("score", [1234], 1e12), "outlier", "score", rows=(1234,)),
    "a numeric user id": Plant(add(user_id=rng.integers(10**6, 9 * 10**6, ROWS)), "id-like", "user_id"),
    "epoch seconds": Plant(add(joined=1_500_000_000 + rng.integers(0, 10**8, ROWS)), "epoch time", "joined"),
    "one reward of 1e9": Plant(at("reward", [77], 1e9), "extreme reward", "reward", rows=(77,)),
    "a column empty for its first half": Plant(at("score", np.s_[:2000], None), "empty at first", "score"),
    "nan as text": Plant(at("city", np.s_[::50], "nan"), "missing as text", "city"),
    "a column twice": Plant(add(age_years=lambda f: f.age), "duplicate column", "age_years"),
    "a first day of 3 rows": Plant(
        add(time=lambda f: f.time.where(np.arange(ROWS) > 2, pd.Timestamp("2026-01-04 23:58"))),
        "small first episode",
        "time",
        DAY,
    ),
    # Seen by a symptom, or mentioned without the consequence.
    "a conversion column": Plant(
        add(converted=lambda f: ((f.reward > 0) & (np.arange(ROWS) % 5 == 0)) * 1.0), "follows reward", "converted"
    ),
    "a spend column": Plant(
        add(spend=lambda f: np.where(f.reward > 0, rng.lognormal(3, 1, ROWS), np.nan)), "follows reward", "spend"
    ),
    "a first row in 1970": Plant(at("time", [0], pd.Timestamp("1970-01-01")), "implausible time", "time", rows=(0,)),
    "propensities of 1": Plant(add(propensity=1.0), "deterministic", "propensity"),
    "no propensities": Plant(lambda f: f.drop(columns="propensity"), "no propensity", None),
    # Found before.
    "propensity 0": Plant(at("propensity", [9], 0.0), "impossible propensity", "propensity", rows=(9,)),
    "an id again": Plant(at("decision_id", [50], "d3"), "repeated id", "decision_id", rows=(50,)),
    "a misspelt action": Plant(at("action", [99], "AB"), "rare action", "action", rows=(99,)),
    "an infinite reward": Plant(at("reward", [11], np.inf), "impossible reward", "reward", rows=(11,)),
    "the time goes backwards": Plant(at("time", [700], pd.Timestamp("2026-01-05")), "unsorted", "time", rows=(700,)),
    "the reward as a column": Plant(add(paid=lambda f: f.reward), "equals reward", "paid"),
    "the action as a column": Plant(add(shown=lambda f: f.action), "equals action", "shown"),
}


def found(frame: Any, **options: Any) -> Diagnosis:
    return examine(open_log(frame), **options)


def alarms(diagnosis: Diagnosis) -> set[tuple[str, str | None]]:
    """Return the findings that are more than a note."""
    return {(one.check, one.column) for one in diagnosis.findings if one.severity != "note"}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_problem_is_found_and_nothing_else(name: str) -> None:
    plant = PLANTED[name]
    diagnosis = found(plant.plant(SHOP), **plant.options)
    [finding] = [one for one in diagnosis.findings if (one.check, one.column) == (plant.check, plant.column)]
    assert alarms(diagnosis) <= {(plant.check, plant.column), *BESIDE.get(name, ())}
    assert finding.severity in SEVERITIES
    if plant.rows:
        assert tuple(row.row for row in finding.rows) == plant.rows


def test_the_findings_do_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        "the reward in another unit",
        "labels A and a",
        "−999 for missing",
        "an outlier of 1e12",
        "a numeric user id",
    ]
    names += ["a column empty for its first half", "nan as text", "a column twice", "a first row in 1970"]
    frame = SHOP
    for name in names:
        frame = PLANTED[name].plant(frame)
    expected = found(frame, every="day").to_dict()
    assert len(expected["findings"]) >= len(names)
    read = TablePart.read
    monkeypatch.setattr(TablePart, "read", lambda self, *a, **k: read(self, *a, **{**k, "batch_rows": 301}))
    assert found(frame, every="day").to_dict() == expected


BESIDE = {"a first row in 1970": [("small first episode", "time")]}
"""What a planted problem brings along."""


def test_dates_as_whole_numbers_are_refused_with_the_date() -> None:
    days = SHOP.assign(time=SHOP.time.dt.strftime("%Y%m%d").astype(int))
    with pytest.raises(InputError, match=r"20260105 \(the date 2026-01-05, or in seconds a time in 1970\)"):
        found(days, every="day")


def test_a_reward_with_a_decimal_comma_is_refused_with_the_point() -> None:
    with pytest.raises(InputError, match=r"'reward'.*got the text '0,5'.*decimal point and without thousands"):
        found(SHOP.assign(reward="0,5"))
    with pytest.raises(InputError, match=r"got the text 'yes, bought'.*1 for yes and 0 for no"):
        found(SHOP.assign(reward="yes, bought"))


def test_a_text_reward_is_refused_with_its_value() -> None:
    words = SHOP.assign(reward=np.where(SHOP.reward > 0, "yes", "no"))
    with pytest.raises(
        InputError, match=r"'reward'.*got the text 'no'.*write a number, such as 1 for yes and 0 for no"
    ):
        found(words)
    late = SHOP.assign(reward=SHOP.reward.astype(str).where(SHOP.index != 700, "yes"))
    with pytest.raises(InputError, match=r"got the text 'yes' at row 700, but"):
        found(late)


@pytest.mark.parametrize(("cells", "line"), [("1 0 yes", 4), ("NA no 1", 3), ("yes no", 2)])
def test_a_text_reward_in_a_file_is_refused_with_its_line(cells: str, line: int, tmp_path: Path) -> None:
    rows = "".join(f"mail,{cell},2\n" for cell in cells.split())
    (tmp_path / "log.csv").write_text(f"action,reward,x\n{rows}")
    with pytest.raises(InputError, match=rf"column 'reward': got the text '(yes|no)' at line {line}, but"):
        open_log(tmp_path / "log.csv")


def test_rows_after_repeated_decisions_are_those_of_the_file(tmp_path: Path) -> None:
    for name, start in (("a.csv", 0), ("b.csv", 100)):
        ids = [f"d{start + (0 if row < 30 else row)}" for row in range(100)]
        weights = np.where(np.arange(100) == 70, -1.0, 1.0)
        frame = SHOP[:100].drop(columns="reward").assign(decision_id=ids, weight=weights)
        frame.to_csv(tmp_path / name, index=False)
    log, report = join_logs([tmp_path / "a.csv", tmp_path / "b.csv"], {"decision_id": ["d0"], "reward": [1.0]})
    (weight,) = [one for one in examine(log, joined=report).findings if one.column == "weight"]
    assert report.duplicates == 58
    assert [(Path(row.source.split("'")[1]).name, row.row) for row in weight.rows] == [("a.csv", 70), ("b.csv", 70)]


def test_rows_of_a_stretch_of_a_log_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    SHOP[:100].assign(weight=np.where(np.arange(100) == 70, -1.0, 1.0)).to_csv(path, index=False)
    (weight,) = [one for one in examine(split_log(open_log(path), 0.5)[1]).findings if one.column == "weight"]
    assert [row.row for row in weight.rows] == [70]


def test_a_text_reward_in_a_later_row_group_is_refused_with_its_row_in_the_file(tmp_path: Path) -> None:
    late = SHOP.assign(reward=SHOP.reward.astype(str).where(SHOP.index != 700, "yes"))
    late.to_parquet(tmp_path / "log.parquet", row_group_size=100)
    with pytest.raises(InputError, match=r"got the text 'yes' at row 700, but"):
        open_log(tmp_path / "log.parquet")


def test_remedies_that_name_an_odd_column_can_be_pasted() -> None:
    (one,) = [one for one in found(SHOP.assign(**{"my score": 3.0})).findings if one.column == "my score"]
    assert "--rename 'my score'=" in one.remedy
    (both,) = [one for one in found(SHOP.assign(**{"my score": 3.0, "b": 1.0})).findings if one.check == "constant"]
    assert both.column == "my score, b" and "(--rename 'my score'= --rename b=)" in both.remedy


def test_columns_that_could_be_the_time_or_the_unit_are_named() -> None:
    users = [f"u{row % 40}" for row in range(ROWS)]
    table = SHOP.rename(columns={"time": "seen"}).assign(**{"User ID": users})
    remedies = {one.check: one.remedy for one in found(table).findings}
    assert "--time-column seen" in remedies["unnamed time"]
    assert "--rename 'User ID'=unit_id" in remedies["unnamed unit"]
    known = {one.check for one in found(SHOP.assign(unit_id=users)).findings}
    assert not {"unnamed time", "unnamed unit"} & known


def test_the_remedy_for_a_missing_reward_names_the_option() -> None:
    (one,) = [one for one in found(SHOP.assign(reward=SHOP.reward.where(SHOP.index != 3))).findings if one.count == 1]
    assert one.check == "missing reward" and "--rewards FILE --default-reward 0" in one.remedy


def test_episodes_by_name_are_learned_in_the_order_of_their_numbers_or_reported() -> None:
    # Twelve episodes e1, …, e12, which sort as text with e10 before e2.
    log = open_log(SHOP.assign(episode=np.repeat(EPISODES, [334] * 11 + [ROWS - 11 * 334])))
    assert cut_episodes(log).in_order(sorted(EPISODES)) == EPISODES
    assert not alarms(examine(log))
    ambiguous = np.repeat(["e1", "e01", "e2", "e3"], ROWS // 4)
    assert alarms(found(SHOP.assign(episode=ambiguous))) == {("episode order", "episode")}
    months = ["jan", "feb", "mar", "apr"]
    assert alarms(found(SHOP.assign(episode=np.repeat(months, ROWS // 4)))) == {("episode order", "episode")}


def test_thirty_are_planted() -> None:
    assert len(PLANTED) + 3 == 30


@pytest.mark.parametrize("frame", [SHOP, campaign()], ids=["shop", "campaign"])
@pytest.mark.parametrize("options", [{}, DAY, {"batch_size": 500}], ids=str)
def test_a_clean_log_has_no_alarm(frame: Any, options: dict[str, Any]) -> None:
    diagnosis = found(frame, **options)
    assert not alarms(diagnosis)
    assert {one.check for one in diagnosis.findings} <= {"intercept"}


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("a score of correlation 0.85", lambda f: noisy(f, 0.85)),
        ("a customer who rarely fails", lambda f: np.where(rng.random(ROWS) < 0.9, f.reward, 1 - f.reward)),
        ("who has no account never buys", lambda f: np.where(f.reward > 0, 1.0, rng.random(ROWS) < 0.3)),
        (
            "a spend of last month",
            lambda f: np.where(rng.random(ROWS) < 0.3 + 0.4 * f.reward, rng.lognormal(3, 1, ROWS), 0),
        ),
    ],
)
def test_an_honest_predictor_is_no_alarm(name: str, column: Callable[[Any], Any]) -> None:
    assert not alarms(found(SHOP.assign(honest=column(SHOP)))), name


def test_constant_columns_are_one_finding() -> None:
    flat = SHOP.assign(**{f"affinity_{number}": 0.0 for number in range(20)})
    [finding] = [one for one in found(flat).findings if one.check == "constant"]
    assert finding.column == ", ".join(f"affinity_{number}" for number in range(20))
    dropping = " ".join(f"--rename affinity_{number}=" for number in range(20))
    assert finding.remedy == f"leave it out ({dropping})."
    [single] = [one for one in found(SHOP.assign(flat=0.0)).findings if one.check == "constant"]
    assert single.remedy == "leave it out (--rename flat=)."


@pytest.mark.parametrize("policy", ["random", "bts"])
def test_the_open_bandit_logs_have_one_alarm_at_most(policy: str) -> None:
    log = open_log(find(f"obd_small/{policy}/all/all.csv"))
    assert [check for check, _ in alarms(examine(log))] == ["constant"]


def test_gaps_at_the_end_and_scales_are_reported() -> None:
    gone = found(at("score", np.s_[3000:], None)(SHOP))
    assert alarms(gone) == {("empty at last", "score")}
    assert ("scales", None) in {(one.check, one.column) for one in found(SHOP.assign(wealth=SHOP.score * 1e6)).findings}
    scaled = found(SHOP.assign(wealth=SHOP.score * 1e6), encoding={"scale": True})
    assert "scales" not in {one.check for one in scaled.findings}


def test_numbers_with_a_comma_are_reported() -> None:
    written = SHOP.score.round(2).map(lambda score: str(score).replace(".", ","))
    assert alarms(found(SHOP.assign(score=written))) == {("decimal comma", "score")}
    thousands = SHOP.score.map(lambda score: "1,250" if score > 0 else "2,500")
    (one,) = (one for one in found(SHOP.assign(score=thousands)).findings if one.check == "decimal comma")
    assert "without thousands separators, such as 1250.5" in one.remedy


def test_propensities_rounded_to_two_digits_raise_no_alarm() -> None:
    assert alarms(found(SHOP.assign(propensity=0.33))) == set()
    assert alarms(found(SHOP.assign(propensity=0.3))) == {("implausible propensity", "propensity")}


# ---- rewards in another table -------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """Return decisions and rewards as two files: a reward for every purchase, two hours later."""
    decisions, rewards = tmp_path / "decisions.csv", tmp_path / "rewards.csv"
    SHOP.drop(columns="reward").to_csv(decisions, index=False)
    paid = SHOP[SHOP.reward > 0]
    pd.DataFrame({"decision_id": paid.decision_id, "value": 1.0, "time": paid.time + pd.Timedelta("2h")}).to_csv(
        rewards, index=False
    )
    return decisions, rewards


def spuir(*arguments: Any) -> Any:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)], catch_exceptions=False)


def test_joined_logs_are_checked(tables: tuple[Path, Path]) -> None:
    decisions, rewards = tables
    done = spuir(decisions, "--rewards", rewards, "--rename-rewards", "value=reward")
    assert done.exit_code == 0, done.output
    assert "4,000 decisions" in done.output
    assert "(counted as 0)" in done.output and "leave them out (--default-reward none)" in done.output
    unanswered = spuir(decisions, "--rewards", rewards, "--rename-rewards", "value=reward", "--default-reward", "none")
    assert "(counted as" not in unanswered.output and "there are rows without a reward" in unanswered.output
    # The same log in one table has the same statistics.
    joined = join_logs(
        open_log(decisions, kind="decisions"), open_log(rewards, rename={"value": "reward"}, kind="rewards")
    )
    assert not alarms(examine(joined.log, joined=joined.report))
    assert "it belongs to --rewards" in spuir(decisions, "--window", "2d").stderr
    waiting = spuir(decisions, "--rewards", rewards, "--rename-rewards", "value=reward", "--window", "1d")
    assert waiting.exit_code == 0, waiting.output
    assert "whose window of 1d was still open" in waiting.output


def test_rewards_that_match_no_decision_are_reported(tables: tuple[Path, Path]) -> None:
    decisions, rewards = tables
    text = rewards.read_text()
    rewards.write_text(text.replace("\nd1", "\nD1"))
    done = spuir(decisions, "--rewards", rewards, "--rename-rewards", "value=reward")
    assert (done.exit_code, "rewards have no decision" in done.output) == (1, True)
    rewards.write_text(text.replace("\nd", "\nD"))
    done = spuir(decisions, "--rewards", rewards, "--rename-rewards", "value=reward")
    assert (done.exit_code, "no decision has a reward." in done.output) == (2, True)
