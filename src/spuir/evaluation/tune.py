"""Tune: choose a policy and its parameters on a log, say what it gains, and train it.

The episodes of the log, in order, are cut into three. Candidates learn from the first part and are compared on the
second (:mod:`spuir.evaluation.candidates`). What only matters while learning is chosen on both by replay or simulation
(:mod:`spuir.evaluation.exploration`). The third part is touched once, at the end, by the winner and by what it is
compared with: nothing was chosen on it, so that its intervals need no correction for having chosen the best.
"""

import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from spuir import __version__
from spuir.base.counting import counted
from spuir.base.hashing import digest
from spuir.base.parameters import COUNT, SEED, UNIT, Rule, check_value, one_of, optional
from spuir.base.process_settings import one_blas_thread
from spuir.core import ties
from spuir.evaluation.candidates import BASELINE, Candidate, Contest, Results, candidates, finalists, rounds
from spuir.evaluation.encoded_rows import ENCODING, ROWS, EncodedRows, ReadRows, read_rows
from spuir.evaluation.exploration import FLOOR_COST, REPLAY, SIMULATION, Rehearsals, choose, deployed
from spuir.evaluation.held_out import HeldOut
from spuir.evaluation.intervals import interval
from spuir.evaluation.support import NONE
from spuir.evaluation.tuning_result import LEVEL, Tuning, compared
from spuir.logs import Cut, Log, open_log
from spuir.policies import Policy, make_policy
from spuir.tables.encoder import check_options
from spuir.training import train
from spuir.training.checkpoint import check_writable
from spuir.training.engines.local import Local
from spuir.training.notices import of_ids
from spuir.training.scan import SAMPLE_LEAST, Watcher, ignore
from spuir.training.start import check_described, episodes_to_learn

POLICIES = ("sbucb", "puir", "spuir", "auto")
"""Policies to choose from, unless others are named."""
SHARES = (0.6, 0.2)
"""Shares of the rows to learn from and to compare on; the rest is for the final comparison."""


def tune(
    source: Any,
    *,
    policies: Sequence[str] = POLICIES,
    budget: int = 40,
    batch_size: int | None = None,
    every: str | float | None = None,
    batch_sizes: Sequence[int] | None = None,
    learning: str = "auto",
    floor_cost: float = FLOOR_COST,
    propensity: str | None = None,
    encoding: Mapping[str, Any] | None = None,
    most_rows: int = ROWS,
    out: str | PathLike[str] | None = None,
    seed: int = 0,
    workers: int | None = None,
    watch: Watcher | None = None,
    tell: Callable[[str], object] | None = None,
    **opening: Any,
) -> Tuning:
    """Choose a policy and its parameters on a log, report what it gains, and train it on the whole log.

    Parameters
    ----------
    source, **opening
        A log with propensities, or what :func:`spuir.logs.open_log` takes to open one.
    policies
        Names of the policies to choose from; ``sbucb`` is always tried, to be reported beside the winner.
    budget
        Number of candidates: policies with their feature map, λ, γ, η and c.
    batch_size, every
        Rows or duration of an episode, as in ``train``.
    batch_sizes
        Batch sizes to choose from; None = that of the log's episodes.
    learning
        How α, the floor and the batch size are compared: "replay", "simulation", or "auto", a replay if the log is
        large enough for one.
    floor_cost
        Share of the reward that a floor may cost: the largest floor within it is chosen, so that later logs can be
        evaluated. 0 chooses the floor with the largest reward.
    propensity
        "uniform" if every eligible action was drawn with the same probability; None = the log's column.
    encoding
        Options of the encoder; None = scaled columns and a constant one.
    most_rows
        Rows to tune on, the latest of the log. The winner is trained on all rows.
    out
        Where to save the model. An interrupted tuning leaves its results beside it, from which the next one resumes.
    seed, workers
        Seed of all draws, and the number of threads, on which the result does not depend.
    watch, tell
        Called with (stage, tasks done, tasks in total), and with each notice.
    """
    begin = time.perf_counter()
    _check(
        budget=(budget, COUNT),
        most_rows=(most_rows, COUNT),
        seed=(seed, SEED),
        floor_cost=(floor_cost, UNIT),
        learning=(learning, one_of("auto", REPLAY, SIMULATION)),
        propensity=(propensity, optional(one_of("uniform"))),
        **{f"batch_sizes[{at}]": (size, COUNT) for at, size in enumerate(batch_sizes or ())},
    )
    target = None if out is None else Path(fspath(out))
    if target is not None:
        check_writable(target)
    encoding = ENCODING if encoding is None else encoding
    check_options(encoding)
    log = source if isinstance(source, Log) else open_log(source, **opening)
    cut = episodes_to_learn(log, batch_size, every)
    names = list(dict.fromkeys([BASELINE, *policies]))
    for name in names:
        check_described(log, make_policy(name))
    with one_blas_thread, Local(workers) as engine:
        job = TuneJob(
            read=read_rows(log, cut, encoding, most=most_rows, uniform=propensity == "uniform"),
            chosen=candidates(names, max(budget, len(names)), seed),
            results=Results(target, _mark(log, cut, dict(encoding), most_rows, propensity, seed)),
            seed=seed,
            engine=engine,
            watch=watch or ignore,
        )
        job.announce(log, cut, tell or ignore)
        answer = job.answer(learning, batch_sizes, floor_cost)
        training = train(
            log, answer["policy"], batch_size=cut.batch_size, every=every, encoder=job.read.encoder, workers=workers,
            out=target, seed=seed, tell=tell,
            watch=None if watch is None else lambda stage, done, total: watch(f"train: {stage}", done, total),
        )  # fmt: skip
    return Tuning(
        **answer,
        training=training,
        notices=tuple(job.notices),
        seconds=time.perf_counter() - begin,
        resumed=job.results.resumed,
    )


def _check(**given: tuple[Any, Rule]) -> None:
    for name, (value, rule) in given.items():
        check_value(name, value, rule, "choose another value, or leave it out")


def _mark(log: Log, cut: Cut, *settings: Any) -> str:
    """Return the digest of everything that results depend on, the task itself aside."""
    return digest(json.dumps([__version__, log.fingerprint(), repr(cut), *settings], default=repr))


@dataclass(kw_only=True, eq=False)
class TuneJob:
    """The steps of :func:`tune`, with what they share; ``learn``, ``compare`` and ``final`` are parts of the log."""

    read: ReadRows
    chosen: list[Candidate]
    results: Results
    seed: int
    engine: Local
    watch: Watcher
    notices: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.learn, self.compare, self.final = self.read.rows.split(*SHARES)

    def announce(self, log: Log, cut: Cut, tell: Callable[[str], object]) -> None:
        """Add the notices about the log."""
        self.notices += [*log.notices, *([cut.notice] if cut.notice else [])]
        self.notices += of_ids(log.head(SAMPLE_LEAST, log.context))
        if self.read.skipped:
            self.notices.append(f"Tuning uses the latest {counted(len(self.read.rows), 'row')} of the log.")
        if self.read.rows.varying and any(one.make().takes_features for one in self.chosen):
            left = ", ".join(self.read.rows.varying)
            self.notices.append(
                f"Candidates are compared without the features per decision ({left}); training uses them."
            )
        if self.results.resumed:
            self.notices.append(f"Resuming with {counted(self.results.resumed, 'result')} of an earlier run.")
        for notice in self.notices:
            tell(notice)

    def _progress(self, stage: str, total: int) -> Callable[[int], object]:
        """Return what counts finished tasks of a stage."""
        done = 0

        def add(count: int) -> None:
            nonlocal done
            done += count
            self.watch(stage, done, max(total, done))

        return add

    def answer(self, learning: str, batch_sizes: Sequence[int] | None, floor_cost: float) -> dict[str, Any]:
        """Return the winner and what is known about it."""
        earlier = self.read.rows.at(slice(0, len(self.learn) + len(self.compare)))
        sizes = [rows.stop - rows.start for rows in self.read.rows.by_episode()]
        rehearsals = Rehearsals(earlier, learning, batch_sizes or [int(np.median(sizes))], self.seed)
        contest = Contest(self.learn, self.compare, self.seed)
        baselines = sum(one.policy == BASELINE for one in self.chosen)
        progress = self._progress("compare candidates", rounds(len(self.chosen), baselines))
        scores = contest.run(self.chosen, self.results, self.engine, progress)
        last = finalists(scores)
        winner, rival = last[0].candidate, next(one for one in last if one.candidate.policy == BASELINE).candidate
        pair = [winner] if rival == winner else [winner, rival]
        progress = self._progress("compare exploration", sum(rehearsals.count(one) for one in pair))
        explored = {one: rehearsals.compare(one, self.results, self.engine, progress) for one in pair}
        chosen = {one: choose(found, floor_cost).setting for one, found in explored.items()}
        best = _best_action(contest.held_out)
        held_out = HeldOut.after(earlier, self.final, self.seed)
        judged = {one: self._probabilities(earlier, deployed(one, chosen[one])) for one in pair}
        return {
            "candidate": winner,
            "policy": deployed(winner, chosen[winner]),
            "batch_size": chosen[winner].batch_size,
            "scores": tuple(scores),
            "explored": tuple(explored[winner]),
            "how": rehearsals.how,
            "rows": (len(self.learn), len(self.compare), len(self.final)),
            **_final(held_out, judged[winner], _alternatives(self.final, judged, winner, rival, best)),
        }

    def _probabilities(self, earlier: EncodedRows, policy: Policy) -> Any:
        """Return the probabilities (n, M) in the last episodes of a policy that learned from all earlier ones."""
        return earlier.taught(policy, self.seed).predict_proba(self.final.contexts, self.final.eligible)


def _always(rows: EncodedRows, code: int) -> Any:
    """Return the probabilities of always choosing one action; where it is not eligible, of a uniform choice."""
    mask = ties.eligible_mask(rows.eligible, len(rows), len(rows.labels))
    preferred = np.zeros(mask.shape)
    preferred[:, code] = 1.0
    return ties.argmax_probabilities(preferred, mask)


def _best_action(held_out: HeldOut) -> int:
    """Return the code of the single action with the highest value, if possible one that these rows support."""
    every = [_always(held_out.rows, code) for code in range(len(held_out.rows.labels))]
    known = [code for code, chances in enumerate(every) if held_out.support(chances).verdict != NONE]
    return max(known or range(len(every)), key=lambda code: held_out.estimate(every[code]).value)


def _alternatives(
    rows: EncodedRows, judged: dict[Candidate, Any], winner: Candidate, rival: Candidate, best: int
) -> dict[str, Any]:
    """Return the probabilities of what the winner is compared with, by name; None for the policy that logged."""
    label: Hashable = rows.labels[best]
    found: dict[str, Any] = {"logged": None, f"always {label!r}": _always(rows, best)}
    return found if rival == winner else found | {f"tuned {rival}": judged[rival]}


def _final(held_out: HeldOut, probabilities: Any, alternatives: dict[str, Any]) -> dict[str, Any]:
    """Return the value of the winner with its comparisons, or none where the rows do not support it."""
    support = held_out.support(probabilities)
    if support.verdict == NONE:
        return {"support": support, "value": None, "low": None, "high": None, "comparisons": ()}
    own = held_out.estimate(probabilities)
    made = [
        compared(
            name,
            own,
            own if np.array_equal(other, probabilities) else held_out.estimate(other),
            (support, None if other is None else held_out.support(other)),
        )
        for name, other in alternatives.items()
    ]
    low, high = interval(own, LEVEL)
    return {"support": support, "value": own.value, "low": low, "high": high, "comparisons": tuple(made)}
