"""What workers on other machines must see is checked before the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spuir.errors import InputError
from spuir.logs import join_logs
from spuir.training import job, train
from spuir.training.engines.local import Local
from spuir.training.sharing import check_scratch
from tests.training.logs import make_table, write_files


class OtherMachine(Local):
    """Workers of a machine that sees some folders of this one, under the same path, and nothing else."""

    name = "other"

    def __init__(self, *shared: Path) -> None:
        super().__init__(2)
        self.shared = shared

    def on_every_worker(self, work: Callable[[Any], Any], item: Any) -> list[Any]:
        """Return what a worker there sees, and what one here does."""
        seen = [path if any(Path(path).is_relative_to(one) for one in self.shared) else f"{path}/." for path in item]
        return [work(item), work([path.replace("/.", "/nothing") for path in seen])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of scattered episodes."""
    return write_files(tmp_path / "log", make_table(300, episode=[row % 9 for row in range(300)]), [100, 200], group=60)


def test_a_log_that_a_worker_does_not_see(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"worker on .*: got no '.*part-00.*', but workers read the log themselves"):
        train(str(folder), "puir", engine=OtherMachine(tmp_path / "models"))
    assert train(str(folder), "puir", engine=OtherMachine(folder)).rows == 300


def test_grouping_needs_a_shared_folder_only_where_rows_are_grouped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    engine = OtherMachine(folder, tmp_path / "shared")
    assert train(str(folder), "puir", engine=engine, out=tmp_path / "m" / "model").rows == 300
    monkeypatch.setattr(job, "OPEN_BYTES", 1)
    with pytest.raises(InputError, match=r"worker on .*workers read temporary files there; name a folder .*--scratch"):
        train(str(folder), "puir", engine=engine, out=tmp_path / "m" / "model2")
    assert not list((tmp_path / "m").glob("*scratch*"))
    assert train(str(folder), "puir", engine=engine, scratch=tmp_path / "shared").rows == 300


def test_without_a_shared_folder_rows_that_fit_are_not_grouped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spuir.training.group.MIN_FRAGMENTS", 10)
    trained = train(str(folder), "puir", engine=OtherMachine(folder), out=tmp_path / "model")
    assert any("not grouped by episode first" in notice and "--scratch" in notice for notice in trained.notices)


def test_joined_rewards_need_a_shared_folder(tmp_path: Path) -> None:
    table = make_table(100, decision_id=range(100))
    decisions = write_files(tmp_path / "log", table.drop_columns(["reward"]), [100], group=50)
    engine = OtherMachine(tmp_path)
    with pytest.raises(InputError, match="--scratch"):
        check_scratch(OtherMachine(tmp_path / "log"), tmp_path)
    check_scratch(engine, tmp_path)
    check_scratch(Local(1), None)
    log = join_logs(str(decisions), table.select(["decision_id", "reward"])).log
    with pytest.raises(InputError, match=r"outcomes.*', but workers read the joined rewards there; .*--scratch"):
        train(log, "puir", batch_size=50, engine=OtherMachine(tmp_path / "log"))
