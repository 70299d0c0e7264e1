"""What the experiments say together, in plain sentences whose every number comes from their tables.

A sentence whose numbers are not there, because an experiment was not run or is not complete, is left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spuir.reproduction.base import AUTHORS_ONLY, FAILS, HOLDS, OPEN

Section = Mapping[str, Any]

OURS = "beyond the paper"
CONSTANT, BALANCED = "γ 0.1, η 0.9", "balanced"
HARM = 3.0
"""Per cent of reward from which a loss is called one."""


class Place(NamedTuple):
    """Where methods were compared: rewards of each at the authors' setting and at its own best."""

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


class Known:
    """The tables and verdicts of the sections, by name."""

    def __init__(self, sections: Mapping[str, Section]) -> None:
        self.sections = sections

    def rows(self, experiment: str, table: str = "", **where: Any) -> list[Mapping[str, Any]]:
        """Return the rows of a table that have these values."""
        tables = self.sections.get(experiment, {}).get("tables", [])
        found = [row for one in tables if one["name"] == table for row in one["rows"]]
        return [row for row in found if all(row.get(name) == value for name, value in where.items())]

    def value(self, experiment: str, table: str, where: Mapping[str, Any], column: str) -> float | None:
        """Return the number in one cell."""
        rows = self.rows(experiment, table, **where)
        value = rows[0].get(column) if rows else None
        return float(value) if isinstance(value, (int, float)) else None

    def outcomes(self, experiment: str, *words: str) -> list[str]:
        """Return the outcomes of the verdicts of an experiment whose claims hold all of these words."""
        verdicts = self.sections.get(experiment, {}).get("verdicts", [])
        return [one["outcome"] for one in verdicts if all(word in one["claim"] for word in words)]

    def places(self) -> list[Place]:
        """Return every place where the methods were compared, each once."""
        found = [self._figure(name, told) for name, told in (("figure3a", "synthetic data"), ("figure3b", "Criteo"))]
        found.append(self._figure("figure3c", "the coupon simulator"))
        found += self._listed("fairness", ("heterogeneous",)) + self._listed("real", None)
        return [place for place in found if place.authors]

    def _figure(self, experiment: str, told: str) -> Place:
        rows = {str(row["method"]): row.get("average reward") for row in self.rows(experiment)}
        known = {method: value for method, value in rows.items() if isinstance(value, (int, float))}
        title = self.sections.get(experiment, {}).get("tables", [{}])
        generated = bool(title) and "generated" in title[0].get("title", "")
        return Place(
            f"generated {told} rows" if generated else told,
            {name: value for name, value in known.items() if "(" not in name},
            {name.removesuffix(" (tuned)"): value for name, value in known.items() if name.endswith("(tuned)")},
            next(iter(self.outcomes(experiment, "PUIR earns more than SBUCB")), None),
        )

    def _listed(self, experiment: str, names: Sequence[str] | None) -> list[Place]:
        rows = self.rows(experiment)
        every = dict.fromkeys(str(row["environment"]) for row in rows)
        made: list[Place] = []
        for name in every if names is None else [name for name in names if name in every]:
            own = [row for row in rows if row["environment"] == name]
            columns = [
                {row["method"]: row[column] for row in own if row.get(column) is not None}
                for column in ("reward, authors'", "reward, best")
            ]
            outcome = next(iter(self.outcomes(experiment, "Imputation", " PUIR beside SBUCB", f" on {name}.")), None)
            made.append(Place(name, columns[0], columns[1], outcome))
        return made


def overview(sections: Mapping[str, Section]) -> list[dict[str, Any]]:
    """Return titled paragraphs, from the sections by name."""
    known = Known(sections)
    parts: dict[str, Sequence[Callable[[Known], str]]] = {
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


def _tally(known: Known) -> str:
    paper = [one["outcome"] for s in known.sections.values() if s["source"] != OURS for one in s["verdicts"]]
    ours = [one["outcome"] for s in known.sections.values() if s["source"] == OURS for one in s["verdicts"]]
    said = f"Of {len(paper)} claims about what the paper has, {_counted(paper)}." if paper else ""
    return f"{said} Of {len(ours)} about what we added, {_counted(ours)}.".strip() if ours else said


def _differences(places: Sequence[Place], ours: str, theirs: str, *, tuned: bool) -> str:
    """Return the relative differences of two methods, place by place."""
    leads = [(place.name, place.lead(ours, theirs, tuned=tuned)) for place in places]
    return joined(f"{percent(lead)} on {name}" for name, lead in leads if lead is not None)


def _at_both(places: Sequence[Place], ours: str, theirs: str) -> str:
    """Return the relative differences of two methods at the authors' settings and at their own best."""
    plain, fair = (_differences(places, ours, theirs, tuned=tuned) for tuned in (False, True))
    return f"at the authors' settings: {plain}. Each at its own best setting: {fair}." if plain and fair else ""


def _leads(known: Known) -> str:
    places = known.places()
    said = _at_both(places, "puir", "sbucb")
    if not said:
        return ""
    outcomes = [place.outcome for place in places if place.outcome is not None]
    held = outcomes.count(HOLDS)
    verdict = (
        f"Beyond noise the lead outlives tuning in {held} of {len(outcomes)} places, and in "
        f"{outcomes.count(AUTHORS_ONLY)} it is there only against the authors' settings."
    )
    if OPEN in outcomes:
        verdict = "With so few seeds none of this is decided."
    return (
        f"Reward of PUIR beside SBUCB, the same policy without imputed rewards, {said} The authors' SBUCB "
        f"explores with α = 1, their PUIR with α = 0.1. {verdict}"
    )


def _feedback(known: Known) -> str:
    def reward(policy: str, share: int) -> float | None:
        return known.value("figure1", "", {"policy": policy, "feedback %": share}, "average reward")

    none, full, imputed = reward("sbucb", 0), reward("sbucb", 100), reward("puir (no feedback)", 0)
    calm = reward("sbucb (α = 0.1)", 0)
    if none is None or full is None or imputed is None or not full > none:
        return ""
    worth, reached = percent(100 * (full / none - 1)), (imputed - none) / (full - none)
    text = (
        f"What it stands in for is feedback: to see the rewards of all actions is worth {worth} of reward to SBUCB at "
        f"α = 1, and PUIR reaches {reached:.0%} of that without seeing any."
    )
    if calm is None:
        return text
    share = (calm - none) / (full - none)
    contrast = "So does less exploration" if share > 0.5 else "Less exploration alone does not"
    return f"{text} {contrast}: SBUCB at α = 0.1 reaches {share:.0%} of it."


def _flatness(known: Known) -> str:
    said: list[str] = []
    for name in dict.fromkeys(row["environment"] for row in known.rows("fairness", "flatness")):
        lost = {
            method: known.value("fairness", "flatness", {"environment": name, "method": method}, "lost, %")
            for method in ("sbucb", "puir")
        }
        if lost["sbucb"] is not None and lost["puir"] is not None:
            said.append(f"{lost['puir']:.2f} % instead of {lost['sbucb']:.2f} % of the reward on {name}")
    if not said:
        return ""
    outcomes = known.outcomes("fairness", "choice of α matters less")
    safer = "It makes a wrong bonus cheaper everywhere: t" if outcomes and set(outcomes) == {HOLDS} else "T"
    return f"{safer}he worst α of the grid costs, with imputation instead of without, {joined(said)}."


def _level(known: Known) -> str:
    gone, never = ([place for place in known.places() if place.outcome == one] for one in (AUTHORS_ONLY, FAILS))
    said: list[str] = []
    if left := _differences(gone, "puir", "sbucb", tuned=True):
        said.append(
            f"Once SBUCB is tuned as well, no lead of PUIR beyond noise is left in {len(gone)} "
            f"place{'s' if len(gone) > 1 else ''}: {left}. There the gain at the authors' settings comes from SBUCB's "
            "setting, not from imputed rewards."
        )
    if plain := _differences(never, "puir", "sbucb", tuned=False):
        said.append(f"Even at the authors' settings PUIR is not ahead beyond noise with {plain}.")
    return " ".join(said)


def _many_actions(known: Known) -> str:
    rows = known.rows("many-actions")
    if not rows or any(row.get(rate) is None for row in rows for rate in (CONSTANT, BALANCED)):
        return ""
    few, many = rows[0], rows[-1]
    harmful = [str(row["actions"]) for row in rows if row[CONSTANT] < -HARM]
    where = f"more than {HARM:g} % from {harmful[0]} actions on" if harmful else f"never more than {HARM:g} %"
    return (
        "With many actions: imputed rows outnumber observed ones about M − 1 to 1, and repeat the last estimate. At a "
        f"constant rate (γ = 0.1, η = 0.9) the worst change of reward beside SBUCB is {percent(few[CONSTANT])} with "
        f"{few['actions']} actions and {percent(many[CONSTANT])} with {many['actions']}; it loses {where}. The "
        f"balanced rate, which ties imputed to observed weight, has {percent(few[BALANCED])} and "
        f"{percent(many[BALANCED])}."
    )


def _equal_bonus(known: Known) -> str:
    words = {HOLDS: "holds", AUTHORS_ONLY: "holds only against the authors' settings", FAILS: "does not hold"}
    claims = {
        "at equal α, the best fixed rate earns more than no imputation": known.outcomes("rate", "At equal α"),
        "some rate has a smaller squared error of the estimate than none": known.outcomes("theorem2", "The trade pays"),
        "the estimate with imputed rewards is nearer to the truth than with bandit feedback": known.outcomes(
            "theorem1", "Imputed rewards approximate"
        ),
    }
    said = [f"that {claim} {words[one[0]]}" for claim, one in claims.items() if one and one[0] in words]
    return f"Apart from the bonus, does imputation improve the estimate? The claim {joined(said)}." if said else ""


def _sketched_reward(known: Known) -> str:
    said = _at_both(known.places(), "spuir", "puir")
    return f"Reward of SPUIR beside PUIR, {said}" if said else ""


def _sketch_size(known: Known) -> str:
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
        f"The loss is the sketch's noise. With c = {size} of {whole:,} rows regret per context is {paper:.1f} times "
        f"that without a sketch when moments are sketched too, as in the paper, and {ours:.1f} times with the moments "
        "that we keep by default."
    )


def _time(known: Known) -> str:
    def ratio(method: str, column: str) -> float | None:
        return known.value("table2", "time", {"method": method}, column)

    sketched, exact = ratio("spuir", "times SBUCB"), ratio("puir", "times SBUCB")
    printed = [ratio(method, "paper's times SBUCB") for method in ("spuir", "puir")]
    if sketched is None or exact is None or None in printed:
        return ""
    saved = 1 - sketched / exact
    verb = f"saves {saved:.0%} of the time of PUIR" if saved > 0 else f"takes {-saved:.0%} longer than PUIR"
    outcomes = [one for one in known.outcomes("table1", "Sketching makes learning") if one != OPEN]
    general = f" In the times of single episodes, the claim that sketching makes them shorter {''.join(outcomes[:1])}."
    return (
        f"On the coupon simulator SPUIR takes {sketched:.2f} and PUIR {exact:.2f} times SBUCB's time "
        f"({printed[0]:.2f} and {printed[1]:.2f} in the paper): sketching {verb}, whose imputed sums follow here "
        f"from the observed ones at little cost.{general if outcomes else ''}"
    )
