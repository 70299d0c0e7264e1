"""Write the table of checks in docs/explanation/service-guarantees.md from the results of ``make test-faults``.

``make test-faults`` runs the tests of the service, then the long ones, and then this script with both reports:
``python docs/service_checks.py short.xml long.xml``. Reports after the second one are long ones too.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

PAGE = Path(__file__).parent / "explanation" / "service-guarantees.md"
BEGIN, END = "<!-- checks -->", "<!-- /checks -->"


class Check(NamedTuple):
    """What is tried, and the tests that try it: names of files, or of tests in them."""

    name: str
    tried: str
    tests: tuple[str, ...]


CHECKS = (
    Check(
        "Kill at every point",
        "kill at each storage call of a scenario, and at random under load; every acknowledged event is there once",
        ("test_disk_faults::a_kill_at_any", "test_client::retries_across_kills", "test_week"),
    ),
    Check(
        "Power loss",
        "drop what was not synchronised, or keep any part of it, around each sync",
        ("test_disk_faults::a_power_cut", "test_disk_faults::the_trace_shows"),
    ),
    Check(
        "Torn and flipped bytes",
        "cut and flip bytes; a damaged end is set aside, other damage stops the start",
        (
            "test_damage",
            "test_disk_faults::a_flipped_bit",
            "test_disk_faults::a_truncated_file",
            "test_disk_faults::a_database_of_another",
        ),
    ),
    Check(
        "fsync error",
        "no acknowledgement, decisions refused with 503, recovery without loss",
        ("test_disk_faults::a_failing_disk", "test_disk_faults::a_disk_that_fails"),
    ),
    Check(
        "Disk full",
        "507, no acknowledgement, recovery without a restart",
        ("test_disk_faults::a_failing_disk", "test_disk_faults::a_disk_that_fails"),
    ),
    Check(
        "Corrupt or missing snapshot",
        "a saved model is damaged, of a newer format or gone; it is learned again with the same bytes",
        ("test_disk_faults::a_corrupt_snapshot", "test_control::a_damaged_or_missing_model"),
    ),
    Check(
        "Rotation and compaction",
        "the log has no rotation: old payloads are erased in place, and a copy continues by itself",
        ("test_control::old_payloads", "test_log_export::a_copy_made", "test_disk_faults::a_backup_taken"),
    ),
    Check(
        "Bit-exact replay",
        "live, replayed and exported states have the same bits, also from another process",
        (
            "test_loop_over_http",
            "test_log_export::training_on",
            "test_engine::a_loop_over",
            "test_learner::a_process_of",
            "test_random_histories::random",
        ),
    ),
    Check(
        "Settings are history",
        "change settings, policy and actions in the middle of a log and replay it",
        ("test_control::settings_are_history", "test_control::another_algorithm", "test_control::an_action_is_added"),
    ),
    Check(
        "Decision retry",
        "the same id gives the same answer and one record, also 32 times at once",
        (
            "test_retries::a_decision_sent",
            "test_retries::a_batch_sent",
            "test_retries::the_same_decision",
            "test_engine::a_decision_that_is_asked",
        ),
    ),
    Check(
        "Reward retry",
        "the same reward counts once, from many threads and across kills",
        (
            "test_retries::the_same_reward",
            "test_joining::a_reward_that_is_sent_again",
            "test_client::retries_across_kills",
        ),
    ),
    Check(
        "Aggregation table",
        "six aggregations with ties, duplicates and permuted arrival",
        ("test_joining::aggregations_do", "test_joining::rewards_of_one"),
    ),
    Check(
        "Late, early, unknown",
        "each has its own answer, is recorded and counted",
        (
            "test_joining::a_reward_after",
            "test_joining::an_early",
            "test_joining::a_reward_without",
            "test_retries::late_early",
        ),
    ),
    Check("Clock skew", "the clock jumps back an hour and ahead a day", ("test_joining::jumps_of_the_clock",)),
    Check(
        "Silence",
        "the default once, also if the service was down; deferred decisions that were not activated are left out",
        ("test_joining::silence_gets", "test_joining::deferred_decisions", "test_joining::rewarded_decisions_never"),
    ),
    Check(
        "Update without pause",
        "decide while the next version is learned; no decision mixes two versions",
        ("test_learner::decisions_are_served", "test_load::no_decision_fails"),
    ),
    Check(
        "Propensity truth",
        "shares of actions match their probabilities (χ²), which sum to 1 and keep the floor",
        ("test_engine::propensities_are", "test_engine::probabilities_are"),
    ),
    Check(
        "Rollback and shadow mode",
        "an older version is served at once; a bad one is never published; the baseline is always returned",
        (
            "test_control::rollback",
            "test_control::a_version_below",
            "test_control::a_version_with_numbers",
            "test_control::shadow_mode",
        ),
    ),
    Check(
        "Concurrency",
        "64 clients: an order explains all answers, id by id; counts in = in the log = in the metrics = learned",
        ("test_history", "test_week", "test_retries::many_different", "test_load::its_counts"),
    ),
    Check(
        "Hostile JSON",
        "a 4xx with a stable code, no record, never a 5xx; what is taken can be learned",
        ("test_hostile", "test_learnable"),
    ),
    Check(
        "Size and slowness",
        "large bodies, slow and idle clients, rate limits",
        ("test_limits", "test_access::a_key_above"),
    ),
    Check(
        "Closed by default",
        "every route without a key, every role, other experiments, pages of other sites",
        ("test_access", "test_keys", "test_addresses"),
    ),
    Check(
        "No code from data",
        "no module can run data; pickles, archives and impossible sizes are refused as models",
        ("test_no_code",),
    ),
    Check("Contract fuzzing", "schemathesis on all routes, made from the description", ("test_description",)),
    Check(
        "Several processes",
        "kill the elected learner while it learns; stop PostgreSQL under load; two processes on one SQLite file",
        ("test_several_processes", "test_recovery::an_episode_that_another", "test_stores::one_process_at_a_time"),
    ),
)
"""The checks, from 1 on."""


def belongs(test: str, pattern: str) -> bool:
    """Tell whether a test, as ``test_file::test_name``, is one of a pattern."""
    file, _, name = pattern.partition("::")
    return test.startswith(f"{file}::test_{name}")


def results_in(*reports: Path) -> dict[str, str]:
    """Return the outcome of each test in reports of pytest (``--junitxml``)."""
    found: dict[str, str] = {}
    for case in (case for report in reports for case in ElementTree.parse(report).iter("testcase")):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        found[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = outcome
    return found


def rows(short: dict[str, str], long: dict[str, str]) -> Iterable[str]:
    """Yield the table."""
    yield "| | check | what is tried | tests | short form | long form |"
    yield "|---|---|---|---|---|---|"
    for number, check in enumerate(CHECKS, start=1):
        files = ", ".join(f"`{name}`" for name in dict.fromkeys(one.partition("::")[0] for one in check.tests))
        counts = " | ".join(counted(check, results) for results in (short, long))
        yield f"| {number} | {check.name} | {check.tried} | {files} | {counts} |"


def counted(check: Check, results: dict[str, str]) -> str:
    """Return how often each outcome is among the results of a check."""
    mine = [outcome for test, outcome in results.items() if any(belongs(test, one) for one in check.tests)]
    return ", ".join(f"{n:,} {outcome}" for outcome, n in sorted(Counter(mine).items())) or "–"


def write(short: dict[str, str], long: dict[str, str], page: Path = PAGE) -> None:
    """Write the table between its marks."""
    text = page.read_text(encoding="utf-8")
    table = "\n".join((BEGIN, *rows(short, long), END))
    page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: table, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    first, *others = map(Path, sys.argv[1:])
    write(results_in(first), results_in(*others))
