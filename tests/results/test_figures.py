"""Figures: one style, one colour per policy, labels that do not overlap."""

import sys
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spuir.errors import MissingExtraError, ParameterError
from spuir.policies import list_policies
from spuir.results import figures

pytest.importorskip("matplotlib")


@dataclass
class Run:
    policy: str
    average_reward: np.ndarray


def runs(ends, seeds=3, length=12):
    rng = np.random.default_rng(0)
    return [Run(name, end + 0.01 * rng.standard_normal(length)) for name, end in ends.items() for _ in range(seeds)]


def luminance(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_every_registered_policy_has_a_style_of_its_own():
    styles = [str(figures.style_of(name)) for name in list_policies()]
    assert set(list_policies()) <= set(figures.STYLES)
    assert len(set(styles)) == len(styles)


def test_lines_stand_out_from_white_paper():
    for colour, _ in figures.STYLES.values():
        assert 1.05 / (luminance(colour) + 0.05) > 2


def test_unknown_policies_have_a_stable_style():
    assert figures.style_of("mine") == figures.style_of("mine")
    assert len({str(figures.style_of(f"mine-{i}")) for i in range(30)}) > 10


def test_a_label_that_begins_with_a_policy_has_its_colour():
    colour, dashes = figures.style_of("puir")
    assert figures.style_of("puir (tuned)") == (colour, dashes)
    assert figures.style_of("puir (c = 50)")[0] == colour
    assert figures.style_of("puir (c = 50)")[1] != dashes


def test_a_ramp_goes_from_light_to_black():
    shades = [luminance(colour) for colour, _ in figures.ramp(6)]
    assert shades == sorted(shades, reverse=True)
    assert len(set(shades)) == 6
    assert shades[-1] == 0
    assert 1.05 / (shades[0] + 0.05) > 2, "the lightest still stands out from white paper"


@pytest.mark.parametrize("logarithmic", [False, True])
def test_an_axis_holds_all_values_that_it_can(logarithmic):
    low, high = figures.framed(np.array([-1.0, 0.0, 0.01, 10.0, np.inf, np.nan]), logarithmic, 0.05)
    assert low == pytest.approx(0.01 / 1000**0.05 if logarithmic else -1.55)
    assert high == pytest.approx(10 * 1000**0.05 if logarithmic else 10.55)
    for values in (np.array([]), np.array([np.nan]), np.array([2.0, 2.0]), np.zeros(1)):
        low, high = figures.framed(values, logarithmic, 0.05)
        assert low < high


def test_curves_end_where_their_labels_begin():
    figure = figures.average_reward([Run("puir", np.array(line)) for line in ([0.1, 0.2, 0.3], [0.3, 0.4, 0.5])])
    (ax,) = figure.axes
    assert ax.get_xlim() == (1, 3)
    assert ax.get_title(loc="left") == "mean of 2 seeds ± standard error"
    leaders = [line for line in ax.lines if line.get_transform() != ax.transData]
    seen = ax.transAxes.inverted().transform(ax.transData.transform((3, 0.4)))
    np.testing.assert_allclose(np.asarray(leaders[0].get_xydata())[0], seen, atol=0.01)


def test_curves_are_means_with_standard_errors():
    lines = [np.array([1.0, 2.0]), np.array([3.0, 2.0]), np.array([5.0, 2.0])]
    (curve,) = figures.curves_of(Run("puir", line) for line in lines)
    np.testing.assert_allclose(curve.mean, [3, 2])
    np.testing.assert_allclose(curve.error, [2 / np.sqrt(3), 0])
    (single,) = figures.curves_of([Run("puir", lines[0])])
    assert not single.error.any()


def test_refusals():
    with pytest.raises(ParameterError, match="at least one run"):
        figures.average_reward([])
    with pytest.raises(ParameterError, match="lengths"):
        figures.average_reward([Run("puir", np.zeros(3)), Run("puir", np.zeros(4))])


def test_a_second_panel_shows_the_best_alone():
    near = {"puir": 1.0, "spuir": 0.99}
    assert len(figures.average_reward(runs(near)).axes) == 1
    figure = figures.average_reward(runs(near | {"bexp3": 0.4}))
    left, right = figure.axes
    assert {text.get_text() for text in left.texts} == {"puir", "spuir", "bexp3"}
    assert {text.get_text() for text in right.texts} == {"puir", "spuir"}
    assert len(figures.average_reward(runs({"puir": 1.0, "bexp3": 0.4})).axes) == 1


def test_a_second_panel_enlarges_lines_that_all_end_close_together():
    slow = [Run("bexp3", 1.0 - np.exp(-np.arange(12.0))), Run("puir", np.full(12, 0.99))]
    left, right = figures.average_reward(slow).axes
    assert {text.get_text() for text in right.texts} == {"bexp3", "puir"}
    assert np.ptp(right.get_ylim()) < 0.25 * np.ptp(left.get_ylim())


def test_labels_have_the_line_colour_leaders_are_thin_and_grey_and_nothing_overlaps():
    figure = figures.average_reward(runs(dict.fromkeys(list_policies()[:9], 0.25), seeds=1), zoom=1)
    (ax,) = figure.axes
    figure.draw_without_rendering()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert len(boxes) == 9
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes))
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)
    lines, leaders = ax.lines[:9], ax.lines[9:]
    assert [text.get_color() for text in ax.texts] == [line.get_color() for line in lines]
    assert {(leader.get_color(), leader.get_linewidth() < 0.5) for leader in leaders} == {(figures.SILVER, True)}


@given(
    st.lists(st.floats(-50, 250), min_size=1, max_size=30),
    st.floats(1, 20),
)
def test_places_keep_their_order_their_distance_and_the_frame(places, pitch):
    height = 200.0
    places = np.array(places)
    moved = figures.keep_apart(places, pitch, height)
    step = min(pitch, height / max(len(places) - 1, 1))
    order = np.argsort(places, kind="stable")
    assert np.all(np.diff(moved[order]) >= step - 1e-9)
    assert moved.min() >= -1e-9
    assert moved.max() <= height + 1e-9


def test_places_far_apart_stay():
    places = np.array([10.0, 150.0, 60.0])
    np.testing.assert_allclose(figures.keep_apart(places, 8, 200), places)
    np.testing.assert_allclose(figures.keep_apart(np.array([100.0, 100.0]), 8, 200), [96, 104])


def test_saving_writes_the_same_bytes_again(tmp_path):
    figure = figures.average_reward(runs({"puir": 1.0, "sbucb": 0.9}))
    for folder in ("one", "two"):
        written = figures.save(figure, tmp_path / folder / "figure.svg")
        assert [path.name for path in written] == ["figure.png", "figure.svg"]
    for name in ("figure.png", "figure.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert (tmp_path / "one" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_dotted_name_keeps_its_dots(tmp_path):
    figure = figures.average_reward(runs({"puir": 1.0}))
    assert [path.name for path in figures.save(figure, tmp_path / "alpha-0.1")] == ["alpha-0.1.png", "alpha-0.1.svg"]


def test_one_episode_and_constant_rewards_can_be_drawn():
    for length in (1, 2):
        figure = figures.average_reward([Run("puir", np.zeros(length))])
        low, high = figure.axes[0].get_ylim()
        assert low < 0 < high


def test_no_global_state_is_touched():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figures.average_reward(runs({"puir": 1.0}))
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r'pip install "spuir\[plot\]"'):
        figures.average_reward(runs({"puir": 1.0}))
