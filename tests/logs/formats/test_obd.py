"""The Open Bandit Dataset: its names, its index column, its table of items, and the real files where they are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spuir.errors import InputError
from spuir.logs import open_log
from tests.environments.files import find

LOG = """,timestamp,item_id,position,click,{},user_feature_0,user-item_affinity_0
0,2019-11-24 00:00:34.762830+00:00,14,3,0,0.0125,81ce123c,0.0
1,2019-11-24 00:00:53.965051+00:00,2,1,1,0.5,03a5648a,1.5
"""
ITEMS = ",item_id,item_feature_0,item_feature_1\n0,2,-0.5,aed\n1,14,0.25,31a\n"


def save(folder: Path, probability: str = "propensity_score") -> Path:
    (folder / "all.csv").write_text(LOG.format(probability))
    (folder / "item_context.csv").write_text(ITEMS)
    return folder / "all.csv"


class TestNames:
    @pytest.mark.parametrize("probability", ["propensity_score", "action_prob"])
    def test_both_names_of_the_propensity(self, tmp_path: Path, probability: str) -> None:
        log = open_log(save(tmp_path, probability))
        assert (log.format, log.context) == ("obd", ("user_feature_0", "user-item_affinity_0"))
        first, second = log.table().to_pylist()
        assert first.pop("time").isoformat() == "2019-11-24T00:00:34.762830+00:00"
        assert first == {
            "action": 14,
            "reward": 0.0,
            "propensity": 0.0125,
            "position": 3,
            "user_feature_0": "81ce123c",
            "user-item_affinity_0": 0.0,
        }
        assert (second["action"], second["reward"], second["user-item_affinity_0"]) == (2, 1.0, 1.5)

    def test_some_columns_alone(self, tmp_path: Path) -> None:
        assert open_log(save(tmp_path)).table(["reward"]).to_pydict() == {"reward": [0.0, 1.0]}

    def test_a_broken_cell_names_its_line(self, tmp_path: Path) -> None:
        path = save(tmp_path)
        path.write_text(path.read_text().replace("1.5", "1.5,7"))
        with pytest.raises(InputError, match="line 3"):
            open_log(path).table()


class TestItems:
    def test_features_of_the_chosen_item_join_on_request(self, tmp_path: Path) -> None:
        for items in (True, str(save(tmp_path).with_name("item_context.csv"))):
            log = open_log(save(tmp_path), item_context=items)
            assert log.context[-2:] == ("item_feature_0", "item_feature_1")
            assert log.table(["item_feature_1"])["item_feature_1"].to_pylist() == ["31a", "aed"]
            assert log.table()["item_feature_0"].to_pylist() == [0.25, -0.5]

    def test_a_table_without_items_is_refused(self, tmp_path: Path) -> None:
        path = save(tmp_path)
        path.with_name("item_context.csv").write_text("a,b\n1,2\n")
        with pytest.raises(InputError, match="a table of items has a column 'item_id'"):
            open_log(path, item_context=True)

    def test_a_missing_table_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"nowhere\.csv"):
            open_log(save(tmp_path), item_context=str(tmp_path / "nowhere.csv"))

    @pytest.mark.parametrize("format", [None, "obd"])
    def test_a_folder_with_the_table_opens(self, tmp_path: Path, format: str | None) -> None:
        save(tmp_path)
        log = open_log(tmp_path, format)
        assert (log.format, log.table().num_rows) == ("obd", 2)
        assert "item_context.csv' is left out: it describes the items" in log.notices[0]
        assert open_log(tmp_path, item_context=True).context[-1] == "item_feature_1"


class TestRealFiles:
    # Rows, clicks and propensities as the description of the data set has them.
    @pytest.mark.parametrize(
        ("policy", "clicks", "low", "high"), [("random", 38, 1 / 80, 1 / 80), ("bts", 42, 4.5e-5, 0.954)]
    )
    def test_the_logs_of_both_policies(self, policy: str, clicks: int, low: float, high: float) -> None:
        log = open_log(find(f"obd_small/{policy}/all/all.csv"), item_context=True)
        assert log.format == "obd"
        table = log.table()
        assert table.num_rows == 10_000
        assert pc.call_function("sum", [table["reward"]]).as_py() == clicks
        found = table["propensity"].to_numpy()
        assert found.min() == pytest.approx(low, rel=0.01)
        assert found.max() == pytest.approx(high, rel=0.01)
        assert set(table["position"].to_pylist()) == {1, 2, 3}
        assert sorted(set(table["action"].to_pylist())) == list(range(80)) or policy == "bts"
        assert len(log.context) == 4 + 80 + 4
        assert table["time"].type == pa.timestamp("us", "UTC")
        assert not table["item_feature_3"].null_count
