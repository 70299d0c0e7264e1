"""Labelled tables as bandits: digits, files, and files that are broken."""

import gzip
import pickle
import sys

import numpy as np
import pytest

import spuir
from spuir.base.streams import generator
from spuir.environments import classification
from spuir.environments.classification import Classification
from spuir.errors import InputError, MissingExtraError, ParameterError
from tests.environments.files import COVERTYPE, find

TABLE = "a,b,kind\n1,5,x\n2,5,y\n3,5,x\n4,5,y\n"


def write(folder, text, name="table.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def draw(world, n=500):
    return world.draw(n, generator(1, "contexts"))


def test_digits_are_built_in():
    world = Classification()
    assert (world.n_actions, world.dim) == (10, 64)
    assert world.labels == tuple("0123456789")
    assert len(world.table.codes) == 1797
    columns = world.table.columns
    np.testing.assert_allclose(columns.mean(axis=0), 0, atol=1e-12)
    # Three of the 64 pixels are never inked.
    assert sorted(set(columns.std(axis=0).round(12))) == [0.0, 1.0]
    assert np.sum(columns.std(axis=0) < 0.5) == 3


def test_the_right_label_earns_one_and_noise_flips():
    world = Classification()
    rounds = draw(world)
    outcome = world.feedback(rounds, rounds.payload, generator(2, "noise"))
    assert outcome.rewards.all() and outcome.all_rewards is not None
    np.testing.assert_array_equal(outcome.all_rewards, np.eye(10)[rounds.payload])
    np.testing.assert_array_equal(world.expected_rewards(rounds), outcome.all_rewards)
    noisy = Classification(noise=0.3)
    rewards = noisy.feedback(rounds, rounds.payload, generator(2, "noise")).all_rewards
    assert rewards is not None
    flipped = rewards != outcome.all_rewards
    # 5,000 flips: five standard errors of their share, a false alarm in 1e-6 of cases.
    assert abs(flipped.mean() - 0.3) < 5 * np.sqrt(0.21 / 5000)
    np.testing.assert_allclose(noisy.expected_rewards(rounds), 0.3 + 0.4 * outcome.all_rewards)


def test_rows_are_drawn_with_replacement_and_alike():
    world = Classification()
    rounds = draw(world, 4000)
    assert len(rounds) == 4000 and len(np.unique(rounds.contexts, axis=0)) < 1797
    np.testing.assert_array_equal(draw(Classification(), 4000).contexts, rounds.contexts)
    assert len(draw(world, 0)) == 0


def test_intercept_is_one_more_column():
    plain, world = Classification(), Classification(intercept=True)
    assert world.dim == plain.dim + 1
    np.testing.assert_array_equal(world.table.columns[:, :-1], plain.table.columns)
    assert (world.table.columns[:, -1] == 1).all()


def test_max_rows_are_chosen_by_the_seed_and_keep_all_labels():
    few, again, other = (Classification(max_rows=12, seed=seed) for seed in (1, 1, 2))
    assert len(few.table.codes) == 12 and few.n_actions == 10
    np.testing.assert_array_equal(few.table.columns, again.table.columns)
    assert not np.array_equal(few.table.codes, other.table.codes)
    assert len(Classification(max_rows=5000).table.codes) == 1797


def test_worlds_share_a_table_and_travel_without_it():
    world = Classification(noise=0.1, seed=4)
    assert Classification(seed=9).table is world.table
    packed = pickle.dumps(world)
    assert len(packed) < 1000
    assert pickle.loads(packed) == world


def test_a_policy_learns_digits():
    history = spuir.run("sbucb", "classification", episodes=10, batch_size=200, seed=1)
    # 2,000 decisions: uniform earns 0.10, and a linear rule fitted on as many labels about 0.9.
    assert history.rewards[-3:].mean() > 0.8


def test_without_scikit_learn_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    classification.prepared.cache_clear()
    with pytest.raises(MissingExtraError, match=r"scikit-learn.*spuir\[data\]"):
        Classification()


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_all_systems_read_alike(tmp_path, ends, mark, packed):
    data = (mark + TABLE.replace("\n", ends)).encode()
    world = Classification(path=write(tmp_path, gzip.compress(data) if packed else data))
    assert (world.n_actions, world.dim, world.labels) == (2, 2, ("x", "y"))
    np.testing.assert_array_equal(world.table.codes, [0, 1, 0, 1])
    np.testing.assert_allclose(world.table.columns, np.array([[-3, 0], [-1, 0], [1, 0], [3, 0]]) / np.sqrt(5))


def test_labels_by_name_by_place_and_by_value(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('kind,"a, b"\n10,0.5\n\n9,1e3\n10, 2\n9,3\n')
    named = spuir.make_environment("classification", path=path, label="kind")
    assert isinstance(named, Classification) and named.path == str(path)
    assert named.labels == ("9", "10") and named.dim == 1
    path.write_text("0.5,10\n1e3,9\n2,10\n3,9\n")
    bare = Classification(path=str(path), header=False)
    np.testing.assert_array_equal(bare.table.columns, named.table.columns)
    np.testing.assert_array_equal(bare.table.codes, [1, 0, 1, 0])


BROKEN = {
    "letters in a number": (TABLE.replace("3,5", "3,five"), {}, "row 4.*'five'.*finite number.*encode"),
    "a gap": (TABLE.replace("3,5", "3,"), {}, "row 4.*''.*finite number.*fill"),
    "not finite": (TABLE.replace("3,5", "3,inf"), {}, "row 4.*'inf'.*finite number"),
    "too short": (TABLE.replace("3,5,x", "3,x"), {}, "row 4.*2 cells.*3 cells.*drop that row"),
    "too long": (TABLE.replace("3,5,x", "3,5,x,"), {}, "row 4.*4 cells.*3 cells.*drop that row"),
    "ragged with Windows line ends": (TABLE.replace("3,5,x", "3").replace("\n", "\r\n"), {}, "row 4.*1 cells"),
    "no label": (TABLE.replace("3,5,x", "3,5,"), {}, "row 4.*empty label.*drop that row"),
    "label alone": ("kind\nx\ny\nx\ny\n", {}, "row 2.*no numbers"),
    "open quote": (TABLE.replace("3,5,x", '3,5,"x'), {}, "row.*close the quotes"),
    "empty": ("", {}, "no rows.*saved completely"),
    "blank": ("\n\n", {}, "no rows.*saved completely"),
    "names alone": ("a,b,kind\n", {}, "no rows below the names"),
    "no such column": (TABLE, {"label": "sort"}, "row 1.*no column 'sort'.*a, b, kind"),
    "not separated by commas": (TABLE.replace(",", ";"), {"label": "kind"}, "row 1.*separate the cells by commas"),
    "no names": ("1,2,0\n2,3,1\n3,4,0\n4,5,1\n", {}, "row 1.*numbers only.*header=False"),
    "a name without names": ("1,2,0\n2,3,1\n", {"header": False, "label": "kind"}, "label.*'kind'.*no names"),
    "one label": (TABLE.replace("y", "x"), {}, "1 labels in 4 rows.*name the label column"),
    "a label a row": ("a,b\n1,1\n2,2\n3,3\n4,4\n", {}, "4 labels in 4 rows.*name the label column"),
    "not text": (TABLE.encode() + b"\xff\xfe", {}, "byte 0xff.*UTF-8"),
    "half a gzip": (gzip.compress((TABLE + "7,8,x\n" * 99).encode())[:-12], {}, "gzip file must be complete.*again"),
    "gzip of noise": (b"\x1f\x8bnoise and more noise", {}, "gzip file must be complete.*again"),
}


@pytest.mark.parametrize(("text", "parameters", "message"), BROKEN.values(), ids=list(BROKEN))
def test_broken_files_are_refused_with_file_row_and_remedy(tmp_path, text, parameters, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        Classification(path=path, **parameters)
    assert path in str(caught.value) or "label" in caught.value.subject


def test_missing_files_and_folders_are_refused(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="readable; check the path"):
            Classification(path=str(path))


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path, TABLE)
    assert Classification(path=path).dim == 2
    write(tmp_path, TABLE.replace("5", "5,7").replace("b,", "b,c,"))
    assert Classification(path=path).dim == 3


@pytest.mark.parametrize(("name", "value"), [("noise", 0.6), ("max_rows", 0), ("path", 3), ("label", 1), ("header", 1)])
def test_wrong_parameters(name, value):
    with pytest.raises(ParameterError, match=name):
        spuir.make_environment("classification", **{name: value})


def test_covertype_is_what_its_description_says():
    world = Classification(path=str(find(COVERTYPE)))
    assert (world.n_actions, world.dim) == (7, 54)
    counts = np.bincount(world.table.codes)
    np.testing.assert_array_equal(counts, [36307, 49000, 6133, 481, 1663, 2990, 3426])
    np.testing.assert_allclose(world.table.columns.std(axis=0), 1)
