"""Draw the figures of the pages by running what the pages show, and keep the figures that come out.

Run ``python docs/page_figures.py`` after changing the README, the tutorial, a how-to with a figure or an example.
"""

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
sys.path.insert(0, str(ROOT))

from spuir.results import figures  # noqa: E402

SEEDS, NIGHTS = 20, 14
COLOURS = (figures.VERMILLION, figures.BLUE, figures.GREY)


def drawn(page: str) -> dict[str, Any]:
    """Run the blocks of a page in the current folder, and return its names."""
    from tests.docs.test_snippets import blocks, call_spuir, script

    program = Path("page.py")
    program.write_text(script(blocks((ROOT / page).read_text(encoding="utf-8"))), encoding="utf-8")
    return runpy.run_path(str(program), init_globals={"call_spuir": call_spuir})


def example(name: str) -> dict[str, Any]:
    """Run an example in the current folder, and return its names."""
    return runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def nights() -> tuple[np.ndarray, np.ndarray]:
    """Return what the bandit of the README earns each night (seeds, nights), and what is possible."""
    import spuir

    earned, possible = np.empty((SEEDS, NIGHTS)), np.empty((SEEDS, NIGHTS))
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        bandit = spuir.Bandit(actions=["mail", "call"], random_state=seed)
        for night in range(NIGHTS):
            customers = rng.normal(size=(500, 2))
            day = bandit.decide(customers)
            value = np.where(day.actions == "mail", customers[:, 0], customers[:, 1])
            bandit.partial_fit(day, value + 3 * rng.normal(size=500))
            earned[seed, night], possible[seed, night] = value.mean(), customers.max(axis=1).mean()
    return earned, possible


def home() -> Any:
    """Draw the figure of the README: how a bandit learns night by night, and what a log says about a new policy."""
    from spuir.logs import open_log, split_log
    from spuir.training import policy_for_logs, train

    figure, (left, right) = figures.new_figure(2)
    earned, possible = nights()
    days = np.arange(1, NIGHTS + 1)
    left.plot(days, possible.mean(axis=0), color=figures.GREY, linestyle=figures.DASHED, linewidth=1.1)
    left.plot(days, earned.mean(axis=0), color=figures.BLUE, marker="o", markersize=3, linewidth=1.3)
    left.axhline(0, color=figures.GREY, linestyle=figures.DOTTED, linewidth=1.1)
    notes = (("best action for each customer", 0.60), ("spuir", 0.46), ("one action for all, or a random one", 0.02))
    for text, height in notes:
        left.text(NIGHTS, height, text, fontsize=figures.TEXT_POINTS, ha="right", color=figures.INK)
    left.set(xlabel="night", ylabel="reward per customer", ylim=(-0.05, 0.65), xlim=(0.5, NIGHTS + 0.5))
    left.set_title("It learns once a night", fontsize=figures.TEXT_POINTS + 1, loc="left")

    names = example("coupon_campaign.py")
    earlier, later = split_log(open_log("visits.csv", rename=names["COLUMNS"]), 0.4)
    bandit = train(earlier, policy_for_logs("auto"), propensity="uniform").bandit
    import spuir

    table = spuir.evaluate(later, {"spuir": bandit}, propensity="uniform").table
    table = table[table.policy != "uniform"].sort_values("value")
    texts = [name.replace("always:", "always ").replace("logged", "today") for name in table.policy]
    for at, (name, row) in enumerate(zip(texts, table.itertuples(), strict=True)):
        colour = figures.BLUE if name == "spuir" else figures.INK
        right.plot([row.low, row.high], [at, at], color=colour, linewidth=1.3)
        right.plot(row.value, at, "o", color=colour, markersize=4)
    right.set_yticks(range(len(texts)), texts)
    right.grid(axis="y", visible=False)
    right.grid(axis="x", color=figures.FAINT, linewidth=0.5)
    right.set(xlabel="purchases per visitor, 95 % intervals", ylim=(-0.6, len(texts) - 0.4))
    right.set_title("A log says what it would earn", fontsize=figures.TEXT_POINTS + 1, loc="left")
    return figure


def offers() -> Any:
    """Draw what the policy of the page on logs prefers, by age and basket."""
    names = drawn("docs/howto/from-a-log.md")
    import pandas as pd

    figure, panels = figures.new_figure(2)
    bandit = names["bandit"]
    steady = {"age": 40.0, "basket": 60.0, "device": "phone"}
    ranges = {"age": np.arange(18, 71.0), "basket": np.arange(0, 151.0, 2)}
    for ax, (column, values) in zip(panels, ranges.items(), strict=True):
        people = pd.DataFrame([steady | {column: value} for value in values])
        means = bandit.decide(people).means
        curves = [
            figures.Curve(offer, means[:, code], np.zeros(len(values)), 1, values, (colour, figures.SOLID))
            for code, (offer, colour) in enumerate(zip(names["OFFERS"], COLOURS, strict=True))
        ]
        figures.draw_curves(ax, curves)
        ax.set(xlabel=column, ylabel="estimated reward" if column == "age" else "")
        ax.set_xlim(values[0], values[-1])
        if column == "basket":
            figures.label_ends(figure, {ax: curves})
    return figure


def window() -> Any:
    """Draw the episode of the page on logs: decisions, the window of their rewards, and what arrives when."""
    figure, (ax,) = figures.new_figure(1)
    arrivals = {"a": [(20, 1.0), (40, 0.5)], "b": [(90, 1.0)], "c": [], "z": [(30, 1.0)]}
    results = {"a": "1 + 0.5 = 1.5", "b": "late: 0", "c": "none: 0", "z": "no decision"}
    for at, (name, rewards) in enumerate(reversed(arrivals.items())):
        if name != "z":
            ax.barh(at, 60, height=0.5, color=figures.SKY, alpha=0.35)
            ax.plot(0, at, "s", color=figures.INK, markersize=4)
        for minute, reward in rewards:
            counts = name != "z" and minute <= 60
            ax.plot(minute, at, "o", color=figures.BLUE if counts else figures.VERMILLION, markersize=5)
            ax.text(minute, at + 0.32, f"{reward:g}", ha="center", fontsize=figures.TEXT_POINTS - 1)
        ax.text(112, at, results[name], va="center", fontsize=figures.TEXT_POINTS)
    ax.set_yticks(range(4), list(reversed(arrivals)))
    ax.set_xticks([0, 30, 60, 90], ["10:00", "10:30", "11:00", "11:30"])
    ax.set(xlim=(-6, 110), ylim=(-0.6, 3.7), ylabel="decision")
    ax.grid(visible=False)
    ax.set_title("shaded: the window of one hour", fontsize=figures.TEXT_POINTS, loc="left")
    return figure


def sales() -> Any:
    """Draw the share of customers who bought in each night of the example."""
    import contextlib
    import io
    import re

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        example("nightly_job.py")
    bought = [int(one) / int(all_) for one, all_ in re.findall(r": (\d+) of (\d+) customers", printed.getvalue())]
    figure, (ax,) = figures.new_figure(1)
    ax.plot(range(1, len(bought) + 1), bought, color=figures.BLUE, marker="o", markersize=3.5, linewidth=1.3)
    notes = ((0.5, 0.40, "the right offer for each customer"), (0.1 + 0.4 / 3, 0.19, "a random offer"))
    for height, place, text in notes:
        ax.axhline(height, color=figures.GREY, linestyle=figures.DASHED, linewidth=0.9)
        ax.text(len(bought), place, text, ha="right", fontsize=figures.TEXT_POINTS, color=figures.INK)
    ax.set(xlabel="night", ylabel="share of customers who bought", ylim=(0, 0.6))
    return figure


def evaluation() -> Any:
    """Draw the values of the page on evaluation."""
    return drawn("docs/howto/evaluate.md")["report"].plot()


def tuning() -> Any:
    """Draw the tuning of its page."""
    from spuir.evaluation.tuning_figure import draw_tuning

    return draw_tuning(drawn("docs/howto/tune.md")["found"])


def changes() -> Any:
    """Draw the mean reward of each day in the page on the doctor, and what the doctor says about it."""
    names = drawn("docs/howto/doctor.md")
    days, means = np.arange(1, 31), names["month"].reward.groupby(names["day"]).mean()
    said = {finding.check: finding.problem for finding in names["changes"]}
    figure, (ax,) = figures.new_figure(1)
    ax.set_yscale("symlog", linthresh=0.5)
    parts = ((days <= 15, figures.BLUE), ((days > 15) & (days <= 27), figures.VERMILLION), (days > 27, figures.GREY))
    for part, colour in parts:
        ax.plot(days[part], means[part.tolist()], "o", color=colour, markersize=3.5)
    for check, height, colour in (("reward unit", 3000, figures.VERMILLION), ("rewards end", 0.12, figures.GREY)):
        text = fill(f"{check}: {said[check]}", 44)
        ax.text(0.5, height, text, fontsize=figures.TEXT_POINTS - 1, color=colour, va="center")
    heights = [0, 1, 10, 100, 1000]
    ax.set_yticks(heights, [f"{height:,}" for height in heights])
    ax.set(xlabel="day", ylabel="mean reward", ylim=(-0.15, 9000), xlim=(0, 31))
    return figure


def drift() -> Any:
    """Draw the drift of two columns, night by night, with the encoder of the page on raw columns."""
    names = drawn("docs/howto/raw-columns.md")
    log, encoder, rng = names["log"], names["encoder"], np.random.default_rng(0)
    shares: dict[str, list[float]] = {"device": [], "age": []}
    places = np.arange(1.0, 15.0)
    for night in range(1, 15):
        rows = log.sample(500, random_state=night)
        new = rng.random(len(rows)) < 0.03 * max(night - 3, 0)
        rows = rows.assign(device=rows.device.mask(new, "watch"))
        rows = rows.assign(age=rows.age.where((rows.age > 30) | (night < 10)))
        counted = encoder.drift(rows).to_frame().set_index("column").drifted
        for column, values in shares.items():
            values.append(counted[column])
    figure, (ax,) = figures.new_figure(1)
    curves = [
        figures.Curve(column, np.array(values), np.zeros(len(places)), 1, places, (colour, figures.SOLID))
        for (column, values), colour in zip(shares.items(), (figures.BLUE, figures.VERMILLION), strict=True)
    ]
    figures.draw_curves(ax, curves)
    ax.axhline(0.1, color=figures.GREY, linestyle=figures.DASHED, linewidth=0.9)
    ax.text(1, 0.11, "above: a warning", fontsize=figures.TEXT_POINTS, color=figures.INK)
    ax.set_xticks(range(2, 15, 2))
    ax.set(xlabel="night", ylabel="share of drifted values")
    figures.label_ends(figure, {ax: curves})
    return figure


def softmax() -> Any:
    """Draw the policy of the page on adding one, with greedy and uniform."""
    import spuir
    from spuir.policies import POLICIES

    sys.path.insert(0, str(ROOT / "docs" / "howto"))
    POLICIES.register("softmax", "skeleton_policy:SOFTMAX")
    runs = [
        spuir.run(spuir.make_policy(name), spuir.make_environment("linear"), episodes=20, batch_size=100, seed=seed)
        for name in ("greedy", "softmax", "uniform")
        for seed in range(5)
    ]
    figure, (ax,) = figures.new_figure(1)
    looks = {"greedy": (figures.INK, figures.SOLID), "softmax": (figures.BLUE, figures.DASHED), "uniform": None}
    # Softmax lies on greedy, so it is drawn last, dashed and in another colour.
    curves = [replace(curve, style=looks[curve.label]) for curve in figures.curves_of(runs)]
    figures.draw_curves(ax, curves)
    ax.set_xticks(range(5, 21, 5))
    ax.set(xlabel="episode", ylabel="running average reward")
    figures.label_ends(figure, {ax: curves})
    return figure


def formats() -> Any:
    """Draw which columns come back after a log was written in each format of the page on other tools."""
    from spuir.logs import export_log, open_log, write_log

    row = {"decision_id": "v1", "time": datetime(2026, 1, 5, tzinfo=UTC), "action": 1, "reward": 1.0}
    row |= {"propensity": 0.5, "eligible": [1, 2], "probabilities": [0.5, 0.5], "policy_version": "m7", "age": 34.0}
    rows = [row, row | {"decision_id": "v2", "action": 2, "reward": 0.0}]
    written = {"dsjson": "a.json", "vw-cb-adf": "a.txt", "vw-cb": "a.vw", "banditdb": "a.parquet"}
    back: dict[str, set[str]] = {}
    for name in ("dsjson", "vw-cb-adf", "vw-cb", "obp", "mabwiser", "contextualbandits", "banditdb"):
        log = open_log({column: [one[column] for one in rows] for column in row})
        if name in written:
            write_log(log, written[name], format=name)
            again = open_log(written[name], format=name)
        else:
            options = {} if name == "mabwiser" else {"actions": [1, 2]}
            again = open_log(export_log(log, name, **options), format=name)
        back[name] = set(again.head(1).column_names) - set(again.context) | ({"context"} if again.context else set())
    columns = [*(column for column in row if column != "age"), "context"]
    figure, (ax,) = figures.new_figure(1)
    for at, name in enumerate(reversed(back)):
        for across, column in enumerate(columns):
            full = column in back[name]
            ax.plot(across, at, "o", color=figures.BLUE if full else figures.FAINT, markersize=5 if full else 2)
    ax.set_yticks(range(len(back)), list(reversed(back)))
    ax.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.6, len(back) - 0.4))
    ax.grid(visible=False)
    return figure


def tutorial() -> Any:
    """Draw the comparison at the end of the tutorial."""
    return drawn("docs/tutorial.md")["figure"]


def file_of(page: Callable[[], Any], name: str) -> Callable[[], Path]:
    """Return what runs a page and gives a figure that it writes."""

    def draw() -> Path:
        page()
        return Path(name)

    return draw


def coffee() -> Any:
    """Draw the values of the page for users of Vowpal Wabbit and Personalizer."""
    return drawn("docs/howto/coming-from.md")["report"].plot()


def catalogue() -> Any:
    """Draw what the three models of the page on changing catalogues earn, day by day, and on new articles."""
    names = drawn("docs/howto/changing-catalogue.md")
    figure, (left, right) = figures.new_figure(2)
    places, curves, shares = np.arange(1.0, 13.0), [], {}
    colours = (figures.BLUE, figures.VERMILLION, figures.GREY)
    for (label, (policy, parameters)), colour in zip(names["MODELS"].items(), colours, strict=True):
        found = [names["simulate"](seed, policy, **parameters) for seed in range(SEEDS)]
        days = np.array([run[0] for run in found])
        errors = days[:, :, 0].std(axis=0, ddof=1) / np.sqrt(SEEDS)
        curves.append(figures.Curve(label, days[:, :, 0].mean(axis=0), errors, SEEDS, places, (colour, figures.SOLID)))
        earned, best, random = (np.array([run[1][:, at].mean() for run in found]) for at in range(3))
        shares[label] = ((earned - random) / (best - random), colour)
    left.plot(places, days[:, :, 1].mean(axis=0), color=figures.GREY, linestyle=figures.DASHED, linewidth=1.1)
    left.text(12, days[:, :, 1].mean() + 0.008, "best article", ha="right", fontsize=figures.TEXT_POINTS)
    figures.draw_curves(left, curves)
    left.set(xlabel="day", ylabel="clicks per reader", ylim=(0.35, 0.9))
    left.set_xticks(range(2, 13, 2))
    for at, (values, colour) in enumerate(reversed(shares.values())):
        error = values.std(ddof=1) / np.sqrt(SEEDS)
        right.plot([values.mean() - 2 * error, values.mean() + 2 * error], [at, at], color=colour, linewidth=1.3)
        right.plot(values.mean(), at, "o", color=colour, markersize=4)
    right.set_yticks(range(len(shares)), [fill(label, 16) for label in reversed(shares)])
    right.grid(axis="y", visible=False)
    right.grid(axis="x", color=figures.FAINT, linewidth=0.5)
    right.set(xlabel="from random (0) to best (1), new articles", ylim=(-0.6, len(shares) - 0.4), xlim=(0.3, 1))
    return figure


DRAWN: dict[str, Callable[[], Any]] = {
    "home": home,
    "tutorial-comparison": tutorial,
    "howto-from-a-log": offers,
    "howto-training": file_of(lambda: drawn("docs/howto/training.md"), "hourly.policy.svg"),
    "howto-logs": window,
    "howto-nightly-job": sales,
    "evaluation-values": evaluation,
    "howto-tune": tuning,
    "howto-explain": file_of(lambda: drawn("docs/howto/explain.md"), "howto-explain.svg"),
    "howto-doctor": changes,
    "howto-raw-columns": drift,
    "howto-adding-a-policy": softmax,
    "howto-other-logs": formats,
    "howto-changing-catalogue": catalogue,
    "howto-coming-from": coffee,
    "example-comparison": file_of(lambda: example("compare_policies.py"), "comparison.svg"),
}
"""What draws each figure: it returns a matplotlib figure, or the path of an SVG file."""


@contextmanager
def elsewhere() -> Iterator[None]:
    """Work in a temporary folder."""
    here = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def main(names: list[str]) -> None:
    """Draw the figures named, or all of them."""
    import matplotlib

    for name in names or DRAWN:
        # With a fixed salt, the same figure has the same bytes.
        with elsewhere(), matplotlib.rc_context({"svg.hashsalt": "spuir"}):
            made = DRAWN[name]()
            made = made if isinstance(made, Path) else figures.save(made, name)[1]
            (FIGURES / f"{name}.svg").write_bytes(made.read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
