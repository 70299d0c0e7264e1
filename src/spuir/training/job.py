"""The steps of a training, and what they keep between them."""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from spuir import __version__
from spuir.bandit import Bandit
from spuir.base.column_drift import Drift
from spuir.base.counting import counted
from spuir.base.hashing import digest
from spuir.base.parameters import parameters_of
from spuir.core.ties import check_floor
from spuir.errors import CatalogueWarning, InputError, SpuirError
from spuir.logs import Cut, Log
from spuir.logs.action_columns import columns_to_read, executed_features
from spuir.logs.formats import Faults
from spuir.logs.temporary import Folder
from spuir.policies import Policy
from spuir.tables.encoder import Encoder
from spuir.training import group, memory, notices
from spuir.training.checkpoint import Checkpoint
from spuir.training.collect import ELIGIBLE, ID_COLUMNS, ROW_COLUMNS, Collect, PartShards, needs_eligible
from spuir.training.engines import WorkEngine
from spuir.training.fold import EpisodeSummary, fold
from spuir.training.scan import LogSample, LogScan, Watcher, first_rows
from spuir.training.sharing import check_folder
from spuir.training.start import TrainedActions

UNSAVED = "Training continues without checkpoints, so an interrupt would lose its progress"
_recording = Lock()
"""Warnings are those of the process: if two trainings recorded them, the first to end would restore what it found, and
the second the recording of the first, for good."""
OPEN_BYTES = 256 * 2**20
"""Memory that open episodes may take before the log is first grouped by episode on disk."""


@dataclass(kw_only=True, eq=False)
class Job:
    """What to learn from which log, and where; its methods are the steps of :func:`train`.

    ``actions`` and ``encoder`` are set when the log was scanned. ``faults`` are the broken rows by part, so that a part
    that is read twice counts once; parts that were grouped count down from −1. ``drift`` is counted by the row of the
    log that a batch begins with.
    """

    log: Log
    cut: Cut
    policy: Policy
    engine: WorkEngine
    seed: int
    watch: Watcher
    tell: Callable[[str], object]
    memory_limit: int | None = None
    told: list[str] = field(default_factory=list[str])
    faults: dict[int, Faults] = field(default_factory=dict[int, Faults])
    drift: dict[int, Drift] = field(default_factory=dict[int, Drift])
    rows_done: int = 0
    propensity: float | None = None
    start: Bandit | None = None
    allow_repeat: bool = True
    actions: TrainedActions = field(default_factory=lambda: TrainedActions([]))
    encoder: Encoder = field(init=False, repr=False)

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
        return first_rows(scan, [*self.log.context, *weights, *varying])

    @property
    def action_columns(self) -> list[str]:
        """The columns of the log with features per decision, and what says which action a value belongs to."""
        return columns_to_read(self.actions.varying, self.log, "training")

    def learn_encoder(self, sample: LogSample, options: Mapping[str, Any]) -> Encoder:
        """Learn the encoder on the sample."""
        contexts = sample.table.select(list(self.log.context))
        try:
            encoder = Encoder.fit(contexts, **options)
        except SpuirError as error:
            raise sample.located(error) from None
        self.add_notices(*notices.of_encoder(encoder), *notices.of_ids(contexts))
        return encoder

    def fix(self, bandit: Bandit, sample: LogSample) -> None:
        """Fix the scales and landmarks of the policy's feature map on the sample."""
        table = sample.table
        weights = table.column("weight").to_numpy() if "weight" in table.schema.names else None
        given: dict[str, Any] = {}
        try:
            contexts = self.encoder.transform(table.select(list(self.log.context)))
            if names := self.actions.varying:
                own = executed_features(table.combine_chunks().to_batches()[0], names, self.actions.labels)
                given["action_features"] = dict(zip(names, own.T, strict=True))
        except SpuirError as error:
            raise sample.located(error) from None
        with _recording, warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", CatalogueWarning)
            bandit.fix(contexts, weights, **given)
        for one in found:
            if issubclass(one.category, CatalogueWarning):
                self.add_notices(f"{one.message}.")
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)

    def settings(self) -> str:
        """Return the digest of everything that the model depends on."""
        policy = {"name": self.policy.name, **parameters_of(self.policy)}
        parts = (
            __version__,
            self.log.fingerprint(),
            repr(self.cut),
            policy,
            self.actions.labels,
            self.encoder.to_dict(),
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
            self.add_notices(f"Resuming after {counted(len(state[1]), 'episode')} from an earlier run.")
            return state
        if checkpoint.exists:
            self.add_notices(f"Starting from the first episode: an earlier run was interrupted, but {reason}.")
        if self.start is not None:
            return self.start.without_encoder(), []
        return Bandit(self.policy, self.actions.for_bandit, self.seed), []

    def group_scattered(self, scan: LogScan, size: memory.ShardSize, place: str | PathLike[str] | None) -> LogScan:
        """Group the log by episode on disk if its episodes are scattered; return the scan of the result."""
        largest = int(scan.sizes.max())
        waiting = scan.open_episodes * size.of_rows(largest, largest)
        most = OPEN_BYTES if self.memory_limit is None else min(OPEN_BYTES, self.memory_limit // 4)
        needed = scan.open_episodes > 2 and waiting > most
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
        sort = group.SortPart(
            cut=self.cut,
            encoder=self.encoder,
            actions=self.actions.labels,
            columns=self.columns,
            keys=scan.keys,
            folder=folder.path,
        )
        grouped, faults = group.group_by_episode(self.log, scan, sort, folder, size.row, self.engine, self.watch)
        self.faults |= {-1 - at: broken for at, broken in enumerate(faults)}
        return grouped

    @property
    def reads_eligible(self) -> bool:
        """Whether what could be chosen makes a difference for learning, and the log says it."""
        return ELIGIBLE in self.log.schema.names and needs_eligible(self.policy)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log to read."""
        carried = [name for name in ROW_COLUMNS if name in self.log.schema.names]
        if self.start is not None and all(name in self.log.schema.names for name in ID_COLUMNS):
            carried += ID_COLUMNS
        if self.reads_eligible:
            carried.append(ELIGIBLE)
        carried += self.action_columns
        return tuple(dict.fromkeys(["action", "reward", *carried, *self.cut.columns, *self.log.context]))

    @property
    def width(self) -> int:
        """The number of columns of a row, those with features of its action among them."""
        return self.encoder.width + len(self.actions.varying)

    def check_memory(self, scan: LogScan, size: memory.ShardSize) -> memory.Forecast:
        """Return the memory forecast; raise if it is above the limit."""
        # Workers may be ahead by one part each and one more, while another is being learned.
        parts = [sum(size.of_rows(one.rows, one.size) for one in part.episodes.values()) for part in scan.parts]
        needed = memory.forecast(
            self.policy,
            len(self.actions.labels),
            self.width,
            largest=int(scan.sizes.max()),
            open_episodes=scan.open_episodes,
            workers=self.engine.workers,
            coming=sum(sorted(parts)[-self.engine.workers - 2 :]),
            sorting=group.SORT_BYTES if isinstance(scan.parts[0].part, group.EpisodeRange) else 0,
        )
        memory.check_fits(needed, self.memory_limit)
        self.add_notices(f"Training needs about {memory.amount(needed.total)} of memory.")
        return needed

    def learn(
        self,
        bandit: Bandit,
        episodes: list[EpisodeSummary],
        scan: LogScan,
        keep_rows: int | None,
        checkpoint: Checkpoint,
    ) -> None:
        """Learn the episodes after those in ``episodes``, and append their summaries; save the state now and then."""
        learned = bandit.n_episodes_
        try:
            for summary in self._collect_and_fold(bandit, scan, keep_rows, len(episodes)):
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
        self, bandit: Bandit, scan: LogScan, keep_rows: int | None, done: int
    ) -> Iterator[EpisodeSummary]:
        """Collect the parts on the engine and fold them, from episode number ``done``."""
        fixed, total = self.policy.fixed(bandit.state_), len(scan.keys)
        # Where the first episode decides the feature map, the others can be collected only after it.
        spans = [range(done, total)] if done or fixed else [range(1), range(1, total)]
        for span in spans:
            collect = Collect(
                bandit=copy(bandit),
                encoder=self.encoder,
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
            yield from fold(bandit, parts, scan, span, self.engine.workers, self.allow_repeat)

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
