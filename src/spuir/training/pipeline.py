"""From a log to a policy: scan the parts, collect their shards on an engine, fold these into a bandit."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import reduce
from operator import add
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from spuir.bandit import Bandit
from spuir.base.process_settings import one_blas_thread
from spuir.logs import Log, open_log
from spuir.policies import Policy
from spuir.tables.encoder import Encoder, check_options
from spuir.training import memory, notices
from spuir.training.checkpoint import Checkpoint, check_writable
from spuir.training.engines import WorkEngine, make_engine
from spuir.training.job import Job
from spuir.training.record import Training, training_record
from spuir.training.scan import Watcher, count_learned, ignore, scan_log
from spuir.training.sharing import check_log
from spuir.training.start import (
    actions_to_train,
    check_propensity,
    column_of,
    episodes_to_learn,
    grown,
    notices_of_actions,
    policy_to_train,
    propensity_of_rows,
    with_catalogue,
    with_column,
)


def train(
    source: Any,
    policy: Policy | str = "auto",
    *,
    batch_size: int | None = None,
    every: str | float | None = None,
    actions: Any = None,
    encoder: Encoder | None = None,
    encoding: Mapping[str, Any] | None = None,
    engine: WorkEngine | str = "local",
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
        Without any of the three, episodes have the size that :func:`spuir.planning.plan` recommends, with a notice.
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
        For a log without propensities and a policy that weighs rows by them: "uniform" (all actions equally likely),
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
    log = source if isinstance(source, Log) else open_log(source, **with_column(opening, column_of(propensity)))
    log, actions = with_catalogue(log, actions)
    start, added = (None, []) if start is None else grown(start, log)
    target = None if out is None else Path(fspath(out))
    if target is not None:
        check_writable(target)
    # An engine that is given is the caller's to end.
    place = make_engine(engine, workers=workers) if isinstance(engine, str) else nullcontext(engine)
    with place as started, one_blas_thread:
        job = Job(
            log=log,
            cut=episodes_to_learn(log, batch_size, every),
            policy=policy_to_train(policy, start),
            engine=started,
            seed=seed,
            start=start,
            allow_repeat=allow_repeat or start is None,
            watch=watch or ignore,
            tell=tell or ignore,
            memory_limit=memory_limit,
        )
        check_propensity(log, job.policy, propensity)
        job.announce()
        check_log(started, log)
        scan = scan_log(log, job.cut, started, job.watch, actions=actions is None or start is not None)
        job.add_notices(*notices.of_keys(scan.keys), *added)
        job.actions = actions_to_train(scan.actions, actions, log, job.policy, start)
        job.add_notices(*notices_of_actions(log, job.policy, job.actions))
        n_actions = len(job.actions.labels)
        job.check_floor(n_actions)
        job.propensity = propensity_of_rows(propensity, n_actions)
        sample = job.sample(scan)
        job.encoder = (encoder if start is None else start.encoder) or job.learn_encoder(sample, encoding or {})
        checkpoint = Checkpoint(target, job.settings())
        bandit, episodes = job.resume(checkpoint)
        if not bandit.n_episodes_:
            job.fix(bandit, sample)
        resumed = len(episodes)
        size = memory.ShardSize.of(job.policy, n_actions, job.width, masks=job.reads_eligible)
        scratch = scratch if scratch is not None or target is None else target.absolute().parent
        scan = job.group_scattered(scan, size, scratch)
        needed = job.check_memory(scan, size)
        if {"sketched", "foldable"} <= job.policy.traits:
            scan = count_learned(scan, started)
        job.learn(bandit, episodes, scan, size.keep_rows, checkpoint)
        bandit = bandit.with_encoder(job.encoder)
        if target is not None:
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
