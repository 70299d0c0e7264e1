"""BanditDB: Parquet exports there and back, and its write-ahead log joined by interaction."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spuir.errors import InputError
from spuir.logs import open_log, write_log
from spuir.logs.formats.base import Faults

COLUMNS = {
    "interaction_id": ["i1", "i2"],
    "arm_id": ["x", "ü"],
    "reward": [0.5, 1.0],
    "predicted_at": [1_700_000_000, 1_700_000_010],
    "rewarded_at": [1_700_000_100, 1_700_000_200],
    "propensity": [0.25, None],
    "feature_0": [1.0, 2.0],
    "feature_1": [3.0, 4.0],
}


class TestParquet:
    def test_an_export_is_a_log(self, tmp_path: Path) -> None:
        pq.write_table(pa.table(COLUMNS), tmp_path / "log.parquet", row_group_size=1)
        log = open_log(tmp_path / "log.parquet")
        assert (log.format, log.context, len(log.parts)) == ("banditdb", ("feature_0", "feature_1"), 2)
        first, second = log.table().to_pylist()
        assert (first["decision_id"], first["action"], first["reward"], first["propensity"]) == ("i1", "x", 0.5, 0.25)
        assert first["time"].isoformat() == "2023-11-14T22:13:20+00:00"
        assert first["reward_time"].isoformat() == "2023-11-14T22:15:00+00:00"
        assert (second["action"], second["propensity"]) == ("ü", None)

    def test_there_and_back(self, tmp_path: Path) -> None:
        pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
        write_log(open_log(tmp_path / "a.parquet"), tmp_path / "b.parquet", format="banditdb")
        assert pq.read_table(tmp_path / "b.parquet").select(list(COLUMNS)).to_pydict() == COLUMNS

    def test_other_logs_get_its_columns(self, tmp_path: Path) -> None:
        log = open_log({"action": [1, 2], "reward": [1, 0], "age": [3, 4], "paid": [True, False]})
        write_log(log, tmp_path / "log.parquet", format="banditdb")
        back = open_log(tmp_path / "log.parquet")
        assert (back.format, back.context) == ("banditdb", ("feature_0", "feature_1"))
        assert back.table(["action", "feature_1"]).to_pylist() == [
            {"action": "1", "feature_1": 1.0},
            {"action": "2", "feature_1": 0.0},
        ]

    def test_texts_are_no_features(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"column 'city'.*contexts are numbers there"):
            write_log(open_log({"action": [1], "reward": [1], "city": ["x"]}), tmp_path / "x.parquet", "banditdb")

    def test_another_parquet_file_is_not_its(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"action": [1], "reward": [1.0]}), tmp_path / "log.parquet")
        assert open_log(tmp_path / "log.parquet").format == "parquet"


def predicted(name: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"interaction_id": name, "campaign_id": "c", "arm_id": "x", "context": [1.0, 2.0]}
    found |= {"timestamp_secs": 1_700_000_000, "arm_propensities": {"x": 0.75, "y": 0.25}, "is_reemit": False}
    return {"Predicted": found | changes}


def rewarded(name: str, reward: Any = 1.0) -> dict[str, Any]:
    return {"Rewarded": {"interaction_id": name, "reward": reward, "timestamp_secs": 1_700_000_060}}


def save(path: Path, *events: Any) -> Path:
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in events))
    return path


class TestWriteAheadLog:
    def read(self, path: Path, **options: Any) -> tuple[list[dict[str, Any]], Faults]:
        log, faults = open_log(path, **options), Faults()
        assert log.format == "banditdb"
        return [row for part in log.parts for batch in part.read(faults=faults) for row in batch.to_pylist()], faults

    def test_predictions_and_rewards_are_joined(self, tmp_path: Path) -> None:
        created = {"CampaignCreated": {"campaign_id": "c", "arms": ["x", "y"], "feature_dim": 2}}
        events = [
            created,
            predicted("1"),
            predicted("2", arm_id="y", arm_propensities=None, timestamp_secs=0),
            rewarded("2", 0.5),
            predicted("1", is_reemit=True),
            predicted("1"),
            rewarded("1"),
            rewarded("1"),
            rewarded("0"),
            predicted("3"),
        ]
        rows, faults = self.read(save(tmp_path / "wal.jsonl", *events))
        assert faults.count == 0
        assert faults.skipped == {
            "no interaction": 1,
            "re-emitted": 2,
            "rewarded again": 1,
            "a reward without its decision": 1,
            "never rewarded": 1,
        }
        second, first = rows
        assert (second["decision_id"], second["action"], second["reward"], second["propensity"]) == (
            "2",
            "y",
            0.5,
            None,
        )
        assert second["time"] is None
        assert first["time"].isoformat() == "2023-11-14T22:13:20+00:00"
        assert first["reward_time"].isoformat() == "2023-11-14T22:14:20+00:00"
        assert (first["propensity"], first["eligible"], first["probabilities"]) == (0.75, ["x", "y"], [0.75, 0.25])
        assert (first["feature_0"], first["feature_1"]) == (1.0, 2.0)

    def test_campaigns_are_not_mixed(self, tmp_path: Path) -> None:
        path = save(
            tmp_path / "wal.jsonl", predicted("1"), predicted("2", campaign_id="d"), rewarded("1"), rewarded("2")
        )
        with pytest.raises(InputError, match=r"line 2.*campaign 'd'.*begins with 'c'.*campaign="):
            self.read(path)
        rows, _ = self.read(path, campaign="d")
        assert [row["decision_id"] for row in rows] == ["2"]

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("{", "no valid JSON"),
            ("[1]", "is not a JSON object"),
            (json.dumps(rewarded("1", "x")), "reward is 'x'"),
            (json.dumps(predicted("z", context="x")), "context is 'x'"),
            (json.dumps(predicted("z", context=[None])), "context[0] is 'None'"),
            (json.dumps({"Rewarded": {"reward": 1}}), "interaction_id is 'None'"),
        ],
    )
    def test_broken_lines_are_counted(self, tmp_path: Path, line: str, why: str) -> None:
        pairs = [one for at in range(120) for one in (predicted(str(at)), rewarded(str(at)))]
        rows, faults = self.read(save(tmp_path / "wal.jsonl", *pairs, line))
        assert (len(rows), faults.count, faults.first[0].line) == (120, 1, 241)
        assert why in faults.first[0].why
