"""The summary of all experiments, in plain sentences whose numbers come from their tables.

A sentence is left out if its numbers are missing, because an experiment was not run or is not complete. Verdicts are
found by their ids; an id that a complete experiment does not have is an error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spuir.errors import SpuirError
from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN
from spuir.results.figures import TUNED

Section = Mapping[str, Any]

OURS = "beyond the paper"
CONSTANT, BALANCED = "γ 0.1, η 0.9", "balanced"
HARM = 3.0
"""A rate is called harmful if it loses more than this many per cent of the reward."""


class ComparedRewards(NamedTuple):
    """Rewards in one place, by method: at the authors' setting and at its own best, and the verdict on imputation."""

    name: str
    authors: Mapping[str, float]
    best: Mapping[str, float]
    outcome: str | None

    def lead(self, ours: str, theirs: str, *, tuned: bool) -> float | None:
        """Return by how many per cent one method earns more than another."""
        rewards = self.best if tuned else self.authors
        if ours not in rewards or not rewards.get(theirs):
            return None
        return 100 * (rewards[ours] / rewards[theirs] - 1)


class Sections:
    """The tables and verdicts of the sections, by name."""

    def __init__(self, sections: Mapping[str, Section]) -> None:
        self.sections = sections
        self._outcomes = {one["id"]: one["outcome"] for section in sections.values() for one in section["verdicts"]}

    def rows(self, experiment: str, table: str = "", **where: Any) -> list[Mapping[str, Any]]:
        """Return the rows of a table that have these values."""
        tables = self.sections.get(experiment, {}).get("tables", [])
        rows = [row for one in tables if one["name"] == table for row in one["rows"]]
        return [row for row in rows if all(row.get(name) == value for name, value in where.items())]

    def value(self, experiment: str, table: str, where: Mapping[str, Any], column: str) -> float | None:
        """Return the number in one cell."""
        rows = self.rows(experiment, table, **where)
        value = rows[0].get(column) if rows else None
        return float(value) if isinstance(value, (int, float)) else None

    def outcome(self, id: str) -> str | None:
        """Return the outcome of a verdict, or None if its experiment was not run or is not complete."""
        section = self.sections.get(id.partition("/")[0], {})
        if id not in self._outcomes and section.get("verdicts") and not section.get("missing_count"):
            known = ", ".join(one["id"] for one in section["verdicts"])
            raise SpuirError("verdict", id, "the experiment has no such verdict", f"use one of {known}")
        return self._outcomes.get(id)

    def places(self) -> list[ComparedRewards]:
        """Return every place where the methods were compared, each once."""
        figures = {"figure3a": "synthetic data", "figure3b": "Criteo", "figure3c": "the coupon simulator"}
        places = [self._figure(experiment, name) for experiment, name in figures.items()]
        places += [*self._listed("fairness", ("heterogeneous",)), *self._listed("real", None)]
        return [place for place in places if place.authors]

    def _figure(self, experiment: str, name: str) -> ComparedRewards:
        rows = {str(row["method"]): row.get("average reward") for row in self.rows(experiment)}
        known = {method: value for method, value in rows.items() if isinstance(value, (int, float))}
        tables = self.sections.get(experiment, {}).get("tables", [])
        generated = bool(tables) and "generated" in tables[0].get("title", "")
        return ComparedRewards(
            f"generated {name} rows" if generated else name,
            {label: value for label, value in known.items() if "(" not in label},
            {label.removesuffix(TUNED): value for label, value in known.items() if label.endswith(TUNED)},
            self.outcome(f"{experiment}/puir-over-sbucb"),
        )

    def _listed(self, experiment: str, names: Sequence[str] | None) -> list[ComparedRewards]:
        rows = self.rows(experiment)
        every = dict.fromkeys(str(row["environment"]) for row in rows)
        made: list[ComparedRewards] = []
        for name in every if names is None else [name for name in names if name in every]:
            own = [row for row in rows if row["environment"] == name]
            authors, best = (
                {row["method"]: row[column] for row in own if row.get(column) is not None}
                for column in ("reward, authors'", "reward, best")
            )
            made.append(ComparedRewards(name, authors, best, self.outcome(f"{experiment}/{name}/puir-over-sbucb")))
        return made


def overview(sections: Mapping[str, Section]) -> list[dict[str, Any]]:
    """Return titled paragraphs from the sections, which are given by name."""
    known = Sections(sections)
    parts: dict[str, Sequence[Callable[[Sections], str]]] = {
        "The verdicts": (_tally,),
        "What imputation brings": (_leads, _feedback, _flatness),
        "When it does not": (_level, _many_actions, _equal_bonus),
        "What sketching costs in reward and saves in time": (_sketched_reward, _sketch_size, _time),
    }
    made = [
        {"title": title, "paragraphs": [text for write in writers if (text := write(known))]}
        for title, writers in parts.items()
    ]
    return [part for part in made if part["paragraphs"]]


def _counted(outcomes: Iterable[str]) -> str:
    """Return how often each outcome occurs, in words."""
    every = list(outcomes)
    verbs = {
        HOLDS: ("holds", "hold"),
        AUTHORS_ONLY: ("holds only against the authors' settings", "hold only against the authors' settings"),
        FAILS: ("does not hold here", "do not hold here"),
        OPEN: ("is not decided", "are not decided"),
    }
    counts = {outcome: every.count(outcome) for outcome in verbs}
    return joined(f"{count} {verbs[outcome][count > 1]}" for outcome, count in counts.items() if count)


def joined(parts: Iterable[str]) -> str:
    """Return a list as a sentence has it: one, two and three."""
    *before, last = list(parts) or [""]
    return f"{', '.join(before)} and {last}" if before else last


def percent(value: float) -> str:
    """Return a difference in per cent, with its sign."""
    text = f"{value:+.2f}" if abs(value) < 10 else f"{value:+.1f}"
    return f"{'0.00' if float(text) == 0 else text} %"


def _tally(known: Sections) -> str:
    paper = [one["outcome"] for s in known.sections.values() if s["source"] != OURS for one in s["verdicts"]]
    ours = [one["outcome"] for s in known.sections.values() if s["source"] == OURS for one in s["verdicts"]]
    text = f"Of {len(paper)} claims about the paper, {_counted(paper)}." if paper else ""
    return f"{text} Of {len(ours)} claims beyond the paper, {_counted(ours)}.".strip() if ours else text


def _differences(places: Sequence[ComparedRewards], ours: str, theirs: str, *, tuned: bool) -> str:
    """Return the relative differences of two methods, place by place."""
    leads = [(place.name, place.lead(ours, theirs, tuned=tuned)) for place in places]
    return joined(f"{percent(lead)} on {name}" for name, lead in leads if lead is not None)


def _at_both(places: Sequence[ComparedRewards], ours: str, theirs: str) -> str:
    """Return the relative differences of two methods at the authors' settings and at their own best."""
    plain, fair = (_differences(places, ours, theirs, tuned=tuned) for tuned in (False, True))
    return f"at the authors' settings: {plain}. Each at its own best setting: {fair}." if plain and fair else ""


def _leads(known: Sections) -> str:
    places = known.places()
    differences = _at_both(places, "puir", "sbucb")
    if not differences:
        return ""
    outcomes = [place.outcome for place in places if place.outcome is not None]
    verdict = (
        f"After tuning, PUIR is significantly better on {outcomes.count(HOLDS)} of {len(outcomes)} data sets; on "
        f"{outcomes.count(AUTHORS_ONLY)} it is better only at the authors' settings."
    )
    if OPEN in outcomes:
        verdict = "With so few seeds none of this is decided."
    return (
        f"Reward of PUIR compared with SBUCB, the same policy without imputed rewards, {differences} The authors' "
        f"SBUCB explores with α = 1, their PUIR with α = 0.1. {verdict}"
    )


def _feedback(known: Sections) -> str:
    def reward(policy: str, share: int) -> float | None:
        return known.value("figure1", "", {"policy": policy, "feedback %": share}, "average reward")

    none, full, imputed = reward("sbucb", 0), reward("sbucb", 100), reward("puir (no feedback)", 0)
    calm = reward("sbucb (α = 0.1)", 0)
    if none is None or full is None or imputed is None or not full > none:
        return ""
    worth, reached = percent(100 * (full / none - 1)), (imputed - none) / (full - none)
    text = (
        f"Imputation replaces feedback: seeing the rewards of all actions is worth {worth} of reward to SBUCB at "
        f"α = 1, and PUIR reaches {reached:.0%} of that without seeing any."
    )
    if calm is None:
        return text
    share = (calm - none) / (full - none)
    contrast = "So does less exploration" if share > 0.5 else "Less exploration alone does not"
    return f"{text} {contrast}: SBUCB at α = 0.1 reaches {share:.0%} of it."


def _flatness(known: Sections) -> str:
    costs: list[str] = []
    outcomes: list[str | None] = []
    for name in dict.fromkeys(row["environment"] for row in known.rows("fairness", "flatness")):
        plain, imputed = (
            known.value("fairness", "flatness", {"environment": name, "method": method}, "lost, %")
            for method in ("sbucb", "puir")
        )
        if plain is not None and imputed is not None:
            costs.append(f"{imputed:.2f} % instead of {plain:.2f} % of the reward on {name}")
            outcomes.append(known.outcome(f"fairness/{name}/alpha-matters-less"))
    if not costs:
        return ""
    opening = "It makes a wrong bonus cheaper everywhere: t" if set(outcomes) == {HOLDS} else "T"
    return f"{opening}he worst α of the grid costs, with imputation instead of without, {joined(costs)}."


def _level(known: Sections) -> str:
    gone, never = ([place for place in known.places() if place.outcome == one] for one in (AUTHORS_ONLY, FAILS))
    parts: list[str] = []
    if left := _differences(gone, "puir", "sbucb", tuned=True):
        parts.append(
            f"Once SBUCB is tuned as well, PUIR has no significant lead on {len(gone)} "
            f"data set{'s' if len(gone) > 1 else ''}: {left}. There the gain at the authors' settings comes from "
            "SBUCB's setting, not from imputed rewards."
        )
    if plain := _differences(never, "puir", "sbucb", tuned=False):
        parts.append(f"Even at the authors' settings PUIR is not significantly ahead: {plain}.")
    return " ".join(parts)


def _many_actions(known: Sections) -> str:
    rows = known.rows("many-actions")
    if not rows or any(row.get(rate) is None for row in rows for rate in (CONSTANT, BALANCED)):
        return ""
    few, many = rows[0], rows[-1]
    harmful = [str(row["actions"]) for row in rows if row[CONSTANT] < -HARM]
    where = f"more than {HARM:g} % from {harmful[0]} actions on" if harmful else f"never more than {HARM:g} %"
    return (
        "With many actions: imputed rows outnumber observed ones about M − 1 to 1, and repeat the last estimate. At a "
        f"constant rate (γ = 0.1, η = 0.9) the worst change of reward relative to SBUCB is {percent(few[CONSTANT])} "
        f"with {few['actions']} actions and {percent(many[CONSTANT])} with {many['actions']}; it loses {where}. The "
        f"balanced rate, which ties imputed to observed weight, has {percent(few[BALANCED])} and "
        f"{percent(many[BALANCED])}."
    )


def _equal_bonus(known: Sections) -> str:
    words = {HOLDS: "holds", AUTHORS_ONLY: "holds only against the authors' settings", FAILS: "does not hold"}
    claims = {
        "at equal α, the best fixed rate earns more than no imputation": "rate/imputation-at-equal-alpha",
        "some rate has a smaller squared error of the estimate than none": "theorem2/trade-pays",
        "the estimate with imputed rewards is nearer to the truth than with bandit feedback": (
            "theorem1/imputation-approximates"
        ),
    }
    outcomes = {claim: known.outcome(id) for claim, id in claims.items()}
    parts = [f"that {claim} {words[outcome]}" for claim, outcome in outcomes.items() if outcome in words]
    return f"Apart from the bonus, does imputation improve the estimate? The claim {joined(parts)}." if parts else ""


def _sketched_reward(known: Sections) -> str:
    differences = _at_both(known.places(), "spuir", "puir")
    return f"Reward of SPUIR compared with PUIR, {differences}" if differences else ""


def _sketch_size(known: Sections) -> str:
    rows = known.rows("figure3f", policy="spuir")
    whole = max((row["c"] for row in rows), default=None)
    chosen = [row["c"] for row in rows if row["c"] != whole]
    if whole is None or not chosen:
        return ""
    size = min(chosen, key=lambda c: abs(c - whole / 10))

    def lost(label: str) -> float | None:
        values = [known.value("figure3f", "", {"policy": label, "c": c}, "regret per context") for c in (size, whole)]
        return None if values[0] is None or not values[1] else values[0] / values[1]

    paper, ours = lost("spuir"), lost("spuir (ours)")
    if paper is None or ours is None:
        return ""
    return (
        f"The loss comes from the sketch's noise. With c = {size} of {whole:,} rows regret per context is {paper:.1f} "
        f"times that without a sketch when moments are sketched too, as in the paper, and {ours:.1f} times with "
        "the moments that we keep by default."
    )


def _time(known: Sections) -> str:
    def ratio(method: str, column: str) -> float | None:
        return known.value("table2", "time", {"method": method}, column)

    sketched, exact = ratio("spuir", "times SBUCB"), ratio("puir", "times SBUCB")
    printed = [ratio(method, "paper's times SBUCB") for method in ("spuir", "puir")]
    if sketched is None or exact is None or None in printed:
        return ""
    saved = 1 - sketched / exact
    verb = f"saves {saved:.0%} of the time of PUIR" if saved > 0 else f"takes {-saved:.0%} longer than PUIR"
    outcome = known.outcome("table1/sketching-saves")
    general = f" In the times of single episodes, the claim that sketching makes them shorter {outcome}."
    return (
        f"On the coupon simulator SPUIR takes {sketched:.2f} and PUIR {exact:.2f} times SBUCB's time "
        f"({printed[0]:.2f} and {printed[1]:.2f} in the paper): sketching {verb}, whose imputed sums follow here "
        f"from the observed ones at little cost.{general if outcome not in (None, OPEN) else ''}"
    )
