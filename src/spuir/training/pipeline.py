"""From a log to a policy: scan the parts, collect their shards on an engine, fold these into a bandit."""

import json
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from spuir import __version__
from spuir.bandit import Bandit
from spuir.base.column_drift import Drift
from spuir.base.hashing import digest
from spuir.base.parameters import parameters_of
from spuir.core.ties import check_floor
from spuir.errors import InputError, SpuirError
from spuir.logs import Cut, Log, cut_episodes, open_log
from spuir.logs.action_columns import columns_of, executed_features
from spuir.logs.database import Folder
from spuir.logs.formats import Faults
from spuir.policies import Policy
from spuir.tables.encoder import Encoder, check_options
from spuir.training import group, memory, notices
from spuir.training.checkpoint import Checkpoint, check_writable
from spuir.training.collect import ID_COLUMNS, ROW_COLUMNS, Collect, PartShards
from spuir.training.engines import Engine, make_engine
from spuir.training.fold import EpisodeSummary, fold
from spuir.training.propensities import check_propensity, propensity_of_rows, with_column
from spuir.training.record import Training, training_record
from spuir.training.scan import LogSample, LogScan, Watcher, count_learned, first_rows, scan_log
from spuir.training.sharing import check_folder, check_log
from spuir.training.start import (
    TrainedActions,
    actions_to_train,
    grown,
    notices_of_actions,
    policy_to_train,
    with_catalogue,
)

UNSAVED = "Training continues without checkpoints, so that an interrupt would lose its progress"
OPEN_BYTES = 256 * 2**20
"""Memory that open episodes may take before the log is first grouped by episode on disk."""


def train(
    source: Any,
    policy: Policy | str = "auto",
    *,
    batch_size: int | None = None,
    every: str | float | None = None,
    actions: Any = None,
    encoder: Encoder | None = None,
    encoding: Mapping[str, Any] | None = None,
    engine: Engine | str = "local",
    workers: int | None = None,
    out: str | PathLike[str] | None = None,
    seed: int = 0,
    memory_limit: int | None = None,
    propensity: str | float | None = None,
    scratch: str | PathLike[str] | None = None,
    start: Bandit | None = None,
    allow_repeat: bool = False,
    watch: Watcher | None = None,
    tell: Callable[[str], object] | None = None,
    **opening: Any,
) -> Training:
    """Learn a policy from a log, episode by episode, as ``partial_fit`` would with each episode in memory.

    Parameters
    ----------
    source, **opening
        A log, or what :func:`spuir.logs.open_log` takes to open one.
    policy
        An object, or a registered name: :func:`policy_for_logs` makes the policy then.
    batch_size, every
        Rows of an episode, or its duration ("hour", "day", "15m"); a column ``episode`` takes precedence over both.
    actions
        The labels in order, or the catalogue of the actions with their features: a path or a table, as
        :func:`spuir.logs.action_table` takes it. None = the catalogue of the log, or the labels in it, sorted.
    encoder, encoding
        The encoder of the context columns; None learns one on the first episodes (at least 10,000 rows, or all, and at
        most 100,000), with the options in ``encoding``. The policy's feature map is fixed on the same rows.
    engine, workers
        Where to work: an engine or the name of one ("local", "dask", "spark"), and the number of workers.
    out
        Where to save the model. An interrupted run leaves a checkpoint beside it, from which the next run resumes.
    seed
        Seed of the policy.
    memory_limit
        Memory limit in bytes; None = 80 % of free memory. A training that needs more is refused before it starts.
    propensity
        For a log without propensities and a policy that weighs rows by them: "uniform" (every action was as likely),
        "own" (the policy's own at its state then), a number, or the name of a column. None = the log has them.
    scratch
        Folder for temporary files, which all workers must share; None = beside ``out``, or that of the system.
    start
        A trained bandit to continue, which stays as it is: its policy, actions, encoder and seed take the place of
        those given here. None = a new one.
    allow_repeat
        Whether to learn an episode that ``start`` has learned before; such an episode is refused otherwise.
    watch, tell
        Called with (stage, rows done, rows in total), and with each notice as soon as it is known.

    Notes
    -----
    Each part of the log (a row group, a file) gives a shard of each episode in it. Shards are added in the order of the
    parts, so that the result is the same, bit for bit, for any number of workers and whichever of them fail. Policies
    whose sums depend on the acting state are learned in one sequential pass: workers read and encode, this process
    learns, in parallel shards within an episode where sums add up.

    Examples
    --------
    >>> rows = {"age": [31, 58, 40, 22], "action": ["mail", "call"] * 2, "reward": [0.0, 1.0, 0.0, 1.0]}
    >>> trained = spuir.training.train(rows, batch_size=2)
    >>> trained.bandit.n_episodes_
    2
    >>> spuir.training.train(rows | {"age": [1, 2, 3, 4]}, batch_size=4, start=trained.bandit).bandit.n_episodes_
    3
    """
    begin = time.perf_counter()
    check_options(encoding or {})
    log = source if isinstance(source, Log) else open_log(source, **with_column(opening, propensity))
    log, actions = with_catalogue(log, actions)
    start, added = (None, []) if start is None else grown(start, log)
    if not log.context:
        raise InputError("log", "no context columns", "a context has at least one", "name them with --context")
    target = None if out is None else Path(fspath(out))
    if target is not None:
        check_writable(target)
    # An engine that is given is the caller's to end.
    place = make_engine(engine, workers=workers) if isinstance(engine, str) else nullcontext(engine)
    with place as started, threadpool_limits(limits=1):
        job = Job(
            log=log,
            cut=cut_episodes(log, batch_size=batch_size, every=every),
            policy=policy_to_train(policy, start),
            engine=started,
            seed=seed,
            start=start,
            allow_repeat=allow_repeat or start is None,
            watch=watch or _ignore,
            tell=tell or _ignore,
        )
        check_propensity(log, job.policy, propensity)
        job.announce()
        check_log(started, log)
        scan = scan_log(log, job.cut, started, job.watch, actions=actions is None or start is not None)
        job.add_notices(*notices.of_keys(scan.keys), *added)
        job.actions = actions_to_train(scan.actions, actions, log, job.policy, start)
        job.add_notices(*notices_of_actions(log, job.policy, job.actions))
        labels, varying = job.actions.labels, len(job.actions.varying)
        job.check_floor(len(labels))
        job.propensity = propensity_of_rows(propensity, len(labels))
        sample = job.sample(scan)
        encoder = encoder if start is None else start.encoder
        encoder = encoder or job.learn_encoder(sample, encoding or {})
        checkpoint = Checkpoint(target, job.settings(labels, encoder))
        bandit, episodes = job.resume(checkpoint)
        if not bandit.n_episodes_:
            job.fix(bandit, encoder, sample)
        resumed = len(episodes)
        size = memory.ShardSize.of(job.policy, len(labels), encoder.width + varying)
        scratch = scratch if scratch is not None or target is None else target.absolute().parent
        scan = job.group_scattered(scan, size, encoder, labels, scratch, memory_limit)
        needed = job.check_memory(scan, len(labels), encoder.width + varying, size, memory_limit)
        if {"sketched", "foldable"} <= job.policy.traits:
            scan = count_learned(scan, job.cut, started)
        job.learn(bandit, episodes, scan, encoder, size.keep_rows, checkpoint)
        bandit = bandit.with_encoder(encoder)
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            rows = sum(summary.rows for summary in episodes)
            bandit.save(target, training=training_record(bandit, log, job.cut, rows, start))
            checkpoint.clear()
    return Training(
        bandit=bandit,
        episodes=tuple(episodes),
        notices=tuple(job.told),
        needed=needed,
        seconds=time.perf_counter() - begin,
        resumed=resumed,
        drift=reduce(add, job.drift.values()) if job.drift else None,
    )


def _ignore(*_: object) -> None:
    """Ignore progress or notices."""


@dataclass(kw_only=True, eq=False)
class Job:
    """What to learn from which log, and where; its methods are the steps of :func:`train`.

    ``faults`` are the broken rows by part, so that a part that is read twice counts once; parts that were
    grouped count down from −1. ``drift`` is counted by the row of the log that a batch begins with.
    """

    log: Log
    cut: Cut
    policy: Policy
    engine: Engine
    seed: int
    watch: Watcher
    tell: Callable[[str], object]
    told: list[str] = field(default_factory=list[str])
    faults: dict[int, Faults] = field(default_factory=dict[int, Faults])
    drift: dict[int, Drift] = field(default_factory=dict[int, Drift])
    rows_done: int = 0
    propensity: float | None = None
    start: Bandit | None = None
    allow_repeat: bool = True
    actions: TrainedActions = field(default_factory=lambda: TrainedActions([]))

    def add_notices(self, *sentences: str) -> None:
        """Keep some notices and pass them on."""
        for sentence in sentences:
            self.told.append(sentence)
            self.tell(sentence)

    def announce(self) -> None:
        """Add the notices about the log, its cut and the policy."""
        cut = [self.cut.notice] if self.cut.notice else []
        self.add_notices(*self.log.notices, *cut, *notices.of_policy(self.policy))

    def check_floor(self, actions: int) -> None:
        """Raise if the floor of the policy does not allow so many actions; a notice where not all are eligible."""
        try:
            check_floor(self.policy.floor, np.ones((1, actions), np.bool_))
        except InputError as error:
            if "eligible" not in self.log.schema.names:
                raise
            self.add_notices(str(error))

    def sample(self, scan: LogScan) -> LogSample:
        """Return the contexts, and what else there is to fix the feature map on, of the first episodes."""
        weights = ["weight"] if "weight" in self.log.schema.names else []
        varying = ["action", *self.action_columns] if self.actions.varying else []
        return first_rows(scan, self.cut, [*self.log.context, *weights, *varying])

    @property
    def action_columns(self) -> list[str]:
        """The columns of the log with features per decision, and what says which action a value belongs to."""
        return columns_of(self.actions.varying, self.log, "training")

    def learn_encoder(self, sample: LogSample, options: Mapping[str, Any]) -> Encoder:
        """Learn the encoder on the sample."""
        try:
            encoder = Encoder.learn(sample.table.select(list(self.log.context)), **options)
        except SpuirError as error:
            raise sample.with_source(error) from None
        self.add_notices(*notices.of_encoder(encoder))
        return encoder

    def fix(self, bandit: Bandit, encoder: Encoder, sample: LogSample) -> None:
        """Fix the scales and landmarks of the policy's feature map on the sample."""
        table = sample.table
        weights = table.column("weight").to_numpy() if "weight" in table.schema.names else None
        given: dict[str, Any] = {}
        try:
            contexts = encoder.encode(table.select(list(self.log.context)))
            if names := self.actions.varying:
                own = executed_features(table.combine_chunks().to_batches()[0], names, self.actions.labels)
                given["action_features"] = dict(zip(names, own.T, strict=True))
        except SpuirError as error:
            raise sample.with_source(error) from None
        bandit.fix(contexts, weights, **given)

    def settings(self, labels: Sequence[Hashable], encoder: Encoder) -> str:
        """Return the digest of everything that the model depends on."""
        policy = {"name": self.policy.name, **parameters_of(self.policy)}
        parts = (
            __version__,
            self.log.fingerprint(),
            repr(self.cut),
            policy,
            list(labels),
            encoder.to_dict(),
            self.seed,
            self.propensity,
            None if self.start is None else (self.start.version_, self.start._seed),
        )
        return digest(json.dumps(parts, sort_keys=True, default=repr))

    def resume(self, checkpoint: Checkpoint) -> tuple[Bandit, list[EpisodeSummary]]:
        """Return the bandit and the episodes of an earlier run, else a new bandit."""
        reason = "it had other settings or another state of the log"
        try:
            state = checkpoint.load()
        except SpuirError as error:
            state, reason = None, f"its checkpoint cannot be read ({error})"
        if state is not None:
            self.add_notices(f"Resuming after {len(state[1]):,} episodes from an earlier run.")
            return state
        if checkpoint.exists:
            self.add_notices(f"Starting from the first episode: an earlier run was interrupted, but {reason}.")
        if self.start is not None:
            return self.start.without_encoder(), []
        return Bandit(self.policy, self.actions.for_bandit, self.seed), []

    def group_scattered(
        self,
        scan: LogScan,
        size: memory.ShardSize,
        encoder: Encoder,
        labels: Sequence[Hashable],
        place: str | PathLike[str] | None,
        limit: int | None,
    ) -> LogScan:
        """Group the log by episode on disk if its episodes are scattered; return the scan of the result."""
        largest = int(scan.sizes.max())
        waiting = scan.open_episodes * size.of_rows(largest, largest)
        needed = scan.open_episodes > 2 and waiting > min(OPEN_BYTES, OPEN_BYTES if limit is None else limit // 4)
        if self.cut.kind == "size" or not (needed or group.pays(scan)):
            return scan
        if place is not None:
            Path(place).mkdir(parents=True, exist_ok=True)
        folder = Folder(place)
        try:
            check_folder(self.engine, folder)
        except InputError as error:
            if needed:
                raise
            self.add_notices(f"Rows are not grouped by episode first, which would be faster: {error}")
            return scan
        many = f"Up to {scan.open_episodes:,} episodes would be open at once"
        self.add_notices(f"{many}: grouping rows by episode on disk.")
        given: dict[str, Any] = {"cut": self.cut, "encoder": encoder, "actions": labels, "columns": self.columns}
        sort = group.SortPart(**given, keys=scan.keys, folder=folder.path)
        grouped, faults = group.group_by_episode(self.log, scan, sort, folder, size.row, self.engine, self.watch)
        self.faults |= {-1 - at: broken for at, broken in enumerate(faults)}
        return grouped

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log to read."""
        carried = [name for name in ROW_COLUMNS if name in self.log.schema.names]
        if self.start is not None and all(name in self.log.schema.names for name in ID_COLUMNS):
            carried += ID_COLUMNS
        carried += self.action_columns
        return tuple(dict.fromkeys(["action", "reward", *carried, *self.cut.columns, *self.log.context]))

    def check_memory(
        self, scan: LogScan, actions: int, width: int, size: memory.ShardSize, limit: int | None
    ) -> memory.Forecast:
        """Return the memory forecast; raise if it is above the limit."""
        # Workers may be ahead by one part each and one more, while another is being learned.
        parts = [sum(size.of_rows(one.rows, one.size) for one in part.episodes.values()) for part in scan.parts]
        needed = memory.forecast(
            self.policy,
            actions,
            width,
            largest=int(scan.sizes.max()),
            open_episodes=scan.open_episodes,
            workers=self.engine.workers,
            coming=sum(sorted(parts)[-self.engine.workers - 2 :]),
            sorting=group.SORT_BYTES if isinstance(scan.parts[0].part, group.EpisodeRange) else 0,
        )
        memory.check_fits(needed, limit)
        self.add_notices(f"Training needs {needed}.")
        return needed

    def learn(
        self,
        bandit: Bandit,
        episodes: list[EpisodeSummary],
        scan: LogScan,
        encoder: Encoder,
        keep_rows: int | None,
        checkpoint: Checkpoint,
    ) -> None:
        """Learn the episodes after those in ``episodes``, and append their summaries; save the state now and then."""
        learned = bandit.n_episodes_
        try:
            for summary in self._collect_and_fold(bandit, scan, encoder, keep_rows, len(episodes)):
                episodes.append(summary)
                learned = bandit.n_episodes_
                if checkpoint.due:
                    self._save(checkpoint, bandit, episodes)
        except KeyboardInterrupt:
            # Between two summaries the bandit has learned what these say; within one it may be ahead of them.
            if episodes and bandit.n_episodes_ == learned:
                self._save(checkpoint, bandit, episodes)
            raise
        self.add_notices(*notices.of_faults(self.faults.values()), *notices.of_episodes(episodes))
        self.add_notices(*notices.of_drift(self.drift))
        if not bandit.n_episodes_:
            rule = "a policy is learned from rewards"
            remedy = "join the rewards to the decisions first (--rewards), and give some rows a weight above 0"
            raise InputError("log", "no row with a reward and a weight", rule, remedy)

    def _collect_and_fold(
        self, bandit: Bandit, scan: LogScan, encoder: Encoder, keep_rows: int | None, done: int
    ) -> Iterator[EpisodeSummary]:
        """Collect the parts on the engine and fold them, from episode number ``done``."""
        fixed, total = self.policy.fixed(bandit.state_), len(scan.keys)
        # Where the first episode decides the feature map, the others can be collected only after it.
        spans = [range(done, total)] if done or fixed else [range(1), range(1, total)]
        for span in spans:
            collect = Collect(
                bandit=copy(bandit),
                encoder=encoder,
                cut=self.cut,
                columns=self.columns,
                keep_rows=keep_rows if span.stop > 1 else None,
                episodes=span,
                propensity=self.propensity,
                learned=0 if self.start is None else self.start.n_episodes_,
                varying=self.actions.varying,
            )
            chosen = [at for at, part in enumerate(scan.parts) if any(e.number in span for e in part.episodes.values())]
            results = self.engine.map(collect, (scan.parts[at] for at in chosen))
            parts = self._watched(zip(chosen, results, strict=True), scan.rows)
            yield from fold(bandit, parts, scan, self.cut, span, self.engine.workers, self.allow_repeat)

    def _watched(self, parts: Iterable[tuple[int, PartShards]], total: int) -> Iterator[tuple[int, PartShards]]:
        """Yield the parts, and report each when its episodes are learned."""
        for at, part in parts:
            yield at, part
            self.faults[at] = part.faults
            self.drift |= part.drift
            self.rows_done += part.rows
            self.watch("learn", self.rows_done, total)

    def _save(self, checkpoint: Checkpoint, bandit: Bandit, episodes: Sequence[EpisodeSummary]) -> None:
        """Save the state; if that fails, training continues, with a notice the first time."""
        try:
            checkpoint.save(bandit, episodes)
        except (OSError, SpuirError) as error:
            if not any(sentence.startswith(UNSAVED) for sentence in self.told):
                self.add_notices(f"{UNSAVED}: {error}")
