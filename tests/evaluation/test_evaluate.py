"""The whole evaluation: policies of all kinds, logs of all shapes, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import spuir
from benchmarks.worlds import ACTIONS, World, soft, threshold
from spuir.errors import InputError, ParameterError, UnknownNameError
from spuir.evaluation import action_dist, evaluate
from spuir.evaluation.estimators import FAMILY
from spuir.evaluation.intervals import INTERVALS
from spuir.logs import open_log

CONTEXT = ["x", "y"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return World().draw(900, np.random.default_rng(11))[0]


@pytest.fixture(scope="module")
def bandit(frame: pd.DataFrame) -> spuir.Bandit:
    earlier = World().draw(900, np.random.default_rng(12))[0]
    made = spuir.Bandit(spuir.make_policy("sbucb", intercept=True, floor=0.05), ACTIONS, random_state=0)
    return made.partial_fit(earlier[CONTEXT], earlier.action, earlier.reward)


@pytest.fixture(scope="module")
def longer() -> pd.DataFrame:
    frame = World().draw(3000, np.random.default_rng(13))[0]
    return frame.assign(segment=np.where(frame.x > 0, "high", "<low>"))


@pytest.fixture(scope="module")
def report(longer: pd.DataFrame, bandit: spuir.Bandit) -> Any:
    return evaluate(longer, {"model": bandit, "rule": threshold})


def values(report: Any, policy: str) -> dict[str, float]:
    return {one.estimator: one.value for one in report.values if one.policy == policy}


class TestPolicies:
    def test_a_function_that_fails_is_named_with_its_rows(self, frame: pd.DataFrame) -> None:
        def by_age(rows: pd.DataFrame) -> Any:
            return rows.age

        message = r"by_age: got AttributeError \(.*'age'\) at rows 0 to 899, but .* 'x', 'y'; correct the function"
        with pytest.raises(InputError, match=message) as caught:
            evaluate(frame, by_age)
        assert isinstance(caught.value.__cause__, AttributeError)

    def test_a_policy_is_the_same_in_every_form(
        self, frame: pd.DataFrame, bandit: spuir.Bandit, tmp_path: Path
    ) -> None:
        bandit.save(tmp_path / "model.spuir")
        chances = bandit.predict_proba(frame[CONTEXT])
        shuffled = pd.DataFrame(chances, columns=ACTIONS)[["c", "a", "b"]]
        forms = {
            "bandit": bandit,
            "path": tmp_path / "model.spuir",
            "table": chances,
            "obp": chances[:, :, None],
            "frame": shuffled,
            "function": lambda rows: bandit.predict_proba(rows[CONTEXT]),
        }
        found = evaluate(frame, forms, against=[], actions=ACTIONS)
        first = values(found, "bandit")
        for name in forms:
            assert values(found, name) == pytest.approx(first, rel=1e-12), name
        assert all(one.difference == pytest.approx(0, abs=1e-12) for one in found.differences_found)

    def test_fixed_rules(self, frame: pd.DataFrame) -> None:
        rules = {"all b": "always:b", "even": "uniform", "function": lambda rows: ["b"] * len(rows)}
        found = evaluate(frame, rules, against=["uniform", "always:b"])
        assert values(found, "all b") == values(found, "function") == values(found, "always:b")
        assert values(found, "even") == values(found, "uniform")

    def test_eligibility_is_respected(self, frame: pd.DataFrame) -> None:
        log = frame.assign(eligible=[["a", "b", "c"] if one == "c" else ["a", "b"] for one in frame.action])
        found = evaluate(log, {"even": "uniform", "c": "always:c"}, against=[], estimators=["ips"])
        masked = frame.action != "c"
        chances = np.where(masked, 1 / 2, 1 / 3)
        assert found.value_of("even").value == pytest.approx((frame.reward * chances / frame.propensity).mean())
        # Where c is not eligible, "always c" falls back on the others evenly.
        chances = np.where(masked, 1 / 2, 1.0)
        assert found.value_of("c").value == pytest.approx((frame.reward * chances / frame.propensity).mean())

    def test_a_rule_that_names_a_barred_action_falls_back_as_always_does(self, frame: pd.DataFrame) -> None:
        log = frame.assign(eligible=[["a", "b", "c"] if one == "c" else ["a", "b"] for one in frame.action])
        found = evaluate(log, {"rule": lambda rows: ["c"] * len(rows)}, against=["always:c"])
        assert values(found, "rule") == values(found, "always:c")

    def test_barred_actions_in_a_table_are_refused(self, frame: pd.DataFrame) -> None:
        log = frame.assign(eligible=[["a", "b", "c"] if one == "c" else ["a", "b"] for one in frame.action])
        even = np.full((900, 3), 1 / 3)
        for policy in (even, lambda rows: even[: len(rows)]):
            with pytest.raises(InputError, match=r"a probability for 'c' at row \d+, but it was not eligible there"):
                evaluate(log, {"even": policy}, against=[])

    @pytest.mark.parametrize("place", [0, 3])
    def test_labels_of_a_table_that_the_log_does_not_have(self, place: int, frame: pd.DataFrame) -> None:
        """Neither is their probability given to another action, nor is it forgotten."""
        table = pd.DataFrame(np.tile([0.5, 0.0, 0.1], (900, 1)), columns=ACTIONS)
        table.insert(place, "d", 0.4)
        with pytest.raises(UnknownNameError, match=r"a probability for 'd', but the log has .* in actions="):
            evaluate(frame, {"table": table}, against=[])
        found = evaluate(frame, {"table": table}, against=[], actions=[*ACTIONS, "d"])
        assert found.supports["table"].unseen == pytest.approx(0.4)
        assert found.refused == ["table"]
        without = table.assign(d=0.0, c=0.5)
        found = evaluate(frame, {"table": without, "same": without.drop(columns="d")}, against=[])
        assert values(found, "table") == values(found, "same")
        numbered = frame.assign(action=frame.action.map({"a": 0, "b": 1, "c": 3}))
        with pytest.raises(UnknownNameError, match="a probability for 2"):
            evaluate(numbered, {"table": np.full((900, 4), 0.25)}, against=[])

    def test_columns_of_a_rule_do_not_depend_on_the_order_of_the_log(self, frame: pd.DataFrame) -> None:
        table = pd.DataFrame(np.tile([0.7, 0.2, 0.1], (900, 1)), columns=ACTIONS)
        shuffled = table[["c", "a", "b"]]
        for log in (frame, frame.sort_values("action"), frame.sort_values("action", ascending=False)):
            rules = {"array": lambda rows: table.to_numpy()[: len(rows)], "frame": lambda rows: shuffled[: len(rows)]}
            found = evaluate(log, {"table": table} | rules, against=[], estimators=["ips"])
            assert values(found, "array") == values(found, "frame") == values(found, "table")

    def test_masks_are_in_the_order_of_the_actions(self, frame: pd.DataFrame) -> None:
        masks = [[True, True, one == "c"] for one in frame.action]
        lists = [[name for name, on in zip(ACTIONS, mask, strict=True) if on] for mask in masks]
        by_mask, by_list = (evaluate(frame.assign(eligible=one), "uniform", against=[]) for one in (masks, lists))
        assert values(by_mask, "uniform") == pytest.approx(values(by_list, "uniform"))

    def test_masks_of_numbered_actions_are_in_the_order_of_the_numbers(self, frame: pd.DataFrame) -> None:
        numbers = np.arange(900) % 11
        masks = [[own >= 9 or place != 10 for place in range(11)] for own in numbers]
        lists = [[place for place, on in enumerate(mask) if on] for mask in masks]
        log = frame.assign(action=numbers, propensity=0.1)
        by_mask, by_list = (evaluate(log.assign(eligible=one), "uniform", against=[]) for one in (masks, lists))
        assert values(by_mask, "uniform") == pytest.approx(values(by_list, "uniform"))

    def test_probabilities_go_out_as_obp_takes_them(self, frame: pd.DataFrame, bandit: spuir.Bandit) -> None:
        found = action_dist(bandit, frame, actions=["c", "b", "a"])
        np.testing.assert_allclose(found[:, ::-1, 0], bandit.predict_proba(frame[CONTEXT]))
        assert found.shape == (900, 3, 1)

    def test_an_action_that_the_model_does_not_know_is_reported(self, frame: pd.DataFrame) -> None:
        small = spuir.Bandit("uniform", ["a", "b"], 0)
        found = evaluate(frame, {"small": small}, against=["logged"])
        assert "small does not know 'c' of the log, and never chooses it." in found.notices
        assert found.supports["small"].verdict == "good"

    def test_actions_that_were_never_logged_are_refused(self, frame: pd.DataFrame) -> None:
        large = spuir.Bandit("uniform", [*ACTIONS, "d"], 0)
        found = evaluate(frame, {"large": large}, against=["logged"])
        assert found.refused == ["large"]
        assert "25.0% of its choices are actions that were never logged (d)" in found.sentences[0]

    def test_other_actions_are_refused(self, frame: pd.DataFrame) -> None:
        with pytest.raises(InputError, match="none of them is the same"):
            evaluate(frame, {"other": spuir.Bandit("uniform", ["u", "v"], 0)})

    def test_a_log_of_the_policy_itself_is_recognised(self, frame: pd.DataFrame) -> None:
        even = frame.assign(propensity=1 / 3)
        found = evaluate(even, {"same": "uniform"}, against=["logged"])
        assert any(notice.startswith("The log was written by same itself") for notice in found.notices)
        assert found.value_of("same", "ips").value == pytest.approx(even.reward.mean())


class TestLogs:
    def test_parts_and_order_do_not_matter(self, frame: pd.DataFrame, tmp_path: Path) -> None:
        log = frame.assign(unit_id=np.arange(900) // 3)
        whole = evaluate(log, {"rule": threshold})
        for at in range(3):
            parquet.write_table(pa.Table.from_pandas(log[300 * at : 300 * (at + 1)]), tmp_path / f"{at}.parquet")
        parts = evaluate(str(tmp_path), {"rule": threshold})
        for one, two in zip(whole.values, parts.values, strict=True):
            assert (one.policy, one.estimator, one.setting) == (two.policy, two.estimator, two.setting)
            assert (one.value, one.standard_error) == pytest.approx((two.value, two.standard_error), rel=1e-9)
        shuffled = evaluate(log.sample(frac=1, random_state=0), {"rule": threshold}, estimators=["ips", "snips", "dr"])
        for name in ("ips", "snips", "dr"):  # folds and blocks go by unit, so that the order is nothing
            one, two = whole.value_of("rule", name), shuffled.value_of("rule", name)
            assert (one.value, one.standard_error) == pytest.approx((two.value, two.standard_error), rel=1e-9)

    def test_a_weight_counts_a_row_several_times(self, frame: pd.DataFrame) -> None:
        weights = np.random.default_rng(0).integers(0, 4, 900)
        weighted = evaluate(
            frame.assign(weight=weights.astype(float)), {"rule": threshold}, estimators=["ips", "snips"]
        )
        copies = evaluate(
            frame.loc[frame.index.repeat(weights.tolist())], {"rule": threshold}, estimators=["ips", "snips"]
        )
        for name in ("rule", "logged"):
            assert values(weighted, name) == pytest.approx(values(copies, name), rel=1e-9)

    def test_rows_without_reward_are_left_out_and_reported(self, frame: pd.DataFrame) -> None:
        log = frame.assign(reward=frame.reward.where(np.arange(900) >= 100))
        found = evaluate(log, {"rule": threshold}, reward_model=None)
        expected = evaluate(frame[100:], {"rule": threshold}, reward_model=None)
        assert values(found, "rule") == pytest.approx(values(expected, "rule"))
        assert "Left out: 100 rows without a reward." in found.notices

    def test_a_column_of_ids_that_models_learn_from_is_reported(self, frame: pd.DataFrame) -> None:
        log = frame.assign(visit_id=[f"v{row}" for row in range(900)])
        for model, count in (("linear", 1), (None, 0)):
            notices = evaluate(log, "uniform", reward_model=model).notices
            assert sum(one.startswith("visit_id: nearly every row has a different value") for one in notices) == count

    def test_units_widen_intervals(self, frame: pd.DataFrame) -> None:
        copies = pd.concat([frame.assign(unit_id=np.arange(900))] * 4)
        by_row = evaluate(copies, {"rule": threshold}, group_by="row")
        by_unit = evaluate(copies, {"rule": threshold})
        ratio = (by_unit.value_of("rule").standard_error or 0) / (by_row.value_of("rule").standard_error or 1)
        assert ratio == pytest.approx(2, rel=0.05)

    def test_episodes_can_be_the_groups(self, frame: pd.DataFrame) -> None:
        found = evaluate(frame, {"rule": threshold}, batch_size=30, group_by="episode")
        assert found.facts["episodes"] == 30
        assert found.facts["folds"]["by"] == "episode"
        with pytest.raises(ParameterError, match="one episode only, but an interval by episode needs at least two"):
            evaluate(frame, {"rule": threshold}, batch_size=900, group_by="episode")

    def test_one_episode_is_reported(self, frame: pd.DataFrame) -> None:
        found = evaluate(frame.assign(episode=0), {"rule": threshold}, against=["logged"])
        assert any(notice.startswith("The log has one episode only") for notice in found.notices)
        assert found.facts["folds"]["by"] == "blocks"

    def test_a_position_counts_as_context(self, frame: pd.DataFrame) -> None:
        log = frame.assign(position=np.arange(900) % 3)
        seen: list[str] = []

        def rule(rows: Any) -> Any:
            seen.extend(rows.columns)
            return threshold(rows)

        evaluate(log, {"rule": rule}, against=[])
        assert set(seen) == {"x", "y", "position"}

    def test_rows_after_a_time(self, frame: pd.DataFrame) -> None:
        log = frame.assign(time=1_700_000_000 + 60 * np.arange(900))
        found = evaluate(log, {"rule": threshold}, after=1_700_000_000 + 60 * 500, reward_model=None)
        assert values(found, "rule") == values(evaluate(log[500:], {"rule": threshold}, reward_model=None), "rule")
        with pytest.raises(InputError, match="choosing rows by time needs it"):
            evaluate(frame, {"rule": threshold}, after="2024-01-01")

    def test_logs_without_contexts(self, frame: pd.DataFrame) -> None:
        found = evaluate(frame[["action", "reward", "propensity"]], "always:b")
        own = frame[frame.action == "b"]
        assert found.value_of("always:b", "snips").value == pytest.approx(
            (own.reward / own.propensity).sum() / (1 / own.propensity).sum()
        )

    def test_an_open_log_and_another_column(self, frame: pd.DataFrame) -> None:
        renamed = frame.rename(columns={"propensity": "p"})
        found = evaluate(renamed, {"rule": threshold}, propensity="p", against=[])
        assert values(found, "rule") == values(evaluate(frame, {"rule": threshold}, against=[]), "rule")
        with pytest.raises(ParameterError, match="of an open log it is one of logged, uniform, estimate"):
            evaluate(open_log(renamed), {"rule": threshold}, propensity="p")

    def test_uniform_propensities(self, frame: pd.DataFrame) -> None:
        found = evaluate(frame.drop(columns="propensity"), {"even": "uniform"}, propensity="uniform", against=[])
        assert found.value_of("even", "ips").value == pytest.approx(frame.reward.mean())


BAD = {
    "0": (lambda f: f.assign(propensity=f.propensity.where(f.index != 5, 0.0)), r"0.0 at row 5, .* lies in \(0, 1\]"),
    "above": (lambda f: f.assign(propensity=f.propensity.where(f.index != 5, 1.2)), r"1.2 at row 5, .* lies in"),
    "missing": (lambda f: f.assign(propensity=f.propensity.where(f.index != 5)), "nothing at row 5, .*every row"),
    "absent": (lambda f: f.drop(columns="propensity"), "no column 'propensity'.*uniform.*estimate"),
    "one": (lambda f: f.assign(propensity=1.0), "without exploration over 'a', 'b', 'c'.*decide with a floor"),
    "sum": (lambda f: f.assign(probabilities=[[0.5, 0.3, 0.3]] * 900), "a sum of 1.1 at row 0.*sum to one"),
    "text": (lambda f: f.assign(reward="yes"), "'reward' holds numbers"),
    "no action": (lambda f: f.assign(action=f.action.where(f.index != 5)), "nothing at row 5, .*has an action"),
    "empty": (lambda f: f[:0], "no rows"),
    "no rewards": (lambda f: f.assign(reward=np.nan), "no row with a reward"),
    "slate": (
        lambda f: f.assign(decision_id=np.arange(900) // 3, position=np.arange(900) % 3),
        "a decision fills several positions",
    ),
    "not eligible": (lambda f: f.assign(eligible=[["a"]] * 900), "executed but not eligible"),
    "no label": (
        lambda f: f.assign(eligible=[["a", "b", "c"]] * 5 + [["a", "b", None, "c"]] * 895),
        "eligible.*nothing for a label at row 5, .* drop it from the list",
    ),
    "weight": (lambda f: f.assign(weight=-1.0), "a weight is finite and ≥ 0"),
}


class TestRefusals:
    def test_a_bad_row_of_a_stretch_of_the_log_is_named_by_its_row_in_the_file(
        self, frame: pd.DataFrame, tmp_path: Path
    ) -> None:
        times = 1_700_000_000 + 60 * np.arange(900)
        bad = frame.assign(weight=np.where(frame.index == 700, -1.0, 1.0))
        bad.to_csv(tmp_path / "ordered.csv", index=False)
        bad.assign(time=times).to_csv(tmp_path / "timed.csv", index=False)
        cases: list[tuple[str, Any, dict[str, Any]]] = [
            ("timed.csv", {"rule": threshold}, {"after": int(times[500])}),
            ("timed.csv", "puir", {"batch_size": 100}),
            ("ordered.csv", "puir", {"batch_size": 100}),
        ]
        for name, policy, given in cases:
            with pytest.raises(InputError, match=rf"{name}': got -1\.0 at row 700,"):
                evaluate(tmp_path / name, policy, **given)

    def test_a_wrong_answer_of_a_function_is_named_by_its_row_in_the_log(self, frame: pd.DataFrame) -> None:
        frame = frame.assign(reward=frame.reward.where(frame.index >= 10))
        wrong = frame.x[20]

        def labels(contexts: pd.DataFrame) -> np.ndarray[Any, Any]:
            return np.where(contexts.x == wrong, "z", "a")

        def shares(contexts: pd.DataFrame) -> np.ndarray[Any, Any]:
            return np.where((contexts.x == wrong).to_numpy()[:, None], 0.5, [1.0, 0.0, 0.0])

        with pytest.raises(UnknownNameError, match="'z' at row 20, but the log has"):
            evaluate(frame, {"rule": labels})
        with pytest.raises(InputError, match=r"a sum of 1\.5 at row 20,"):
            evaluate(frame, {"rule": shares})

    def test_a_missing_time_is_named_with_its_file_and_row(self, frame: pd.DataFrame, tmp_path: Path) -> None:
        frame = frame.assign(time=1_700_000_000.0 + 60 * np.arange(900))
        frame[:500].to_csv(tmp_path / "a.csv", index=False)
        frame[500:].assign(time=lambda f: f.time.where(f.index != 507)).to_csv(tmp_path / "b.csv", index=False)
        with pytest.raises(InputError, match=r"b\.csv': got nothing at row 7, but every row needs it"):
            evaluate([tmp_path / "a.csv", tmp_path / "b.csv"], {"rule": threshold}, every="day")

    @pytest.mark.parametrize("case", BAD)
    def test_a_bad_log_gets_a_clear_message(self, case: str, frame: pd.DataFrame) -> None:
        change, message = BAD[case]
        with pytest.raises(InputError, match=message):
            evaluate(change(frame), {"rule": threshold})

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"policies": {"t": np.full((900, 3), 0.5)}}, "a sum of 1.5 at row 0"),
            ({"policies": {"t": np.full((900, 2), 0.5)}}, "2 columns, but the actions are"),
            ({"policies": {"t": np.full((5, 3), 1 / 3)}}, "one row for each row of the log"),
            ({"policies": {"t": np.array([["a", "b", "c"]] * 900)}}, "a table has numbers; .* that returns labels"),
            ({"policies": {"t": lambda rows: ["a"]}}, "a rule answers for every row"),
            ({"policies": ["uniform", "uniform"]}, "each has its own name"),
            ({"against": "logged"}, "it is a list of names"),
            ({"against": ["model.spuir"]}, "a baseline is logged, uniform, always:LABEL or always:\\*"),
            ({"policies": {"t": np.full((900, 3), np.nan)}}, "a sum of nan at row 0"),
            ({"policies": {"t": lambda rows: np.full((len(rows), 2), 0.5)}}, "2 columns, but the actions are"),
            ({"level": 1.5}, "level: got 1.5"),
            ({"level": 1.0}, r"level: got 1.0, but it must be a number in \(0, 1\)"),
            ({"group_by": "episode"}, "no column 'episode'.*cut"),
            ({"group_by": "day"}, "rows are grouped by row, unit, episode"),
            ({"group_by": "unit"}, "grouping by unit needs it"),
            ({"estimators": ["dm"], "reward_model": None}, "an evaluation needs at least one"),
        ],
    )
    def test_bad_arguments(self, given: dict[str, Any], message: str, frame: pd.DataFrame) -> None:
        with pytest.raises((InputError, ParameterError), match=message):
            evaluate(frame, **({"policies": {"rule": threshold}, "actions": ACTIONS} | given))

    def test_unknown_names(self, frame: pd.DataFrame) -> None:
        with pytest.raises(UnknownNameError, match=r"always:d: got 'd'"):
            evaluate(frame, "always:d")
        with pytest.raises(UnknownNameError, match="did you mean 'snips'"):
            evaluate(frame, "uniform", estimators=["snip"])
        with pytest.raises(UnknownNameError, match="the intervals are normal"):
            evaluate(frame, "uniform", interval="exact")

    def test_a_model_of_other_columns(self, frame: pd.DataFrame, bandit: spuir.Bandit) -> None:
        with pytest.raises(InputError, match="no column 'y', but model was trained on it"):
            evaluate(frame.drop(columns="y"), {"model": bandit})


class TestTrainingRows:
    """A model is not evaluated on rows that it learned from, unless asked to."""

    POLICY = spuir.make_policy("sbucb", intercept=True, floor=0.05)

    def taught(self, frame: Any, sizes: list[int]) -> spuir.Bandit:
        made, start = spuir.Bandit(self.POLICY, ACTIONS, random_state=0), 0
        for size in sizes:
            rows = frame[start : start + size]
            made.partial_fit(rows[CONTEXT], rows.action, rows.reward)
            start += size
        return made

    def test_the_same_log_is_refused_however_it_is_cut(self, frame: pd.DataFrame) -> None:
        model = self.taught(frame, [450, 450])
        for size in (None, 7):
            with pytest.raises(InputError, match=r"model: got the log that it learned from.*--on-training-rows"):
                evaluate(frame, {"model": model}, batch_size=size)
        found = evaluate(frame, {"model": model}, on_training_rows=True)
        assert "model learned from rows of this log: its value is too high." in found.notices

    @pytest.mark.parametrize("sizes", [[200, 200, 200], [120, 300, 77]])
    def test_some_episodes_are_enough(self, sizes: list[int], frame: pd.DataFrame) -> None:
        with pytest.raises(InputError, match="model: got 3 episodes that it learned from"):
            evaluate(frame, {"model": self.taught(frame, sizes)})

    def test_episodes_of_the_log_are_recognised_wherever_they_are(self, frame: pd.DataFrame) -> None:
        model = self.taught(frame[600:], [100, 100])
        with pytest.raises(InputError, match="2 episodes that it learned from"):
            evaluate(frame.assign(episode=np.arange(900) // 100), {"model": model})

    def test_other_rows_are_fine(self, frame: pd.DataFrame, longer: pd.DataFrame) -> None:
        assert evaluate(longer, {"model": self.taught(frame, [450, 450])}, against=[]).evaluated == ("model",)
        later = evaluate(frame[450:], {"model": self.taught(frame, [450])}, against=[])
        assert not any("learned from" in notice for notice in later.notices)


class TestReport:
    def test_tables(self, report: Any) -> None:
        assert report.table.policy.tolist()[:4] == ["model", "rule", "logged", "uniform"]
        assert set(report.estimates.estimator) == {name for name in FAMILY if name != "balanced-ips"}
        assert len(report.differences) == 2 * 6
        assert list(report.support.policy) == [*report.table.policy[:2], *report.table.policy[3:]]

    def test_values_and_verdicts(self, report: Any, longer: pd.DataFrame) -> None:
        logged = report.value_of("logged")
        assert logged.value == pytest.approx(longer.reward.mean())
        assert report.is_better("rule", "always:c")
        assert report.candidates == 2 + 2 + 3
        winner = report.winner
        own = report.value_of(winner.policy)
        assert winner.value == own.value == max(one.value for one in report.values if one.estimator == "dr")
        assert winner.low < own.low < own.high < winner.high
        with pytest.raises(UnknownNameError, match="did you mean 'logged'"):
            report.is_better("rule", "loged")

    def test_sentences(self, report: Any) -> None:
        said = repr(report)
        assert "rule earns 0.3" in said and "than today's decisions" in said
        assert "always choosing 'c'" not in said  # only the best single action is worth a sentence
        assert "Best of all: " in said and "corrected for 7 candidates" in said

    def test_page_and_figure(self, report: Any, tmp_path: Path) -> None:
        report.to_html(tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert page.count("data:image/svg+xml;base64,") == 5
        assert "http" not in page.replace("http://www.w3.org", "")
        for part in (*report.sentences, "always:c", "not distinguishable", "switch-dr"):
            assert part.replace("'", "&#39;") in page
        report.plot(tmp_path / "values")
        assert (tmp_path / "values.png").stat().st_size > 5000

    def test_names_are_escaped(self, frame: pd.DataFrame, tmp_path: Path) -> None:
        evaluate(frame, {"<script>": threshold}, against=["logged"]).to_html(tmp_path / "report.html")
        assert "<script>" not in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_data_are_json(self, report: Any) -> None:
        import json

        data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert data["support"]["rule"]["verdict"] == "good"
        assert data["winner"]["policy"] == report.winner.policy


@pytest.mark.parametrize("kind", INTERVALS)
def test_rewards_too_rare_to_be_seen_are_allowed_for(kind: str) -> None:
    """100 rows of b without a reward: a share up to 1 − 0.025^(1/100), nearly log(40)/100, is in the exact interval."""
    actions = np.repeat(["a", "b"], [400, 100])
    log = pd.DataFrame({"action": actions, "reward": 0.0, "propensity": np.repeat([0.8, 0.2], [400, 100])})
    log.loc[:19, "reward"] = 1.0
    found = evaluate(log, {"b": "always:b"}, against=["always:a"], reward_model=None, interval=kind)
    value = found.value_of("b")
    assert value.value == 0
    assert (value.low, value.high) == (0, pytest.approx(np.log(40) / 100))
    assert found.differences_found[0].high >= np.log(40) / 100 - 0.05  # around a difference of −0.05


def test_intervals_of_rare_rewards_cover() -> None:
    """About one reward per log: 95 % nominal; fewer than 85 of 100 would be chance with probability 1e-4."""
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        second = rng.random(300) < 0.3
        log = pd.DataFrame({"action": np.where(second, "b", "a"), "propensity": np.where(second, 0.3, 0.7)})
        log["reward"] = (rng.random(300) < 0.012).astype(float)
        found = evaluate(log, {"b": "always:b"}, against=[], reward_model=None, estimators=["snips"])
        covered += found.table.low[0] <= 0.012 <= found.table.high[0]
    assert covered >= 85


def test_many_actions_are_ranked_and_all_are_candidates() -> None:
    rng = np.random.default_rng(5)
    actions = rng.integers(40, size=4000)
    log = {"action": actions, "reward": actions / 40 + rng.random(4000), "propensity": np.full(4000, 1 / 40)}
    found = evaluate(log, reward_model=None)
    fixed = [name for name in found.baselines if name.startswith("always:")]
    assert len(fixed) == 10 and set(fixed) > {f"always:{at}" for at in range(34, 40)}
    assert found.candidates == 42


def test_soft_policies_have_known_values() -> None:
    """The truth lies within four standard errors, which chance misses with p < 1e-4 for all of it."""
    world = World()
    log, contexts = world.draw(4000, np.random.default_rng(8))
    found = evaluate(log, {"soft": soft(contexts), "rule": threshold}, actions=ACTIONS)
    means = world.means(contexts)
    truth = {
        "soft": (soft(contexts) * means).sum(axis=1).mean(),
        "rule": np.where(contexts[:, 0] > 0, means[:, 1], means[:, 0]).mean(),
    }
    for one in found.values:
        if one.policy in truth:
            assert abs((one.value or 0) - truth[one.policy]) < 4 * (one.standard_error or 0), one


class TestSentences:
    def test_what_cannot_be_told_apart_is_named_once(self, longer: pd.DataFrame) -> None:
        found = evaluate(longer[:1500], {"a": "always:a", "half": lambda rows: np.where(rows.y > 0, "a", "b")})
        pairs = {one.against: one.verdict for one in found.differences_found if one.policy == "half"}
        assert list(pairs.values()).count("not distinguishable") > 1
        sentence = next(one for one in found.sentences if one.startswith("half earns"))
        assert sentence.count("not distinguishable from") == 1
        assert " or " in sentence

    def test_unknown_names_are_told_once(self, report: Any) -> None:
        with pytest.raises(UnknownNameError) as refused:
            report.is_better("model", "nobody")
        assert str(refused.value).count("always:a") == 1
        with pytest.raises(UnknownNameError, match="no action of the log has that label; the actions are a, b, c"):
            evaluate(World().draw(300, np.random.default_rng(0))[0], {"x": "always:zzz"})

    def test_propensities_that_are_too_small_are_one_reason(self, longer: pd.DataFrame) -> None:
        found = evaluate(longer.assign(propensity=longer.propensity / 2), {"even": "uniform"}, against=[])
        reasons = found.supports["even"].reasons
        assert [("propensities" in reason) for reason in reasons].count(True) == 1
        assert "verdicts need a wider interval" in found.sentences[0]

    def test_the_figure_of_weights_ends_with_the_largest(self, report: Any) -> None:
        from spuir.evaluation.evaluation_page import weights_figure

        figure = weights_figure(report)
        assert figure is not None
        (axes,) = figure.axes
        used = max(int(np.flatnonzero(report.supports[name].histogram).max()) for name in report.evaluated)
        assert len(axes.get_xticklabels()) == used + 1 < 11
        assert axes.get_yscale() == "log"

    def test_the_best_is_chosen_among_those_with_good_support(self, frame: pd.DataFrame) -> None:
        found = evaluate(frame[:600], {"rule": threshold}, against=["logged"])
        assert found.supports["rule"].verdict == "weak" and found.winner is not None
        assert found.winner.policy == "logged"
        assert found.sentences[-1].startswith("Best of those with good support: logged with")

    @pytest.mark.parametrize("given", [3, None, {"a": 0.5}])
    def test_what_is_no_policy_is_refused(self, given: Any, frame: pd.DataFrame) -> None:
        with pytest.raises(ParameterError, match="a policy is a bandit, a saved model, a name, a function"):
            evaluate(frame, given)


def test_other_intervals_follow_from_the_same_report(longer: pd.DataFrame) -> None:
    policies = {"rule": threshold, "gone": lambda rows: ["d"] * len(rows)}
    how: dict[str, Any] = {"actions": [*ACTIONS, "d"], "against": ["logged"], "seed": 4}
    first = evaluate(longer, policies, **how)
    for kind in INTERVALS:
        again = evaluate(longer, policies, interval=kind, level=0.9, **how)
        one, pair = again.value_of("rule", "snips"), again.differences_found[1]
        assert first.interval_of("rule", estimator="snips", kind=kind, level=0.9) == (one.low, one.high)
        assert (pair.policy, pair.against) == ("rule", "logged")
        assert first.interval_of("rule", "logged", kind=kind, level=0.9) == (pair.low, pair.high)
    assert first.interval_of("gone", kind="normal") is None
