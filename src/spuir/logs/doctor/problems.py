"""The problems that a check of a log can find: how bad each is, what follows, and what to do. One entry per check."""

from typing import NamedTuple

from spuir.logs.column_kinds import NO_COMMAS


class ProblemKind(NamedTuple):
    """A kind of problem: its severity, what follows, and the remedy, in a sentence each; NAME stands for the column."""

    severity: str
    effect: str
    remedy: str


_LATE = "A policy that learns from it cannot decide: its value is not known when the decision is taken."
_OUT = "leave it out (--rename NAME=)."
NOTHING = "nothing to do."


def _error(effect: str, remedy: str) -> ProblemKind:
    return ProblemKind("error", effect, remedy)


def _warning(effect: str, remedy: str) -> ProblemKind:
    return ProblemKind("warning", effect, remedy)


def _note(effect: str, remedy: str) -> ProblemKind:
    return ProblemKind("note", effect, remedy)


PROBLEMS: dict[str, ProblemKind] = {
    # ---- the log as a whole
    "no context": _error(
        "Training refuses such a log.",
        "name the columns (--context); with a constant one a policy learns which action is best on average.",
    ),
    "encoding": _error("Training stops at this column.", "correct it."),
    "unreadable": _error("Training stops at this column.", "correct it."),
    "broken rows": _warning("They are left out.", "repair or drop these lines."),
    "skipped rows": _note("They are left out.", NOTHING),
    "reading": _note("The rest of the log is read.", NOTHING),
    # ---- actions
    "missing action": _error("Training refuses them.", "drop these rows, or fill in what was done."),
    "rare action": _warning(
        "One row is not enough to learn about an action.",
        "check for misspelt labels; drop such rows, or merge rare actions.",
    ),
    "one action": _warning("There is nothing to choose between.", "check that the column holds what was chosen."),
    "many actions": _error(
        "Each is learned on its own, from few rows.", "check that the column holds actions, not ids; group them."
    ),
    "similar actions": _warning("Each spelling is learned as a separate action.", "write each label in one way."),
    "late action": _note(
        "Its estimates come from the later rows only.",
        "nothing if it was added then; if it was only renamed, give both the same label.",
    ),
    # ---- features of actions
    "no features": _error(
        "Training a policy that reads features refuses actions without them.",
        "add these labels to the catalogue, written as in the log, or drop their rows.",
    ),
    "eligible without features": _warning(
        "Training and evaluation leave them out of the lists, and spuir decide refuses them.",
        "add these labels to the catalogue, written as in the log.",
    ),
    "unnamed action": _error("Training refuses such a catalogue.", "fill in the label, or drop the row."),
    "conflicting features": _warning(
        "The last row of a label counts for all its decisions.",
        "keep one row per label; what changes from decision to decision belongs in columns action.… of the log.",
    ),
    "repeated action": _note("They count once.", NOTHING),
    "untried actions": _note("What is known about them comes from their features only.", "nothing if they are new."),
    "text feature": _warning(
        "Features per decision are numbers: training leaves it out.",
        "write numbers, such as 1 and 0 for each value; what stays the same for an action belongs in the catalogue.",
    ),
    "constant feature": _warning("It cannot distinguish actions.", "leave it out."),
    "unique feature": _warning(
        "It is another name of the action: what is learned about one value helps no other action.",
        "leave it out, or replace it by what it stands for, such as a category.",
    ),
    "varying features": _note("They are read with each decision, as columns action.….", NOTHING),
    "unequal features": _error(
        "It is not known which value belongs to which action.", "log one value for each eligible action."
    ),
    # ---- rewards
    "missing reward": _warning(
        "Training leaves them out.",
        "write 0 there if no reward means 0 (for rewards in another table: --rewards FILE --default-reward 0), or wait "
        "until they are known.",
    ),
    "impossible reward": _error("Training refuses them.", "correct or drop these rows."),
    "constant reward": _warning("There is nothing to learn.", "check that the column holds the outcome."),
    "no reward": _error("There is nothing to learn.", "check that the column holds the outcome."),
    "extreme reward": _warning("These few rows dominate the estimates.", "correct or drop them, or cap the reward."),
    "reward unit": _warning(
        "Later actions seem better or worse only because of the unit.",
        "bring all rewards to one unit, such as euros or cents.",
    ),
    "rewards end": _warning(
        "These rows are learned as failures, though their rewards are probably not known yet.",
        "leave them out until their rewards are known, or join the rewards with a window (--rewards, --window).",
    ),
    "intercept": _note(
        "Without a constant column a linear model cannot learn an average, and may prefer the worse action.",
        "spuir train adds one, and so does the policy auto; pass intercept=True to other policies in Python.",
    ),
    # ---- propensities
    "no propensity": _note(
        "Off-policy evaluation needs them, and training refuses policies that weigh by them (blts-b, bexp3-ipw).",
        "log the probability of the executed action (Decision.propensities) from now on; until then say --propensity "
        "uniform if all actions were equally likely, or evaluate with --propensity estimate.",
    ),
    "missing propensity": _error(
        "Training and off-policy evaluation refuse them.",
        "log it with every decision; until then drop these rows, or leave the column out (--rename NAME=) and evaluate "
        "with --propensity estimate.",
    ),
    "impossible propensity": _error(
        "No executed action can have such a propensity, and every estimate that divides by it is wrong.",
        "log the probability of the executed action; divide percentages by 100.",
    ),
    "deterministic": _warning(
        "Learning works, but no other policy can be evaluated on this log: what it would have done was never tried.",
        "decide with a floor from now on, such as floor=0.02, and log the propensities.",
    ),
    "implausible propensity": _warning(
        "Off-policy estimates come out too large.",
        "log the probability of the executed action itself, at the time of the decision.",
    ),
    "impossible probabilities": _error(
        "They are not a distribution, so nothing can be drawn from them.", "log what the policy drew from."
    ),
    "unequal lists": _error(
        "It is not known which probability belongs to which action.", "log one probability for each label."
    ),
    "disagreeing propensity": _error(
        "One of the two is wrong, and so is every estimate that uses it.",
        "log the entry of probabilities that belongs to the executed action.",
    ),
    "ineligible action": _error("The list or the action is wrong.", "correct the list, or drop these rows."),
    "nothing eligible": _error(
        "Something was executed there, so the list is wrong.", "correct the list, or leave it empty (null) if all were."
    ),
    # ---- ids, times, weights, episodes
    "missing id": _warning("Rewards cannot be joined to them.", "log an id with every decision."),
    "repeated id": _error(
        "A decision counts twice, and its reward is joined to one of them only.",
        "drop the repetitions, or give every decision its own id.",
    ),
    "unnamed time": _note(
        "Episodes cannot be cut by time (--every).", "if it is the time of the decision, say --time-column NAME."
    ),
    "unnamed unit": _note(
        "Intervals of an evaluation take all rows as independent.",
        "if rows with the same value belong together, say --rename NAME=unit_id.",
    ),
    "missing time": _warning("Episodes cannot be cut by time.", "fill them in."),
    "unsorted": _warning(
        "Episodes cut by size mix what came early with what came late.",
        "sort the log by time before cutting it by size, or cut by time (--every) or by an episode column.",
    ),
    "implausible time": _error(
        "If the log is cut by time, such a row is its own episode, often the first one to be learned.",
        "correct or drop these rows.",
    ),
    "early reward": _warning("A window would treat them as in time.", "check clocks and time zones."),
    "impossible weight": _error("Training refuses them.", "correct or drop these rows."),
    "missing episode": _error("Training refuses them.", "fill it in, or leave the column out and give a size."),
    "scattered episodes": _note(
        "Training first sorts them, on disk if there are many.",
        "nothing, but a log in order of episodes trains faster.",
    ),
    "one episode": _warning(
        "The policy learns once, and imputes before it has learned anything.", "cut the log into more episodes."
    ),
    "many episodes": _warning("Training takes long.", "cut the log into larger episodes."),
    "small first episode": _warning(
        "With partial_fit, what is fixed at the beginning, such as the scaling, would come from these rows only.",
        "begin the log with a whole period, drop these rows, or call Bandit.fix with more rows first.",
    ),
    "episode order": _warning(
        "Later episodes are learned before earlier ones, and forgetting acts on the wrong ones.",
        "number the episodes, or name them by dates such as 2026-01-31.",
    ),
    # ---- joined rewards
    "orphan rewards": _warning(
        "They are not used, and their decisions look like failures.",
        "check that both tables hold the same ids, written in the same way, and all decisions.",
    ),
    "no joined rewards": _error("Every decision has the default reward.", "check that both tables hold the same ids."),
    "duplicate decisions": _warning("Only the first is kept.", "give every decision its own id."),
    "joined rewards": _note("No default reward is used.", NOTHING),
    "silent decisions": _note(
        "Decisions without a reward get the default, which is right if no reward means that nothing was earned.",
        "if it means that the reward is not known, as in a survey, leave them out (--default-reward none).",
    ),
    # ---- context columns
    "not finite": _error("Training refuses them.", "write nothing (null) where the value is unknown."),
    "unequal vectors": _error("Training refuses them.", "bring them to one length."),
    "empty": _warning("It gives no feature.", _OUT),
    "constant": _warning("It cannot help to decide.", _OUT),
    "mixed": _warning(
        "It is read as text, and each number becomes its own level.",
        "correct them, or leave them empty where the value is unknown.",
    ),
    "decimal comma": _warning("It is read as text, and each number becomes its own level.", f"{NO_COMMAS}."),
    "missing as text": _warning("It is learned as a level like any other.", "leave these cells empty (null)."),
    "sentinel": _warning(
        "It is learned as a number, and moves the estimates for all other rows.",
        "leave these cells empty (null): missing values get their own feature.",
    ),
    "outlier": _warning(
        "These few rows dominate the estimates.",
        "correct them, leave them empty, or cap the column.",
    ),
    "epoch time": _warning(
        "As a number it dwarfs all other columns, and says neither weekday nor hour.",
        "leave it out (--rename NAME=), or write it as a time such as 2026-01-31T09:30:00.",
    ),
    "id-like": _warning(
        "What is learned about one value helps no other row.",
        "leave it out (--rename NAME=); log what you need of it as columns.",
    ),
    "many levels": _note("All these rows look the same to the policy.", "raise --max-levels, or hash (--hashing)."),
    "missing later": _note(
        "Training uses the mean or the level “other” for them.",
        "fill them, or let the log begin with rows where some are missing.",
    ),
    "empty at first": _warning(
        "An encoder that learns from the first rows gives it no feature.",
        "let the log begin where it is filled, or fill the beginning.",
    ),
    "empty at last": _warning("From now on decisions will see it as missing.", "check what fills it, or leave it out."),
    "duplicate column": _warning(
        "Both get half of the weight, and learning takes longer.", "leave one of them out (--rename NAME=)."
    ),
    "scales": _note(
        "The ridge shrinks the effects of small columns most.",
        "spuir train standardises them, and so does the policy auto; pass scale=True to other policies in Python.",
    ),
    # ---- leaks
    "known afterwards": _warning(_LATE, _OUT),
    "equals reward": _error(_LATE, _OUT),
    "equals action": _error(_LATE, _OUT),
    "tells reward": _warning(_LATE, "leave it out (--rename NAME=) if it is known only after the decision."),
    "follows reward": _warning(_LATE, "leave it out (--rename NAME=) if it is known only after the decision."),
    "tells action": _warning(
        "The effect of the action cannot be separated from that of the column.",
        "leave it out if it was made from the action; if a rule chose by it, vary the actions from now on.",
    ),
    "sounds late": _note(_LATE, "leave it out if it is known only after the decision."),
}
"""By the name of the check that finds it."""
