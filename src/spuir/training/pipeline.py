"""From a log to a policy: look at the parts, sum them on an engine, fold the episodes in order."""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from threadpoolctl import threadpool_limits

from spuir import __version__
from spuir.bandit import Bandit
from spuir.base.parameters import parameters_of
from spuir.base.streams import generator
from spuir.core.ties import TIE
from spuir.errors import InputError, ParameterError, SpuirError
from spuir.logs import Cut, Log, cut_episodes, open_log
from spuir.logs.columns import declaring
from spuir.logs.formats import Faults
from spuir.policies import Policy, as_policy
from spuir.storage.snapshot import is_snapshot
from spuir.tables.arrow import arrow, compute
from spuir.tables.column_encoders import CategoryEncoder as Category
from spuir.tables.encoder import Encoder, check_options
from spuir.training import memory
from spuir.training.checkpoint import Progress, fingerprint
from spuir.training.collect import ROW_COLUMNS, Collect, Portion
from spuir.training.engines import Engine, make_engine
from spuir.training.fold import Fold, Learnt
from spuir.training.group import partition
from spuir.training.scan import Layout, Watcher, lay_out

UNSAVED = "goes on without saving its progress, so that a stop would lose it"
NUMERAL = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
SAVE_SECONDS = 20.0
FEW = 2
OPEN_BYTES = 256 * 2**20
"""Open episodes may take this much before the log is first grouped by episode on disk."""
LEARNING_ROWS = 100_000
"""The most rows of the first episode that the encoder is learnt from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """What training gave.

    Parameters
    ----------
    bandit
        Ready to decide, on raw rows.
    episodes
        A line for each episode.
    notices
        Sentences about how it was done and what was left out.
    needed
        The memory that was foreseen.
    seconds, resumed
        Time spent, and how many episodes an earlier run had learnt already.
    """

    bandit: Bandit
    episodes: tuple[Learnt, ...]
    notices: tuple[str, ...]
    needed: memory.Forecast
    seconds: float
    resumed: int

    @property
    def rows(self) -> int:
        """Rows of all episodes."""
        return sum(line.rows for line in self.episodes)


def train(
    source: Any,
    policy: Policy | str = "puir",
    *,
    batch_size: int | None = None,
    every: str | float | None = None,
    actions: Sequence[Hashable] | None = None,
    encoder: Encoder | None = None,
    encoding: Mapping[str, Any] | None = None,
    engine: Engine | str = "local",
    workers: int | None = None,
    out: str | PathLike[str] | None = None,
    seed: int = 0,
    memory_limit: int | None = None,
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
        An object, or a registered name.
    batch_size, every
        Episodes of so many rows, or of a duration ("hour", "day", "15m"); a column ``episode`` wins over both.
    actions
        The labels in order; None = those in the log, sorted.
    encoder, encoding
        The encoder of the context columns; None learns one on the first episode, with the options in ``encoding``.
    engine, workers
        Where to work: an engine or the name of one ("local", "dask", "spark"), and with how many workers.
    out
        Where to save the model. A run that was killed goes on from what it saved beside it.
    seed
        Of the policy's streams.
    memory_limit
        Bytes that may be used; None = most of what is free. More is refused before anything is learnt.
    watch, tell
        Called with (stage, rows done, rows in all), and with each notice as soon as it is known.

    Notes
    -----
    Each part of the log (a row group, a file) gives partial sums for the episodes in it; partial sums are
    added in the order of the parts, so that the result is the same, bit for bit, for any number of workers and
    whichever of them fail. Policies whose sums depend on the state that acts are learnt in one sequential pass: workers
    read and encode, this process learns, in parallel shards within an episode where sums add up.
    """
    begin = time.perf_counter()
    check_options(encoding or {})
    log = source if isinstance(source, Log) else open_log(source, **opening)
    if not log.context:
        raise InputError("log", "no context columns", "a context has at least one", "name them with --context")
    target = None if out is None else Path(fspath(out))
    if target is not None:
        _check_writable(target)
    with _at(engine, workers) as place, threadpool_limits(limits=1), TemporaryDirectory(prefix="spuir-") as spare:
        job = Job(
            log=log,
            cut=cut_episodes(log, batch_size=batch_size, every=every),
            policy=as_policy(policy),
            engine=place,
            seed=seed,
            watch=watch or _silent,
            tell=tell or _silent,
        )
        for sentence in job.opening_notices():
            job.note(sentence)
        layout = lay_out(log, job.cut, place, job.watch, labels=actions is None)
        labels = list(layout.labels if actions is None else actions)
        floor = job.policy.floor
        if floor * len(labels) > 1 + TIE:
            most = int(1 / floor + TIE)
            job.note(f"with floor={floor} decisions have room for {most} of {len(labels)} actions, and refuse more")
        encoder = encoder or job.learn_encoder(layout, encoding or {})
        progress = None if target is None else Progress(target, job.mark(labels, encoder))
        bandit, learnt = job.take_up(progress, labels)
        resumed = len(learnt)
        keep = job.keep_rows(len(labels), encoder.width)
        job, layout = job.grouped(layout, encoder.width, keep, progress.scratch if progress else Path(spare))
        needed = memory.forecast(
            job.policy,
            len(labels),
            encoder.width,
            keep_rows=keep,
            largest=int(layout.sizes.max()),
            window=layout.window,
            workers=place.workers,
        )
        memory.check_fits(needed, memory_limit)
        job.note(f"needs {needed}")
        saved, told = time.monotonic(), bandit.n_episodes_
        try:
            for line in job.fold(bandit, layout, encoder, keep, resumed):
                learnt.append(replace(line, key=job.cut.named(line.key)))
                told = bandit.n_episodes_
                if progress is not None and time.monotonic() - saved > SAVE_SECONDS:
                    job.save(progress, bandit, learnt)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            # Between two lines the bandit has learnt what the lines tell; within one it may be ahead of them.
            if progress is not None and learnt and bandit.n_episodes_ == told:
                job.save(progress, bandit, learnt)
            raise
        job.check_learnt(bandit, learnt)
        bandit = bandit.with_encoder(encoder)
        if target is not None and progress is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            bandit.save(target)
            progress.clear()
    return Training(
        bandit=bandit,
        episodes=tuple(learnt),
        notices=tuple(job.notices),
        needed=needed,
        seconds=time.perf_counter() - begin,
        resumed=resumed,
    )


def _check_writable(out: Path) -> None:
    """Refuse, before hours of work, a place where no model can be saved."""
    if not out.name or out.is_dir():
        raise ParameterError("out", out, "a model is one file", "name a file, such as model.spuir")
    try:
        taken = out.exists() and out.stat().st_size and not is_snapshot(out)
        out.with_name(out.name + ".progress").exists()
    except (OSError, RuntimeError) as error:
        raise ParameterError("out", out, f"it cannot be written ({error})", "name another file") from None
    if taken or (out.exists() and not out.is_file()):
        raise ParameterError("out", out, "it is there and no saved model", "name another file, or remove that one")
    folder = next(above for above in out.absolute().parents if above.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        rule = "is no folder" if not folder.is_dir() else "cannot be written to"
        raise ParameterError("out", out, f"{str(folder)!r} {rule}", "save the model elsewhere")


def _at(engine: Engine | str, workers: int | None) -> AbstractContextManager[Engine]:
    """Return an engine by name, ended afterwards, or the caller's own, left as it is."""
    return make_engine(engine, workers=workers) if isinstance(engine, str) else nullcontext(engine)


def _silent(*_: object) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """What is to be learnt from which log, where; the steps of :func:`train`."""

    log: Log
    cut: Cut
    policy: Policy
    engine: Engine
    seed: int
    watch: Watcher
    tell: Callable[[str], object]
    notices: list[str] = field(default_factory=list[str])
    faults: dict[int, Faults] = field(default_factory=dict[int, Faults])
    """Rows that were left out, by part, so that a part that is read twice counts once; −1: while grouping."""

    def note(self, sentence: str) -> None:
        """Keep a notice and tell it."""
        self.notices.append(sentence)
        self.tell(sentence)

    def save(self, progress: Progress, bandit: Bandit, learnt: Sequence[Learnt]) -> None:
        """Save the state; a run for which that fails goes on, and says so the first time."""
        try:
            progress.save(bandit, learnt)
        except (OSError, SpuirError) as error:
            if not any(sentence.startswith(UNSAVED) for sentence in self.notices):
                self.note(f"{UNSAVED}: {error}")

    def opening_notices(self) -> list[str]:
        """Return what the log, its cut and the policy give reason to say."""
        found = [*self.log.notices]
        if self.cut.notice:
            found.append(self.cut.notice)
        if "foldable" not in self.policy.traits:
            how = "in parallel shards" if "additive" in self.policy.traits else "in one go"
            found.append(
                f"{self.policy.name} learns from sums that depend on the state which acts: one sequential pass, "
                f"in which parts are read in parallel and each episode is learnt {how}"
            )
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the log that are read."""
        carried = [name for name in ROW_COLUMNS if name in self.log.schema.names]
        return tuple(dict.fromkeys(["action", "reward", *carried, *self.cut.columns, *self.log.context]))

    def mark(self, labels: Sequence[Hashable], encoder: Encoder) -> str:
        """Return a mark of everything that the model depends on."""
        policy = {"name": self.policy.name, **parameters_of(self.policy)}
        return fingerprint(
            __version__, self.log.fingerprint(), repr(self.cut), policy, list(labels), encoder.to_dict(), self.seed
        )

    def take_up(self, progress: Progress | None, labels: Sequence[Hashable]) -> tuple[Bandit, list[Learnt]]:
        """Return the bandit and the table that an earlier run left, else new ones."""
        try:
            left = None if progress is None else progress.load()
            reason = "had other settings or another state of the log"
        except SpuirError as unreadable:
            left, reason = None, f"what it saved cannot be read ({unreadable})"
        if left is not None:
            self.note(f"goes on after {len(left[1]):,} episodes that an earlier run learnt")
            return left
        if progress is not None and progress.begun:
            self.note(f"begins anew: an earlier run was broken off, but {reason}")
        return Bandit(self.policy, labels, self.seed), []

    def check_learnt(self, bandit: Bandit, learnt: Sequence[Learnt]) -> None:
        """Tell of rows without a reward, and refuse a log in which no row has one."""
        silent = sum(line.silent for line in learnt)
        if silent:
            self.note(f"{silent:,} rows without a reward were left out")
        if not bandit.n_episodes_:
            rule = "a policy is learnt from rewards"
            remedy = "join the rewards to the decisions first (--rewards), and let some rows weigh more than 0"
            raise InputError("log", "no row with a reward and a weight", rule, remedy)

    def keep_rows(self, actions: int, width: int) -> int | None:
        """Return up to how many rows an episode is smaller as rows than as sums; None where it is kept as rows."""
        policy = self.policy
        if "foldable" not in policy.traits:
            return None
        return memory.table_bytes(actions, policy.width(width)) // memory.row_bytes(width)

    def learn_encoder(self, layout: Layout, options: Mapping[str, Any]) -> Encoder:
        """Learn the encoder on the first rows of the first episode."""
        pa = arrow()
        batches, rows = list[Any](), 0
        for batch in self._first_episode(layout):
            batches.append(batch)
            rows += batch.num_rows
            if rows >= LEARNING_ROWS:
                break
        table = pa.Table.from_batches(batches).slice(0, LEARNING_ROWS)
        encoder = Encoder.learn(table.select(list(self.log.context)), **options)
        for part in (part for source in encoder.sources for part in source.parts):
            if isinstance(part, Category) and part.levels and all(NUMERAL.fullmatch(level) for level in part.levels):
                self.note(
                    f"column {part.column!r} is text and taken as categories, though it looks like numbers; "
                    f"{declaring(part.column, 'float64')} reads it as such, or names the first cell that is none"
                )
        return encoder

    def _first_episode(self, layout: Layout) -> Iterator[Any]:
        """Yield the rows of the first episode, with their context columns."""
        pa = arrow()
        names = tuple(dict.fromkeys([*self.cut.columns, *self.log.context]))
        for part, start, places in zip(layout.parts, layout.starts, layout.places, strict=True):
            if layout.keys[0] not in places:
                continue
            at = start
            for batch in part.read(names):
                keys = self.cut.keys(batch, at)
                at += batch.num_rows
                yield batch.filter(compute().equal(keys, pa.scalar(layout.keys[0], keys.type)))

    def grouped(self, layout: Layout, width: int, keep: int | None, folder: Path) -> "tuple[Job, Layout]":
        """Return job and layout such that few episodes are open at once, if need be of a log grouped on disk."""
        rows = int(layout.sizes.max())
        share = memory.row_bytes(width) * (rows if keep is None else min(rows, keep + 1))
        if layout.window <= FEW or layout.window * share <= OPEN_BYTES:
            return self, layout
        self.note(f"up to {layout.window:,} episodes would be open at once: rows are first grouped by episode on disk")
        faults = self.faults[-1] = Faults()
        log = partition(self.log, self.cut, layout, self.columns, folder, self.watch, faults)
        return replace(self, log=log), lay_out(log, self.cut, self.engine, self.watch, labels=False)

    def fold(self, bandit: Bandit, layout: Layout, encoder: Encoder, keep: int | None, done: int) -> Iterator[Learnt]:
        """Sum the parts on the engine and learn episode after episode from number ``done`` on."""
        fold, rows = Fold(bandit, layout, self.engine.workers, done), 0
        for episodes in self._spans(encoder.width, done, len(layout.keys)):
            collect = Collect(
                # A fresh bandit draws the same feature map from the same seed, and is lighter to send.
                bandit=Bandit(self.policy, bandit.actions, self.seed) if self._fixed(encoder.width) else copy(bandit),
                encoder=encoder,
                cut=self.cut,
                columns=self.columns,
                keep_rows=keep if episodes.stop > 1 else None,
                episodes=episodes,
            )
            chosen = [at for at, here in enumerate(layout.places) if any(p.episode in episodes for p in here.values())]
            portions = (Portion(layout.parts[at], layout.starts[at], layout.places[at]) for at in chosen)
            for at, harvest in zip(chosen, self.engine.map(collect, portions), strict=True):
                yield from fold.take(at, harvest, episodes.stop)
                self.faults[at] = harvest.faults
                rows += harvest.rows
                self.watch("learn", rows, layout.rows)
        self._report(list(self.faults.values()))

    def _fixed(self, width: int) -> bool:
        """Tell whether the feature map is known before the first episode."""
        return self.policy.fixed(self.policy.init(1, width, generator(self.seed, "init")))

    def _spans(self, width: int, done: int, total: int) -> list[range]:
        """Return the episodes to sum in one go: all, or the first alone where it fixes the feature map."""
        if done or self._fixed(width):
            return [range(done, total)]
        return [range(1), range(1, total)]

    def _report(self, faults: Sequence[Faults]) -> None:
        """Tell of rows that the readers left out."""
        broken = sum(one.count for one in faults)
        if broken:
            first = min(next(one.first for one in faults if one.first), key=lambda fault: fault.line)
            self.note(
                f"{broken:,} broken rows were left out, the first in {first.path}, line {first.line}: {first.why}"
            )
        skipped = Counter[str]()
        for one in faults:
            skipped.update(one.skipped)
        for why, count in sorted(skipped.items()):
            self.note(f"{count:,} rows were left out: {why}")
