"""Tuning: what is chosen on what, how it resumes, what it says, and that its intervals keep their promise."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import spuir
from spuir.base.streams import generator
from spuir.errors import InputError, ParameterError
from spuir.evaluation import exploration
from spuir.evaluation.candidates import AXES, Candidate, Contest, Results, Scored, candidates, survivors
from spuir.evaluation.encoded_rows import ReadRows, read_rows
from spuir.evaluation.exploration import Explored, Exploring, Rehearsals, choose
from spuir.evaluation.held_out import HeldOut, relative
from spuir.evaluation.intervals import interval
from spuir.evaluation.simulation import fit_world
from spuir.evaluation.tune import TuneJob, tune
from spuir.evaluation.tuning_result import _against, _without_floor, compared
from spuir.logs import cut_episodes, open_log
from spuir.tables.encoder import Encoder
from spuir.training.engines.local import Local
from tests.evaluation.known_rows import as_table, logged

SMALL = {"budget": 4, "policies": ["sbucb", "puir"], "batch_size": 100, "workers": 1}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare few settings while learning, for a moment."""
    monkeypatch.setattr(exploration, "ALPHAS", (0.0, 0.2))
    monkeypatch.setattr(exploration, "DECISIONS", 600)
    monkeypatch.setattr(exploration, "SEEDS", range(2))
    monkeypatch.setattr(exploration, "MORE_SEEDS", range(2, 4))


# ---- rows -------------------------------------------------------------------------------------------------------


def read(source, most=10_000, **given):
    log = open_log(source)
    return read_rows(log, cut_episodes(log, batch_size=None if "episode" in log.schema.names else 100, every=None),
                     {"intercept": True}, most=most, **given)  # fmt: skip


def test_rows_are_read_in_the_order_of_their_episodes_and_the_latest_are_kept():
    rng = generator(0, "tests", "episodes")
    episodes = rng.permutation(np.arange(1_500) // 100)
    whole = read(as_table(episode=episodes)).rows
    assert (np.diff(whole.episodes) >= 0).all() and len(whole) == 1_500
    order = np.argsort(episodes, kind="stable")
    np.testing.assert_array_equal(whole.rewards, as_table()["reward"].to_numpy()[order])
    made = read(as_table(episode=episodes), most=450)
    assert (len(made.rows), made.skipped) == (450, 1_050)
    np.testing.assert_array_equal(made.rows.rewards, whole.rewards[-450:])


def test_rows_are_the_same_however_they_lie_in_files(tmp_path: Path):
    table = as_table()
    for rows in (100, 1_500):
        parquet.write_table(table, tmp_path / f"{rows}.parquet", row_group_size=rows)
    parts, whole = (read(tmp_path / f"{rows}.parquet") for rows in (100, 1_500))
    assert parts.encoder.to_dict() == whole.encoder.to_dict()
    np.testing.assert_array_equal(parts.rows.contexts, whole.rows.contexts)


def test_uniform_propensities_follow_eligibility():
    labels = np.array(["a", "b", "c"])
    source = as_table()
    actions = source["action"].to_pylist()
    eligible = [[name for name in labels if name != "c" or own == "c"] for own in actions]
    found = read(source.append_column("eligible", pa.array(eligible)), uniform=True).rows
    expected = np.where(np.array(actions) == "c", 1 / 3, 1 / 2)
    np.testing.assert_allclose(found.propensities, expected)
    with pytest.raises(InputError, match="no column propensity"):
        read(as_table().drop_columns(["propensity"]))


def test_splits_are_whole_episodes_in_order():
    rows = logged(1_000, batch=90).rows
    parts = rows.split(0.6, 0.2)
    assert [len(part) for part in parts] == [630, 180, 190]
    np.testing.assert_array_equal(np.concatenate([part.rewards for part in parts]), rows.rewards)
    assert not {*parts[0].episodes} & {*parts[1].episodes}
    assert [len(part) for part in logged(300).rows.split(0.9, 0.05)] == [100, 100, 100]
    with pytest.raises(InputError, match="got 2 episodes, but at least 3 are needed"):
        logged(200).rows.split(0.6, 0.2)


# ---- values on held-out rows ------------------------------------------------------------------------------------


def test_held_out_values_are_doubly_robust_row_by_row():
    world = logged(900)
    earlier, later = world.rows.split(0.5)
    held_out = HeldOut.after(earlier, later, 0)
    chances = generator(1, "tests").dirichlet(np.ones(3), len(later))
    total = 0.0
    for row in range(len(later)):
        code = later.actions[row]
        value = sum(chances[row, j] * held_out.predicted[row, j] for j in range(3))
        weight = chances[row, code] / later.propensities[row]
        total += value + weight * (later.rewards[row] - held_out.predicted[row, code])
    estimate = held_out.estimate(chances)
    assert estimate.value == pytest.approx(total / len(later), rel=1e-12)
    assert held_out.estimate(None).value == pytest.approx(later.rewards.mean(), rel=1e-12)
    truth = np.vecdot(chances, world.means[len(earlier) :]).mean()
    assert abs(estimate.value - truth) < 4 * estimate.standard_error


def test_rows_of_one_unit_count_as_one():
    rows = logged(300, tilt=0.5).rows
    chances = np.full((300, 3), 1 / 3)
    alone = HeldOut(rows, np.zeros((300, 3))).estimate(chances)
    copied = rows.at(np.repeat(np.arange(300), 4))
    copies = np.repeat(chances, 4, axis=0), np.zeros((1_200, 3))
    units = np.repeat(np.arange(300, dtype=np.uint64), 4)
    grouped = HeldOut(replace(copied, units=units), copies[1]).estimate(copies[0])
    blind = HeldOut(copied, copies[1]).estimate(copies[0])
    assert grouped.value == pytest.approx(alone.value) and blind.value == pytest.approx(alone.value)
    assert grouped.standard_error == pytest.approx(alone.standard_error, rel=1e-9)
    assert blind.standard_error == pytest.approx(alone.standard_error / 2, rel=0.01)


def test_the_error_of_a_relative_gain_is_that_of_the_ratio():
    gains, errors = [], []
    for seed in range(200):
        rows = logged(400, seed, tilt=0.3).rows
        held_out = HeldOut(rows, np.zeros((400, 3)))
        found = relative(held_out.estimate(np.eye(3)[np.zeros(400, int)]), held_out.estimate(None))
        assert found is not None
        gains.append(found[0])
        errors.append(found[1].standard_error)
    # A standard deviation from 200 draws is known to 5 %; the bound is three times that.
    assert np.mean(errors) == pytest.approx(np.std(gains), rel=0.15)
    for rewards in (-rows.rewards, rows.rewards - rows.rewards.mean() + 0.001):
        unclear = HeldOut(replace(rows, rewards=rewards), np.zeros((400, 3))).estimate(None)
        assert relative(unclear, unclear) is None
        line = compared("logged", unclear, unclear)
        assert line.gain is None and line.in_words() == "0 per decision (0 to 0)"


def test_rewards_too_rare_to_be_seen_are_allowed_for():
    """About 100 effective rows without a reward, of a log with rewards: a share of log(40)/100 is possible."""
    rows = logged(300, seed=3).rows
    rewards = np.where(rows.actions == 0, 0.0, rows.rewards > rows.rewards.mean())
    held_out = HeldOut(replace(rows, rewards=rewards), np.zeros((300, 3)))
    never, sometimes = (held_out.estimate(np.eye(3)[np.full(300, code)]) for code in (0, 1))
    effective = (1 / rows.propensities[rows.actions == 0]).sum() ** 2 / (
        1 / rows.propensities[rows.actions == 0] ** 2
    ).sum()
    assert interval(never) == (0, pytest.approx(np.log(40) / effective))
    gain = compared("always 1", never, sometimes)
    bound = np.log(40) / effective / sometimes.value
    assert gain.gain == -1 and gain.gain_high is not None and gain.gain_low is not None
    assert gain.gain_high >= -1 + bound
    assert gain.gain_high - gain.gain_low < 4 * bound
    alike = compared("always 0", never, never)
    assert (alike.difference, alike.difference_low, alike.difference_high) == (0, 0, 0)


# ---- candidates and rounds --------------------------------------------------------------------------------------


def test_candidates_start_with_defaults_and_keep_to_the_budget():
    made = candidates(["sbucb", "puir", "spuir"], 30, seed=0)
    assert len(made) == len(set(made)) == 30
    assert made[:3] == [Candidate("sbucb"), Candidate("puir"), Candidate("spuir")]
    assert candidates(["sbucb", "puir", "spuir"], 30, seed=0) == made
    assert candidates(["sbucb", "puir", "spuir"], 30, seed=1) != made
    every = candidates(["sbucb"], 1_000, seed=0)
    assert len(every) == len(AXES["features"]) * len(AXES["ridge"])
    assert len({one.make() for one in every}) == len(every)
    assert not any("sketch_size" in dict(one.parameters) for one in candidates(["puir"], 500, seed=0))
    assert all("alpha" not in dict(one.parameters) and "floor" not in dict(one.parameters) for one in made)


def test_policies_without_estimates_are_refused():
    with pytest.raises(ParameterError, match="'bexp3'"):
        candidates(["bexp3"], 5, seed=0)


def test_the_best_third_and_the_best_baselines_survive():
    ranked = [Scored(Candidate("puir" if at < 20 else "sbucb", (("at", at),)), 1.0, -at, 0.1) for at in range(30)]
    left = survivors(ranked)
    assert [dict(one.candidate.parameters)["at"] for one in left] == [*range(10), 20, 21]


def test_a_score_is_the_value_of_acting_on_the_estimates_whatever_explores():
    earlier, later = logged(800).rows.split(0.5)
    contest = Contest(earlier, later, 0)
    plain, bold = Candidate("sbucb"), Candidate("sbucb", (("alpha", 5.0), ("floor", 0.2)))
    assert contest.score((plain, 1.0)) == contest.score((bold, 1.0))
    bandit = earlier.taught(spuir.make_policy("sbucb", alpha=0.0), 0)
    value = contest.held_out.estimate(bandit.predict_proba(later.contexts)).value
    assert contest.score((plain, 1.0))["value"] == pytest.approx(value, rel=1e-12)
    latest = earlier.at(slice(200, None)).taught(spuir.make_policy("sbucb", alpha=0.0), 0)
    value = contest.held_out.estimate(latest.predict_proba(later.contexts)).value
    assert contest.score((plain, 0.5))["value"] == pytest.approx(value, rel=1e-12)


# ---- exploration ------------------------------------------------------------------------------------------------


def explored(floor: float, value: float, behind: float, seeds: int = 10) -> Explored:
    return Explored(Exploring(0.1, floor, 100), value, behind, 0.0, seeds)


def test_the_largest_floor_within_its_cost_is_chosen():
    found = [explored(0.0, 0.500, 0.0), explored(0.01, 0.496, 0.004), explored(0.1, 0.45, 0.05)]
    assert choose(found, 0.01).setting.floor == 0.01
    assert choose(found, 0.0).setting.floor == 0.0
    assert choose(found, 0.2).setting.floor == 0.1
    unfinished = [*found, explored(0.2, 0.499, 0.001, seeds=3)]
    assert choose(unfinished, 0.01).setting.floor == 0.01


def test_a_winner_without_a_floor_says_what_its_log_cannot_do():
    found = [explored(0.0, 1.0, 0.0), explored(0.01, 0.977, 0.023), explored(0.1, 0.9, 0.1), explored(0.1, 1, 0, 2)]
    said = "With floor=0 its decisions have propensity 1, and no other policy can be evaluated on their log"
    remedy = "floor=0.01 cost 2.3% of the reward, and floor_cost=0.03 (--floor-cost 0.03) accepts it"
    assert _without_floor(found) == f"{said}; {remedy}."
    assert choose(found, 0.03).setting.floor == 0.01
    assert _without_floor(found[:1]) == f"{said}."


@pytest.mark.usefixtures("quick")
def test_the_answer_says_that_a_winner_has_no_floor():
    found = tune(as_table(), **SMALL, learning="simulation", floor_cost=0.0)
    assert found.policy.floor == 0 and found.sentences[-1].startswith("With floor=0 its decisions have propensity 1")
    found = tune(as_table(), **SMALL, learning="simulation", floor_cost=1.0)
    assert (found.policy.floor or 0) > 0 and not any("propensity 1" in sentence for sentence in found.sentences)


def test_replay_is_preferred_where_the_log_is_large(monkeypatch):
    rows = logged(3_000, tilt=0.0).rows
    assert Rehearsals(rows, "auto", [100], 0).how == "simulation"
    monkeypatch.setattr(exploration, "REPLAYED_ROWS", 900)
    monkeypatch.setattr(exploration, "REPLAYED_EPISODES", 5)
    assert Rehearsals(rows, "auto", [100], 0).how == "replay"
    masked = replace(rows, eligible=np.arange(3) != (rows.actions[:, None] + 1) % 3)
    assert Rehearsals(masked, "auto", [100], 0).how == "replay"
    with pytest.raises(InputError, match="allows every action"):
        Rehearsals(masked, "simulation", [100], 0)


@pytest.mark.parametrize("how", ["replay", "simulation"])
@pytest.mark.usefixtures("quick")
def test_settings_are_compared_with_the_same_seeds(how):
    rehearsals = Rehearsals(logged(1_500, tilt=0.0).rows, how, [40, 80], 5)
    counted: list[int] = []
    found = rehearsals.compare(Candidate("sbucb"), Results(None, ""), Local(1), counted.append)
    assert len(found) == 2 * 3 * 2 and sum(counted) == rehearsals.count(Candidate("sbucb"))
    assert {one.setting.batch_size for one in found} == {40, 80}
    assert found[0].behind == 0.0 and found[0].seeds == 4
    assert all(one.behind >= 0 for one in found[:6])
    again = rehearsals.compare(Candidate("sbucb"), Results(None, ""), Local(2), counted.append)
    assert again == found


def test_simulations_are_equally_long_and_count_the_episode_decided_at_random(monkeypatch):
    monkeypatch.setattr(exploration, "DECISIONS", 1_200)
    rows = logged(1_000, tilt=0.0).rows
    rehearsals = Rehearsals(rows, "simulation", [50, 400], 0)
    world = fit_world(rows)
    for size, episodes in ((50, 39), (400, 4)):  # at least five of the largest batches
        (task,) = rehearsals.tasks(Candidate("sbucb"), [Exploring(0.1, 0.0, size)], range(1))
        policy = spuir.make_policy("sbucb", alpha=0.1)
        rewards = spuir.run(policy, world, episodes=episodes, batch_size=size, seed=0).rewards
        expected = (world.means.mean() + rewards.sum()) / (episodes + 1)
        assert rehearsals._learn(task)["value"] == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(exploration, "DECISIONS", 20_000)
    assert rehearsals._decisions(spuir.make_policy("sbucb")) == 16_000
    monkeypatch.setattr(exploration, "OPERATIONS", 10 * 3 * 3.0**3)
    assert rehearsals._decisions(spuir.make_policy("sbucb")) == 4_000


# ---- the whole --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_from_a_log_to_a_trained_winner(tmp_path: Path):
    stages: list[tuple[str, int, int]] = []
    given = {**SMALL, "batch_size": 400, "watch": lambda *step: stages.append(step)}
    found = tune(as_table(6_000), **given, out=tmp_path / "m.spuir")
    assert found.rows == (3_600, 1_200, 1_200)
    assert [one.name for one in found.comparisons][:2] == ["logged", "always 'a'"]
    logged_line = found.comparisons[0]
    assert found.value is not None and logged_line.value is not None
    # The best policy earns 0.58, the log 0.4; a gain that is not shown would need an error ten times as large.
    assert logged_line.shown and found.sentences[1].startswith("The gain over your current policy is ")
    assert logged_line.gain == pytest.approx(found.value / logged_line.value - 1)
    assert logged_line.difference == pytest.approx(found.value - logged_line.value)
    saved = spuir.load(tmp_path / "m.spuir")
    assert saved.policy_ == found.policy and saved.n_episodes_ == 15
    assert saved.predict([{"x": 1.0, "y": -1.0}]).tolist() == found.bandit.predict([{"x": 1.0, "y": -1.0}]).tolist()
    assert not (tmp_path / "m.spuir.progress").exists()
    assert {name for name, _, _ in stages} >= {"compare candidates", "compare exploration", "train: learn"}
    assert all(done <= total for _, done, total in stages)
    assert json.loads(json.dumps(found.to_dict()))["rows"] == {"learn": 3_600, "compare": 1_200, "final": 1_200}
    assert len(found.to_frame()) == len(found.scores)


@pytest.mark.usefixtures("quick")
def test_weak_support_withholds_a_verdict_as_in_an_evaluation():
    found = tune(as_table(), **SMALL)
    line = found.comparisons[0]
    # The plain interval lies above 0, but about 100 effective rows are few, and the wider interval holds 0.
    assert found.support.verdict == "weak" and line.difference_low is not None and line.difference_low > 0
    assert not line.shown and line.verdict == "not distinguishable"
    assert found.sentences[1].startswith("No gain over your current policy is shown: it is ")
    assert found.sentences[1].endswith(", with weak support.")
    assert found.sentences[-1].startswith("The support is weak, and verdicts need a wider interval: it rests on only ")
    assert json.loads(json.dumps(found.to_dict()))["comparisons"][0]["verdict"] == "not distinguishable"


def test_an_evaluation_of_the_same_rows_has_the_same_verdict():
    for n, expected in ((300, "not distinguishable"), (3_000, "better")):
        rows = logged(n).rows
        best = np.eye(3)[np.argmax(logged(n).means, axis=1)]
        held_out = HeldOut(rows, np.zeros((n, 3)))
        support = held_out.support(best)
        line = compared("logged", held_out.estimate(best), held_out.estimate(None), (support, None))
        report = spuir.evaluate(as_table(n), {"best": best}, against=["logged"])
        assert support.verdict == report.supports["best"].verdict
        assert line.verdict == report.differences_found[0].verdict == expected


def test_an_alternative_without_support_has_no_numbers():
    rows = logged(600, tilt=0.0).rows
    kept = rows.at(np.flatnonzero((rows.actions != 1) | (np.arange(600) < 30)))
    held_out = HeldOut(kept, np.zeros((len(kept), 3)))
    zero, one = (np.eye(3)[np.full(len(kept), code)] for code in (0, 1))
    line = compared("always 'b'", held_out.estimate(zero), held_out.estimate(one),
                    (held_out.support(zero), held_out.support(one)))  # fmt: skip
    assert (line.verdict, line.support, line.value, line.gain) == ("refused", "none", None, None)
    assert not line.shown and line.in_words() == "not known"
    assert "there is no verdict: the last episodes cannot tell what that earns (it rests on only" in _against(line)


@pytest.mark.usefixtures("quick")
def test_eligibility_units_and_weights_of_a_log_are_read():
    source = as_table(1_200, tilt=0.0)
    own = source["action"].to_pylist()
    eligible = [sorted({"a", "b", label}) for label in own]
    chances = [1 / len(labels) for labels in eligible]
    columns = {"eligible": eligible, "unit_id": [f"u{row // 3}" for row in range(1_200)], "weight": [2.0] * 1_200}
    given = source.set_column(source.schema.names.index("propensity"), "propensity", [chances])
    for name, values in columns.items():
        given = given.append_column(name, pa.array(values))
    found = tune(given, **{**SMALL, "batch_size": 60})
    assert found.how == "replay" and found.value is not None
    assert found.rows == (720, 240, 240)


@pytest.mark.usefixtures("quick")
def test_a_column_of_ids_is_reported_once():
    told: list[str] = []
    tune(as_table(600, visit_id=[f"v{row}" for row in range(600)]), **{**SMALL, "budget": 2}, tell=told.append)
    assert sum(one.startswith("visit_id: nearly every row has a different value") for one in told) == 1


@pytest.mark.usefixtures("quick")
def test_an_interrupted_tuning_resumes_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = tune(as_table(), **SMALL)
    calls = 0
    score = Contest.score

    def stopping(self, task):
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return score(self, task)

    monkeypatch.setattr(Contest, "score", stopping)
    with pytest.raises(KeyboardInterrupt):
        tune(as_table(), **SMALL, out=tmp_path / "m.spuir")
    assert (tmp_path / "m.spuir.progress" / "tuning.json").exists()
    notices: list[str] = []
    resumed = tune(as_table(), **SMALL, out=tmp_path / "m.spuir", tell=notices.append)
    assert resumed.resumed == 5 and "Resuming with 5 results of an earlier run." in notices
    assert resumed.scores == whole.scores and resumed.explored == whole.explored
    assert resumed.comparisons == whole.comparisons
    other = tune(as_table(seed=1), **SMALL, out=tmp_path / "m.spuir")
    assert other.resumed == 0


def test_intervals_of_gains_that_do_not_exist_lie_above_0_in_at_most_one_of_twenty(monkeypatch: pytest.MonkeyPatch):
    level = [explored(0.0, 0.5, 0.0)]
    monkeypatch.setattr(Rehearsals, "compare", lambda *_: level)  # chosen on other rows, it changes nothing here
    above = []
    for seed in range(40):
        # Rewards do not depend on the action: nothing can be gained.
        rows = replace(
            logged(750, seed, batch=150, tilt=0.3).rows, rewards=generator(seed, "tests", "null").random(750)
        )
        job = TuneJob(
            read=ReadRows(rows, Encoder.learn({"x": [0.0, 1.0]}), 0),
            chosen=candidates(["sbucb", "puir"], 4, seed),
            results=Results(None, ""),
            seed=seed,
            engine=Local(1),
            watch=lambda *_: None,
        )
        found = job.answer("simulation", None, 0.0)["comparisons"]
        assert not any(one.shown and one.difference_low <= 0 for one in found)
        above += [found[0].difference_low > 0] if found else []
    assert len(above) > 35
    # One side of a 95 % interval: 1 of 40 is expected, and more than 5 in less than 1 of 1,000 cases.
    assert sum(above) <= 5


def test_wrong_input_is_one_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="no column propensity"):
        tune(as_table().drop_columns(["propensity"]), **SMALL)
    with pytest.raises(InputError, match="1 episode, but at least 3"):
        tune(as_table(), **{**SMALL, "batch_size": 5_000})
    for wrong in ({"learning": "guess"}, {"propensity": "estimate"}, {"budget": 0}, {"floor_cost": 2.0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            tune(as_table(), **{**SMALL, **wrong})
    (tmp_path / "taken").write_text("something else")
    with pytest.raises(ParameterError, match="not a saved model"):
        tune(as_table(), **SMALL, out=tmp_path / "taken")


@pytest.mark.usefixtures("quick")
def test_without_support_there_is_no_number():
    # The rare action is the better one, and the last 300 rows have it nine times.
    rare = np.arange(1_500) % 33 == 0
    columns = {"action": np.where(rare, "b", "a"), "propensity": np.where(rare, 1 / 33, 32 / 33)}
    found = tune(pa.table({"x": np.linspace(0, 1, 1_500), "reward": rare.astype(float), **columns}), **SMALL)
    assert found.support.verdict == "none" and found.value is None and not found.comparisons
    assert "cannot tell what it earns: it rests on only 9 effective rows of 300" in found.sentences[1]
    assert "log with floor" in found.sentences[1]
