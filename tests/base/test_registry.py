import collections
import sys

import pytest

from spuir.base.registry import Registry
from spuir.errors import ParameterError, UnknownNameError


@pytest.fixture
def registry() -> Registry:
    table = {"counter": "collections:Counter", "ordered": "collections:OrderedDict", "broken": "collections:Nothing"}
    return Registry("container", table)


def test_names_keep_their_order(registry: Registry) -> None:
    assert registry.names() == ["counter", "ordered", "broken"]
    registry.names().clear()
    assert len(registry.names()) == 3


def test_a_member_is_imported_when_it_is_asked_for(tmp_path, monkeypatch) -> None:
    (tmp_path / "late_member.py").write_text("TARGET = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry("thing", {"late": "late_member:TARGET"})
    assert "late" in registry
    assert "late_member" not in sys.modules
    assert registry.get("late") == 42
    monkeypatch.delitem(sys.modules, "late_member")


def test_get_returns_the_target(registry: Registry) -> None:
    assert registry.get("counter") is collections.Counter
    with pytest.raises(AttributeError):
        registry.get("broken")


@pytest.mark.parametrize(("typo", "near"), [("countr", "counter"), ("Ordered", "ordered"), ("orderd ", "ordered")])
def test_a_typo_is_answered_with_the_nearest_name(registry: Registry, typo: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        registry.get(typo)
    assert str(caught.value) == f"container: got {typo!r}, but no container has that name; did you mean {near!r}?"
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize("name", ["zzzzzz", "", 3, None, ["counter"]])
def test_a_name_near_nothing_is_answered_with_all(registry: Registry, name) -> None:
    with pytest.raises(
        UnknownNameError, match=r"the names are counter, ordered, broken|did you mean 'counter'"
    ) as caught:
        registry.get(name)
    assert caught.value.got == repr(name)


def test_members_join_from_outside_and_names_are_never_reused(registry: Registry) -> None:
    registry.register("deque", "collections:deque")
    registry.register("deque", "collections:deque")
    assert registry.get("deque") is collections.deque
    assert registry.names()[-1] == "deque"
    with pytest.raises(ParameterError, match="never reused"):
        registry.register("deque", "collections:Counter")
    with pytest.raises(ParameterError, match="module:Target"):
        registry.register("chain", "collections.ChainMap")
    assert "chain" not in registry


def test_a_registry_does_not_share_the_table_that_it_was_given() -> None:
    table = {"counter": "collections:Counter"}
    registry = Registry("container", table)
    registry.register("deque", "collections:deque")
    assert list(table) == ["counter"]


def test_installed_packages_add_members_by_entry_points(tmp_path, monkeypatch) -> None:
    (tmp_path / "plugin_member.py").write_text("TARGET = 42\n")
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[test.things]\nextra = plugin_member:TARGET\nown = plugin_member:NOTHING\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry("thing", {"own": "collections:Counter"}, group="test.things")
    assert registry.names() == ["own", "extra"]
    assert "extra" in registry
    assert registry.get("extra") == 42
    assert registry.get("own") is collections.Counter, "a package cannot replace a member of ours"
    with pytest.raises(UnknownNameError, match="did you mean 'extra'"):
        registry.get("extr")
    assert "extra" not in Registry("thing", {})
    monkeypatch.delitem(sys.modules, "plugin_member")
