"""Learning and deciding one batch: against our own SBUCB, the paper's form, one matrix product, and peers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from benchmarks import calls, peers
from benchmarks.naive import FreshHash, NaivePolicy
from benchmarks.peers import ALPHA, AS_THEY_COME, CAST, RIVALS, Entry, Peer
from benchmarks.shapes import DEEP, LARGE, PAPER, SHAPES, WIDE, Floats, Rows, Shape, draw_rows
from benchmarks.timing import Clock, Task, race, ratio
from spuir import Bandit, make_environment, make_policy
from spuir.base.records import Batch
from spuir.base.streams import generator
from spuir.core.ties import TIE

SETTING: dict[str, Any] = {"alpha": ALPHA, "imputation_rate": 0.1, "discount": 0.9}
SKETCH = 1_000
MOMENTS = ("sketched", "exact", "corrected")
GEMM_ROWS = 2_000
EPISODES = 10
WORLDS = ("heterogeneous", "synthetic", "linear")

Clocks = dict[str, Clock]
Found = dict[str, float]


@dataclass
class Effort:
    """How long to measure.

    Seconds and rounds of a race, cases of the agreement check, and whether to decide on 100,000 rows too.
    """

    seconds: float = 8.0
    rounds: int = 5
    cases: int = 5
    heavy: bool = True

    def race(self, tasks: Mapping[str, Task], others: Mapping[str, Entry] | None = None) -> Clocks:
        """Time our tasks and the peers' entries with this effort."""
        entered = {name: (task, 1.0) for name, task in tasks.items()} | dict(others or {})
        return race(
            {name: task for name, (task, _) in entered.items()},
            rounds=self.rounds,
            seconds=self.seconds,
            scales={name: scale for name, (_, scale) in entered.items()},
        )


@dataclass
class Speed:
    """What the races found: the clocks of each table, and the ratio of each requirement."""

    tables: dict[str, Clocks] = field(default_factory=dict)
    found: Found = field(default_factory=dict)

    def keep(self, table: str, shape: Shape, clocks: Clocks) -> Clocks:
        """File the clocks of one race under a table and a shape."""
        self.tables[f"{table}, {shape}"] = clocks
        return clocks

    def against_peers(self, key: str, shape: Shape, clocks: Clocks, ours: str, rivals: Sequence[str] = RIVALS) -> None:
        """File how much faster ``ours`` is than the fastest rival that ran, if any did."""
        present = [name for name in rivals if name in clocks]
        if present:
            fastest = min(present, key=lambda name: clocks[name].median)
            self.found[f"speed/{key}/{shape.name}"] = ratio(clocks[fastest], clocks[ours])


def bandit(name: str, shape: Shape, *warm: Rows, **parameters: Any) -> Bandit:
    """Return a bandit that has learned the given episodes."""
    setting = {"alpha": ALPHA} if name == "sbucb" else SETTING
    made = Bandit(make_policy(name, **setting, **parameters), shape.actions, random_state=0)
    for rows in warm:
        made.partial_fit(rows.contexts, rows.actions, rows.rewards)
    return made


def batch_of(rows: Rows) -> Batch:
    """Return an episode as the record that the paper's own form reads."""
    return Batch(contexts=rows.contexts, actions=rows.actions, rewards=rows.rewards)


def paper_form(shape: Shape, sketch: FreshHash | None = None) -> NaivePolicy:
    """Return the paper's own form, action by action, with our setting; with a sketch, a new one per action and term."""
    return NaivePolicy(shape.actions, shape.dim, sketch=sketch, moments="sketched", with_energy=False, **SETTING)


def learner(made: Bandit, rows: Rows) -> Task:
    """Return a task that learns one episode, coefficients included."""
    return lambda: made.partial_fit(rows.contexts, rows.actions, rows.rewards, allow_repeat=True).coefficients_


def sbucb(shape: Shape, *warm: Rows) -> Bandit:
    """Return our bandit without imputation: it computes every width."""
    return bandit("sbucb", shape, *warm)


def contenders(shape: Shape) -> list[type[Peer]]:
    """Return the installed peers that are run at this shape."""
    return [kind for kind in peers.installed() if kind.shapes is None or shape.name in kind.shapes]


def warmed(kind: type[Peer], shape: Shape, batches: Sequence[Rows]) -> Peer:
    """Return a peer that has learned the given episodes."""
    peer = kind(shape)
    for rows in batches:
        peer.learning(rows)[0]()
    return peer


def entries(
    kinds: Sequence[type[Peer]], shape: Shape, batches: Sequence[Rows], enter: Callable[[Peer], Entry]
) -> dict[str, Entry]:
    """Return what each peer enters into a race after it has learned the given episodes."""
    return {kind.name: enter(warmed(kind, shape, batches)) for kind in kinds}


def check_peers(shape: Shape, batches: list[Rows], contexts: Floats) -> None:
    """Assert that every LinUCB peer computes mean + α·width for all actions, as ours does."""
    expected = peers.reference_scores(batches, contexts, shape.actions)
    tables = {kind.name: warmed(kind, shape, batches).scores(contexts) for kind in contenders(shape) if kind.exact}
    tables["sbucb"] = sbucb(shape, *batches).decision_function(contexts)
    for name, table in tables.items():
        np.testing.assert_allclose(table, expected, rtol=0, atol=1e-4 if "float32" in name else 1e-9, err_msg=name)


def check_naive(shape: Shape) -> None:
    """Assert that the paper's own form arrives at our coefficients, on the first rows of two episodes."""
    batches = [draw_rows(shape, episode).head(2_000) for episode in range(2)]
    naive = paper_form(shape)
    for rows in batches:
        naive.learn(batch_of(rows))
    theta = [naive.theta(j) for j in range(shape.actions)]
    np.testing.assert_allclose(theta, bandit("puir", shape, *batches).coefficients_, rtol=0, atol=1e-9)


def bare_update(shape: Shape, warm: Rows, rows: Rows) -> Task:
    """Return the task of the bare form of an update, after asserting that it arrives at our coefficients."""
    bare = calls.bare_learner(shape, SETTING["imputation_rate"], SETTING["discount"])
    theta = [bare(one) for one in (warm, rows)][-1]
    np.testing.assert_allclose(theta, bandit("puir", shape, warm, rows).coefficients_, rtol=0, atol=1e-9)
    return lambda: bare(rows)


def learning(out: Speed, shape: Shape, effort: Effort) -> None:
    """Learn one batch with exact imputation."""
    check_naive(shape)
    warm, rows = draw_rows(shape, 0), draw_rows(shape, 1)
    naive, batch = paper_form(shape), batch_of(rows)
    ours = {
        "bare NumPy": bare_update(shape, warm, rows),
        "puir": learner(bandit("puir", shape, warm), rows),
        "sbucb": learner(sbucb(shape, warm), rows),
        "the paper's own form": lambda: naive.learn(batch),
    }
    others = entries(contenders(shape), shape, [warm], lambda peer: peer.learning(rows))
    clocks = out.keep("learn", shape, effort.race(ours, others))
    out.found[f"speed/learn-overhead/{shape.name}"] = ratio(clocks["puir"], clocks["sbucb"])
    out.found[f"speed/learn-naive/{shape.name}"] = ratio(clocks["the paper's own form"], clocks["puir"])
    out.found[f"speed/learn-bare/{shape.name}"] = ratio(clocks["puir"], clocks["bare NumPy"])
    out.against_peers("learn-peer", shape, clocks, "puir")
    out.against_peers("learn-bare-peer", shape, clocks, "bare NumPy")
    out.against_peers("learn-default-peer", shape, clocks, "puir", AS_THEY_COME)
    out.against_peers("learn-cast-peer", shape, clocks, "puir", CAST)


def one_product(shape: Shape, contexts: Floats) -> Task:
    """Return the task of one product B×d by d×Md, in blocks of rows so that its result stays small."""
    right = np.ones((shape.dim, shape.actions * shape.dim))
    result = np.empty((min(GEMM_ROWS, len(contexts)), right.shape[1]))

    def multiply() -> None:
        for start in range(0, len(contexts), GEMM_ROWS):
            block = contexts[start : start + GEMM_ROWS]
            np.matmul(block, right, out=result[: len(block)])

    return multiply


def deciding(out: Speed, shape: Shape, effort: Effort) -> None:
    """Decide one batch with every width computed."""
    warm, contexts = draw_rows(shape, 0), draw_rows(shape, 1).contexts
    check_peers(shape, [warm], contexts[:100])
    others = entries(contenders(shape), shape, [warm], lambda peer: peer.deciding(contexts))
    dense = sbucb(shape, warm)
    ours: dict[str, Task] = {"sbucb": lambda: dense.decide(contexts), "one product": one_product(shape, contexts)}
    clocks = out.keep("decide, all widths", shape, effort.race(ours, others))
    out.found[f"speed/dense-gemm/{shape.name}"] = ratio(clocks["sbucb"], clocks["one product"])
    out.against_peers("dense-peer", shape, clocks, "sbucb")
    out.against_peers("dense-cast-peer", shape, clocks, "sbucb", CAST)


def simulate(name: str, world: str, shape: Shape, seed: int) -> tuple[Bandit, list[Rows], Floats]:
    """Run ten episodes; return the bandit, what it learned from, and the next contexts."""
    environment = make_environment(world, n_actions=shape.actions, dim=shape.dim, seed=seed)
    draws = generator(seed, "benchmarks", "bound", world)
    made, batches = bandit(name, shape), []
    for _ in range(EPISODES):
        rounds = environment.draw(shape.rows, draws)
        actions = np.asarray(made.decide(rounds.contexts).actions)
        batches.append(Rows(rounds.contexts, actions, environment.feedback(rounds, actions, draws).rewards))
        made.partial_fit(rounds.contexts, actions, batches[-1].rewards)
    return made, batches, environment.draw(shape.rows, draws).contexts


def agreement(name: str, world: str, shape: Shape, seed: int) -> float:
    """Return the share of decisions that the dense table of scores confirms (any tied action is right)."""
    made, _, contexts = simulate(name, world, shape, seed)
    scores = made.decision_function(contexts)
    top = scores.max(axis=1)
    chosen = scores[np.arange(len(scores)), np.asarray(made.decide(contexts).actions)]
    return float(np.mean(chosen >= top - TIE * np.abs(top)))


def bounding(out: Speed, shape: Shape, effort: Effort) -> None:
    """Decide one batch by the shared bound, after ten episodes of a learnable environment."""
    made, batches, contexts = simulate("puir", WORLDS[0], shape, 0)
    sketched, _, _ = simulate("spuir", WORLDS[0], shape, 0)
    dense = sbucb(shape, *batches)
    others = entries(contenders(shape), shape, batches, lambda peer: peer.deciding(contexts))
    ours: dict[str, Task] = {
        "puir": lambda: made.decide(contexts),
        "spuir": lambda: sketched.decide(contexts),
        "sbucb (all widths)": lambda: dense.decide(contexts),
    }
    clocks = out.keep("decide, shared bound", shape, effort.race(ours, others))
    out.against_peers("bound-peer", shape, clocks, "puir")
    out.against_peers("bound-cast-peer", shape, clocks, "puir", CAST)
    cases = product(("puir", "spuir"), WORLDS, range(effort.cases))
    out.found[f"speed/bound-equal/{shape.name}"] = min(
        agreement(name, world, shape, seed) for name, world, seed in cases
    )


def whole_episode(out: Speed, shape: Shape, effort: Effort) -> None:
    """Learn one batch and then decide one, so that nothing can be put off from one to the other."""
    made, batches, contexts = simulate("puir", WORLDS[0], shape, 0)
    rows = batches[-1]

    def both(learn: Task, decide: Task) -> Task:
        return lambda: (learn(), decide())

    exact = [kind for kind in contenders(shape) if kind.exact]
    others = entries(exact, shape, batches, lambda peer: (both(peer.learner(rows), peer.decider(contexts)), 1.0))
    ours = {"puir": both(learner(made, rows), lambda: made.decide(contexts))}
    clocks = out.keep("learn, then decide", shape, effort.race(ours, others))
    out.against_peers("episode-peer", shape, clocks, "puir")


def sketching(out: Speed, shape: Shape, effort: Effort, *, naive: bool) -> None:
    """Learn one batch by sketches of 1,000 rows."""
    warm, rows = draw_rows(shape, 0), draw_rows(shape, 1)
    kinds = {kind: kind for kind in MOMENTS} | {"default": str(vars(make_policy("spuir"))["moments"])}
    tasks = {
        f"spuir, {kind}": learner(bandit("spuir", shape, warm, sketch_size=SKETCH, moments=kind), rows)
        for kind in kinds.values()
    }
    tasks["puir"] = learner(bandit("puir", shape, warm), rows)
    if naive:
        per_action = paper_form(shape, FreshHash(SKETCH, generator(0, "benchmarks", "naive")))
        batch = batch_of(rows)
        tasks["sketching per action"] = lambda: per_action.learn(batch)
        # A slow task runs in the first rounds only, and five are few for the median of a ratio.
        effort = replace(effort, rounds=3 * effort.rounds)
    clocks = out.keep("learn, sketched", shape, effort.race(tasks))
    for label, kind in kinds.items():
        mine = clocks[f"spuir, {kind}"]
        out.found[f"speed/sketch-{shape.name}/{label}"] = ratio(clocks["puir"], mine)
        if naive and label in ("sketched", "default"):
            out.found[f"speed/sketch-naive/{label}"] = ratio(clocks["sketching per action"], mine)


def text_labels(out: Speed, shape: Shape, effort: Effort) -> None:
    """Learn one batch whose actions are text, in every form of a column, against integer actions."""
    tasks = calls.label_tasks(shape, lambda actions: Bandit(make_policy("puir", **SETTING), actions, random_state=0))
    clocks = out.keep("learn, text labels", shape, effort.race(tasks))
    for form in calls.TEXT_LABELS:
        out.found[f"speed/labels/{form}"] = ratio(clocks[form], clocks["integers"])


def predicting(out: Speed, shape: Shape, effort: Effort) -> None:
    """Decide and predict one batch, and decide rows one by one, after a few episodes."""
    batches = [draw_rows(shape, episode) for episode in range(calls.EPISODES)]
    made, paper = bandit("puir", shape, *batches), paper_form(shape)
    for rows in batches:
        paper.learn(batch_of(rows))
    contexts = draw_rows(shape, calls.EPISODES).contexts
    whole: dict[str, Task] = {"decide": lambda: made.decide(contexts), "predict": lambda: made.predict(contexts)}
    clocks = out.keep("predict", shape, effort.race(whole))
    out.found[f"speed/predict/{shape.name}"] = ratio(clocks["predict"], clocks["decide"])
    clocks = out.keep(
        f"{calls.ONE_ROW_CALLS} calls with one row", shape, effort.race(calls.one_row_tasks(made, paper, contexts))
    )
    out.found[f"speed/one-row/{shape.name}"] = ratio(clocks["decide, one row"], clocks["bare NumPy, one row"])


def self_tuning(out: Speed, effort: Effort) -> None:
    """Learn and decide 1,000 rows by the default policy, against SBUCB on as many Fourier features as it has landmarks.

    Where rewards are not linear the kernel acts; where they are, deciding is compared with plain SBUCB.
    """
    worlds = {"rbf": ("nonlinear", {"truth": "rbf"}), "poly": ("nonlinear", {"truth": "poly"}), "heterogeneous": None}
    for name, given in worlds.items():
        kind, parameters = given or (name, {})
        world = make_environment(kind, seed=0, **parameters)
        shape = Shape(name, 1_000, world.dim, world.n_actions)
        made = {
            "auto": Bandit("auto", shape.actions, random_state=0, floor=0.0),
            "sbucb, Fourier": Bandit(
                "sbucb", shape.actions, random_state=0, features="fourier", n_features=200, intercept=True
            ),
            "sbucb": Bandit("sbucb", shape.actions, random_state=0, intercept=True),
        }
        batches = [_uniform_batch(world, shape, episode) for episode in range(7)]
        for one in made.values():
            for rows in batches[:-1]:
                one.partial_fit(rows.contexts, rows.actions, rows.rewards)
        last, contexts = batch_of(batches[-1]), batches[0].contexts
        acting: dict[str, Task] = {who: (lambda one=one, rows=contexts: one.decide(rows)) for who, one in made.items()}
        # Learning by the policy itself leaves the state as it was: the same episode again and again would change it.
        learning = {who: _learn_and_decide(one, last, contexts[:0]) for who, one in made.items()}
        both = {who: _learn_and_decide(one, last, contexts) for who, one in made.items()}
        clocks = out.keep("auto, learn, then decide", shape, effort.race(both))
        if given is not None:
            out.found[f"speed/auto-episode/{name}"] = ratio(clocks["auto"], clocks["sbucb, Fourier"])
            continue
        learned = out.keep("auto, learn", shape, effort.race(learning))
        out.found[f"speed/auto-learn/{name}"] = ratio(learned["auto"], learned["sbucb, Fourier"])
        decided = out.keep("auto, decide", shape, effort.race(acting))
        out.found[f"speed/auto-decide/{name}"] = ratio(decided["auto"], decided["sbucb"])


def _learn_and_decide(made: Bandit, batch: Batch, contexts: Floats) -> Task:
    """Return a task that learns one episode and decides contexts with the state after it."""
    policy, state, rng = made.policy_, made.state_, generator(0, "benchmarks", "auto")

    def both() -> None:
        after, _ = policy.learn(state, batch, rng)
        if len(contexts):
            policy.decide(after, contexts, rng)

    return both


def _uniform_batch(world: Any, shape: Shape, episode: int) -> Rows:
    """Return an episode of uniformly drawn actions in a world."""
    rng = generator(0, "benchmarks", "auto", shape.name, episode)
    rounds, actions = world.draw(shape.rows, rng), rng.integers(shape.actions, size=shape.rows)
    return Rows(rounds.contexts, actions, world.feedback(rounds, actions, rng).rewards)


def measure(effort: Effort, say: Callable[[str], None]) -> Speed:
    """Run every race."""
    out = Speed()
    for shape in SHAPES.values():
        say(f"learning, {shape}")
        learning(out, shape, effort)
    for shape in SHAPES.values() if effort.heavy else (PAPER, WIDE):
        say(f"deciding with all widths, {shape}")
        deciding(out, shape, effort)
    for shape in (PAPER, WIDE):
        say(f"deciding with the shared bound, {shape}")
        bounding(out, shape, effort)
        whole_episode(out, shape, effort)
    say(f"text labels, {PAPER}")
    text_labels(out, PAPER, effort)
    for shape in (PAPER, WIDE):
        say(f"predict and single rows, {shape}")
        predicting(out, shape, effort)
    say("the default policy")
    self_tuning(out, effort)
    for shape in (DEEP, LARGE):
        say(f"sketched learning, {shape}")
        sketching(out, shape, effort, naive=shape is LARGE)
    return out
