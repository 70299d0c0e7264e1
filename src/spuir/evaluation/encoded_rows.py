"""The rows of a log in memory, encoded once, for everything that learns from them many times: replay and tuning."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from spuir.bandit import Bandit
from spuir.base.pairs import Pairs
from spuir.base.records import Codes, Floats, Mask
from spuir.core import ties
from spuir.errors import InputError
from spuir.evaluation.logged_rows import EvaluationLog, LoggedRows, refuse_without_exploration
from spuir.logs import Cut, Log, open_log
from spuir.logs.action_columns import columns_to_read, number_columns, offered_features
from spuir.logs.eligible_masks import holds_masks
from spuir.logs.id_hashes import Hashes
from spuir.policies import Policy
from spuir.tables.arrow import pa
from spuir.tables.encoder import Encoder
from spuir.training.scan import SAMPLE_MOST
from spuir.training.start import episodes_to_learn

ROWS = 200_000
"""The most rows that are kept, the latest of the log."""
ENCODING: Mapping[str, Any] = {"scale": True, "intercept": True}
"""Options of the encoder, unless others are given."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedRows:
    """Rows of a log in the order of their episodes, each column (n,) unless it says otherwise.

    Parameters
    ----------
    contexts
        (n, d) encoded contexts.
    actions, rewards, propensities, weights
        Executed actions as codes, rewards, probabilities of the executed actions, and row weights.
    episodes
        Numbers of the episodes, never decreasing.
    labels
        The labels of the M actions.
    eligible
        (n, M) mask of what could be chosen; None = every action.
    units
        Hashes of what rows belong together, None where every row is on its own.
    catalogue
        Data frame of the features of the M actions, in the order of their labels; None where the log has none.
    offered, varying
        Pairs of rows and eligible actions with their features at each decision, and the names of these features; None
        where the log has none.
    """

    contexts: Floats
    actions: Codes
    rewards: Floats
    propensities: Floats
    weights: Floats
    episodes: Codes
    labels: tuple[Hashable, ...]
    eligible: Mask | None = None
    units: Hashes | None = None
    catalogue: Any = None
    offered: Pairs | None = None
    varying: tuple[str, ...] = ()

    @classmethod
    def read(
        cls, source: Any, *, batch_size: int | None = None, every: str | float | None = None, **opening: Any
    ) -> "EncodedRows":
        """Return the latest rows of a log, with scaled columns and a constant one.

        Parameters
        ----------
        source, **opening
            A log with propensities, or what :func:`spuir.logs.open_log` takes to open one.
        batch_size, every
            Rows or duration of an episode, as in ``train``.
        """
        log = source if isinstance(source, Log) else open_log(source, **opening)
        return read_rows(log, episodes_to_learn(log, batch_size, every), ENCODING).rows

    def __len__(self) -> int:
        """Return n."""
        return len(self.actions)

    def at(self, chosen: Any) -> "EncodedRows":
        """Return some rows, given by a slice, a mask or their numbers."""
        kept = {"labels": self.labels, "catalogue": self.catalogue, "varying": self.varying}
        columns = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in kept}
        picked: dict[str, Any] = {name: column[chosen] for name, column in columns.items() if column is not None}
        return EncodedRows(**kept, **picked)

    def learnable(self, chosen: Any) -> dict[str, Any]:
        """Return some rows as the arguments of ``partial_fit``."""
        unit = bool((self.weights[chosen] == 1.0).all())
        return {
            "X": self.contexts[chosen],
            "actions": self.actions[chosen],
            "rewards": self.rewards[chosen],
            "propensities": self.propensities[chosen],
            "sample_weight": None if unit else self.weights[chosen],
            "eligible": None if self.eligible is None else self.eligible[chosen],
        }

    def bandit(self, policy: Policy, seed: int) -> Bandit:
        """Return a bandit of action codes that has learned nothing; with the catalogue, if the policy reads one."""
        described = policy.takes_features and self.catalogue is not None
        return Bandit(policy, self.catalogue if described else len(self.labels), seed)

    def executed_features(self, chosen: Any) -> dict[str, Floats]:
        """Return the features per decision of the executed actions of some rows, by name."""
        pairs = None if self.offered is None else self.offered[chosen]
        if pairs is None or pairs.features is None:
            return {}
        return dict(zip(self.varying, pairs.features[pairs.find(self.actions[chosen])].T, strict=True))

    def offered_features(self, chosen: Any) -> dict[str, Any]:
        """Return the features per decision of the eligible actions of some rows, as a long table."""
        pairs = None if self.offered is None else self.offered[chosen]
        if pairs is None or pairs.features is None:
            return {}
        return {"row": pairs.rows, "action": pairs.codes, **dict(zip(self.varying, pairs.features.T, strict=True))}

    def by_episode(self) -> Iterator[slice]:
        """Yield the rows of each episode."""
        edges = np.flatnonzero(np.diff(self.episodes)) + 1
        bounds = [0, *edges.tolist(), len(self)] if len(self) else []
        return map(slice, bounds[:-1], bounds[1:])

    def taught(self, policy: Policy, seed: int) -> Bandit:
        """Return a bandit of action codes that has learned these rows, episode by episode."""
        bandit = self.bandit(policy, seed)
        for rows in self.by_episode():
            bandit.partial_fit(**self.learnable(rows))
        return bandit

    def predicted_by(self, bandit: Bandit) -> Floats:
        """Return the rewards (n, M) that a bandit of action codes estimates for these contexts."""
        policy, every = bandit.policy_, ties.eligible_mask(None, len(self), len(self.labels))
        return policy.table(bandit.state_, self.contexts, every).means

    def split(self, *shares: float) -> "list[EncodedRows]":
        """Return consecutive pieces of whole episodes with about these shares of the rows, the last one the rest.

        Raises
        ------
        InputError
            There are fewer episodes than pieces.
        """
        ends = np.array([rows.stop for rows in self.by_episode()])
        pieces = len(shares) + 1
        if len(ends) < pieces:
            rule = f"at least {pieces} are needed, to learn from the earlier and to compare on the later ones"
            remedy = "cut the log into more (--batch-size, --every)"
            raise InputError("log", f"{len(ends)} episode{'s' * (len(ends) != 1)}", rule, remedy)
        cuts, first = [0], 0
        for place, share in enumerate(np.cumsum(shares)):
            last = len(ends) - (pieces - 1 - place)  # so that every later piece has an episode
            at = min(max(int(np.argmin(np.abs(ends - share * len(self)))), first), last - 1)
            cuts.append(int(ends[at]))
            first = at + 1
        return [self.at(slice(start, stop)) for start, stop in zip(cuts, [*cuts[1:], len(self)], strict=True)]


class ReadRows(NamedTuple):
    """What was read of a log: its latest rows, the encoder of their contexts, and how many rows were left out."""

    rows: EncodedRows
    encoder: Encoder
    skipped: int


def read_rows(log: Log, cut: Cut, encoding: Mapping[str, Any], *, most: int = ROWS, uniform: bool = False) -> ReadRows:
    """Read and encode the latest rows of a log.

    Parameters
    ----------
    log, cut
        The log, and how episodes are cut.
    encoding
        Options of the encoder, which is learned on the first 100,000 rows of the log.
    most
        How many rows to keep at most.
    uniform
        Whether to take 1/(number of eligible actions) for propensities, whatever the log says.
    """
    numbers, listed = number_columns(log)[0], "eligible" in log.schema.names
    names = tuple(name for name in numbers if listed and pa.types.is_list(log.schema.field(f"action.{name}").type))
    ignored = ("propensity",) if uniform else ()
    offered = tuple(columns_to_read(names, log, "replay"))
    source = EvaluationLog(log=log, cut=cut, context=log.context, ignored=ignored, offered=offered)
    if listed and holds_masks(log.schema.field("eligible")):
        for _ in source:  # the order of a mask is known when all labels are
            pass
    encoder = Encoder.fit(_sample(source, uniform), **encoding)
    kept, count, total = list[tuple[LoggedRows, Floats]](), 0, 0
    for block in source:
        kept.append((block, encoder.transform(block.table)))
        count, total = count + len(block), total + len(block)
        while count - len(kept[0][0]) >= most:
            count -= len(kept.pop(0)[0])
    keys = list(source._episodes)
    ranks = np.empty(len(keys), np.intp)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    rows = replace(
        _joined(kept, source, ranks, uniform),
        catalogue=source.catalogue(),
        offered=_offered([block for block, _ in kept], source, names) if names else None,
        varying=names,
    )
    refuse_without_exploration(float(rows.propensities.max()), float(rows.propensities.min()), rows.labels)
    order = np.argsort(rows.episodes, kind="stable")[-most:]
    return ReadRows(rows.at(order), encoder, total - len(order))


def _sample(source: EvaluationLog, uniform: bool) -> Any:
    """Return the context columns of the first rows, however the rows lie in files."""
    tables, count = list[Any](), 0
    for block in source:
        if not uniform and block.propensities is None:
            rule = "off-policy values need the probability of every executed action"
            remedy = "log it as the column propensity, or say --propensity uniform if all actions were equally likely"
            raise InputError("log", "no column propensity", rule, remedy)
        tables.append(block.table)
        count += len(block)
        if count >= SAMPLE_MOST:
            break
    return pa.Table.from_batches(tables).slice(0, SAMPLE_MOST).select(list(source.log.context))


def _joined(kept: list[tuple[LoggedRows, Floats]], source: EvaluationLog, ranks: Codes, uniform: bool) -> EncodedRows:
    """Return blocks as one set of rows, their episodes numbered by ``ranks``."""
    blocks, m = [block for block, _ in kept], len(source.actions)
    masks = [_widened(block, m) for block in blocks]
    eligible = np.concatenate(masks) if any(block.eligible is not None for block in blocks) else None
    if uniform:
        chances = 1.0 / (eligible.sum(axis=1) if eligible is not None else np.full(sum(map(len, blocks)), m))
    else:
        chances = np.concatenate([block.propensities for block in blocks if block.propensities is not None])
    grouped = all(block.units is not None for block in blocks)
    return EncodedRows(
        contexts=np.concatenate([contexts for _, contexts in kept]),
        actions=np.concatenate([block.actions for block in blocks]),
        rewards=np.concatenate([block.rewards for block in blocks]),
        propensities=chances,
        weights=np.concatenate([block.weights for block in blocks]),
        episodes=ranks[np.concatenate([block.episodes for block in blocks if block.episodes is not None])],
        labels=tuple(source.actions),
        eligible=eligible,
        units=np.concatenate([block.units for block in blocks if block.units is not None]) if grouped else None,
    )


def _offered(blocks: list[LoggedRows], source: EvaluationLog, names: Sequence[str]) -> Pairs:
    """Return the pairs of rows and eligible actions with their features."""
    m, first, found = len(source.actions), 0, list[tuple[Codes, Floats]]()
    for block in blocks:
        table = offered_features(block.offered, names, source.mask_labels)
        codes = source.codes_of(table["action"])
        found.append(((first + table["row"]) * m + codes, np.column_stack([table[name] for name in names])))
        first += len(block)
    keys, features = np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])
    order = np.argsort(keys, kind="stable")
    starts = np.searchsorted(keys[order], np.arange(first + 1) * m)
    return Pairs(n_actions=m, starts=starts, codes=keys[order] % m, features=features[order])


def _widened(block: LoggedRows, m: int) -> Mask:
    """Return which of all actions could be chosen (n, M); labels that came later could not."""
    mask = np.zeros((len(block), m), np.bool_)
    if block.eligible is None:
        mask[:] = True
    else:
        mask[:, : block.eligible.shape[1]] = block.eligible
    return mask
