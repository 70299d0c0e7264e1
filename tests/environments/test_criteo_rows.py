"""Reading Criteo's log: beside a naive reader, on broken files, and in bounded memory."""

import csv
import gzip
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spuir.environments import criteo_rows
from spuir.environments.criteo_generator import CAMPAIGNS, RECENT, write_rows
from spuir.environments.criteo_rows import CAMPAIGN, FILLED, NAMES, explained, read_campaigns
from spuir.errors import InputError, UnknownNameError

ROW = [*("100", "250"), *"12345678", *(f"{k:08x}" for k in range(9))]
MINE, OTHER = RECENT[0], "0000beef"
ROW[CAMPAIGN] = MINE


def line(ends="\n", **cells):
    """Return a sound row, with some cells changed."""
    return "\t".join(cells.get(name, cell) for name, cell in zip(NAMES, ROW, strict=True)) + ends


def write(path, lines):
    path.write_bytes("".join(lines).encode())
    return str(path)


def read(path, campaigns=(MINE,), **options):
    return read_campaigns(str(path), campaigns, **{"max_rows": 10_000, "seed": 0} | options)


def read_naively(path, campaign):
    """Return times and cells of a campaign's rows, one at a time, with the csv module."""
    found = []
    with open(path, newline="") as file:
        for cells in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if cells[CAMPAIGN] == campaign:
                ints = [int(cell) if cell else FILLED[k] for k, cell in enumerate(cells[2:10])]
                categories = [int(cell, 16) if cell else -1 for cell in cells[10:]]
                found.append([int(cells[0]), int(cells[1] or -1), *ints, *categories])
    return np.array(found)


def flat(rows):
    return np.column_stack([rows.clicked, rows.converted, rows.ints, rows.categories])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("criteo") / "data.txt"
    write_rows(path, 6000, seed=3)
    return path


@pytest.mark.parametrize("block", [700, 1 << 20])
def test_it_reads_what_a_naive_reader_reads(path, block, monkeypatch):
    monkeypatch.setattr(criteo_rows, "BLOCK", block)
    reading = read(path, CAMPAIGNS)
    assert (reading.total, reading.broken, reading.problems) == (6000, 0, ())
    text = path.read_text().splitlines()
    assert reading.last == int(text[-1].split("\t")[0])
    numbers = [row.split("\t")[CAMPAIGN] for row in text]
    for campaign, rows, count in zip(CAMPAIGNS, reading.kept, reading.counts, strict=True):
        np.testing.assert_array_equal(flat(rows), read_naively(path, campaign))
        np.testing.assert_array_equal(rows.lines - 1, np.flatnonzero(np.array(numbers) == campaign))
        assert count == len(rows)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("last", ["\n", "", "\n\n"])
def test_line_ends_and_gzip_make_no_difference(path, tmp_path, ends, packed, last):
    text = path.read_text().rstrip("\n")
    data = (text + last).replace("\n", ends).encode()
    copy = tmp_path / "copy"
    copy.write_bytes(gzip.compress(data, 1) if packed else data)
    for rows, same in zip(read(copy, CAMPAIGNS).kept, read(path, CAMPAIGNS).kept, strict=True):
        np.testing.assert_array_equal(flat(rows), flat(same))


def test_empty_cells_follow_the_stated_convention(tmp_path):
    empty = dict.fromkeys(NAMES, "") | {"click_ts": "7", "cat3": MINE}
    rows = read(write(tmp_path / "data.txt", [line(**empty)])).kept[0]
    np.testing.assert_array_equal(rows.ints, [[-1, 0, -1, 0, -1, 0, 0, 0]])
    np.testing.assert_array_equal(np.delete(rows.categories, 2), -1)
    assert (rows.clicked[0], rows.converted[0]) == (7, -1)


def test_rows_are_drawn_by_the_seed_alone(path, monkeypatch):
    drawn = read(path, max_rows=50)
    lines = drawn.kept[0].lines
    assert drawn.counts[0] == read(path).counts[0] > 200
    assert len(lines) == 50 and (np.diff(lines) > 0).all()
    assert not np.array_equal(read(path, max_rows=50, seed=1).kept[0].lines, lines)
    monkeypatch.setattr(criteo_rows, "BLOCK", 2000)
    np.testing.assert_array_equal(read(path, max_rows=50).kept[0].lines, lines)


def test_rows_are_drawn_evenly(path):
    lines = read(path).kept[0].lines
    drawn = [read(path, max_rows=50, seed=seed).kept[0].lines for seed in range(30)]
    mean = np.mean([np.searchsorted(lines, some).mean() for some in drawn])
    # 1,500 places, uniform over the campaign's rows: five standard errors of their mean, false alarms below 1e-6.
    assert abs(mean - (len(lines) - 1) / 2) < 5 * len(lines) / np.sqrt(12 * 1500)


BROKEN = {
    "18 cells": (line().replace("\t7\t", "\t"), "18 cells, but a row has 19 cells between tabs"),
    "20 cells": (line(int3="3\t3"), "20 cells, but a row has 19 cells"),
    "letters in a number": (line(int4="4x"), "int4 '4x', but int4 must be a whole number or empty"),
    "a fraction": (line(int7="1.5"), "int7 '1.5', but int7 must be a whole number"),
    "a long number": (line(int1="1" * 19), "int1 '1111.*', but int1 must be a whole number"),
    "no click": (line(click_ts=""), "click_ts '', but click_ts must be whole seconds$"),
    "letters in a time": (line(conv_ts="2e3"), "conv_ts '2e3', but conv_ts must be whole seconds or empty"),
    "a sign alone": (line(int2="-"), "int2 '-', but int2 must be a whole number"),
    "conversion before the click": (line(conv_ts="99"), "a click at 100 and a conversion at 99, but 0 ≤ click_ts"),
    "a time before the log": (line(click_ts="-5"), "a click at -5.*, but 0 ≤ click_ts ≤ conv_ts"),
    "a short category": (line(cat9="abc"), "cat9 'abc', but cat9 must be 8 hexadecimal digits or empty"),
    "a word as category": (line(cat1="xyzxyzxy"), "cat1 'xyzxyzxy', but cat1 must be 8 hexadecimal"),
    "control characters": (line(cat2="abc\x00\x01123"), "cat2 .*, but cat2 must be 8 hexadecimal"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_few_broken_rows_are_left_out_and_told(tmp_path, kind):
    broken, message = BROKEN[kind]
    path = write(tmp_path / "data.txt", [*[line(int8="1")] * 150, broken, *[line(int8="2")] * 150])
    with pytest.warns(UserWarning, match=rf"1 of 301 rows are broken and left out \(line 151: {message.rstrip('$')}"):
        reading = read(path)
    assert (reading.total, reading.broken, reading.counts[0]) == (301, 1, 300)
    assert [problem.line for problem in reading.problems] == [151]
    assert not (reading.kept[0].lines == 151).any() and len(reading.kept[0]) == 300


@pytest.mark.parametrize("kind", BROKEN)
def test_many_broken_rows_are_refused_with_file_line_rule_and_remedy(tmp_path, kind):
    broken, message = BROKEN[kind]
    path = write(tmp_path / "data.txt", [*[line()] * 50, *[broken] * 2, *[line()] * 50])
    told = message.rstrip("$").replace(", but", r" \(one of 2 broken rows of 102\), but")
    with pytest.raises(InputError, match=rf"row 51: got {told}.*; give Criteo's data.txt") as caught:
        read(path)
    assert path in str(caught.value)


def test_the_share_is_of_the_campaigns_own_rows(tmp_path):
    """2 broken of 100 rows of a campaign are too many, also where a thousand others are sound."""
    others = [line(cat3=OTHER, int1="letters")] * 1000
    path = write(tmp_path / "data.txt", [*others, *[line()] * 98, *[line(int1="letters")] * 2])
    with pytest.raises(InputError, match="row 1099: got int1 'letters'"):
        read(path)
    # Nothing but the number of cells matters in rows that nobody asked for.
    path = write(tmp_path / "data.txt", [*others, *[line()] * 100])
    assert (read(path).total, read(path).broken) == (1100, 0)


def test_only_the_first_problems_are_told_and_all_are_counted(tmp_path):
    path = write(tmp_path / "data.txt", [*[line()] * 2000, *[line(int1="x"), "short\n"] * 4])
    with pytest.warns(UserWarning, match=r"8 of 2008 rows.*line 2001:.*line 2005:.*; …\)"):
        reading = read(path)
    assert reading.broken == 8
    assert [problem.line for problem in reading.problems] == [2001, 2002, 2003, 2004, 2005]


def test_a_truncated_last_row_is_told(path, tmp_path):
    data = path.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    for cut in (last + 20, len(data) - 4):
        copy = tmp_path / "cut.txt"
        copy.write_bytes(data[:cut])
        campaign = data[last:].split(b"\t")[CAMPAIGN].decode()
        with pytest.warns(UserWarning, match="1 of 6000 rows are broken and left out .line 6000"):
            reading = read(copy, [campaign])
        assert reading.counts[0] == read(path, [campaign]).counts[0] - 1


def test_a_missing_campaign_is_named(path):
    with pytest.raises(UnknownNameError, match="6000 rows, none of 0badcafe, but every requested campaign must have"):
        read(path, [MINE, "0badcafe"])


def test_files_that_are_something_else_are_refused_at_once(tmp_path):
    wrong = {
        "1 cell .one of .* broken rows of .*19 cells between tabs": ["a,b,c\n"] * 200_000,
        "without a line end": ["x" * 3_000_000],
        "0 rows, none of": ["\n"],
    }
    for message, lines in wrong.items():
        with pytest.raises((InputError, UnknownNameError), match=message):
            read(write(tmp_path / "wrong.txt", lines))
    with pytest.raises(InputError, match="the file must be readable; check the path"):
        read(tmp_path / "nowhere.txt")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(line().encode() * 1000)[:-20])
    with pytest.raises(InputError, match="a gzip file must be complete"):
        read(tmp_path / "cut.gz")


CELL = st.one_of(
    st.sampled_from(["", "-", "-1", "0", "007", "+1", " 1", "1 ", "12345678", "123456789", "1" * 18, "9" * 19, "١"]),
    st.integers(-(10**20), 10**20).map(str),
    st.integers(0, 2**33).map("{:08x}".format),
    st.text("0123456789abcdefgABCDEFG-. \x00\x7f", max_size=10),
)


@given(changes=st.dictionaries(st.sampled_from([n for n in NAMES if n != "cat3"]), CELL, max_size=4))
@example({"conv_ts": "100"})
@example({"int1": "9" * 18, "int2": "-" + "9" * 18, "cat1": "FFFFFFFF"})
def test_any_row_is_read_as_cell_by_cell_or_told(tmp_path_factory, changes):
    """The fast reader takes a row if and only if a plain reading of its cells finds nothing wrong."""
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    path = write(folder / "data.txt", [*[line()] * 120, line(**changes)])
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        reading = read(path)
    cells = dict(zip(NAMES, ROW, strict=True)) | changes
    numbers = [cells[name].removeprefix("-") for name in NAMES[:10]]
    sound = all(
        not cells[name] or (number.isascii() and number.isdigit() and len(number) <= 18)
        for name, number in zip(NAMES[:10], numbers, strict=True)
    )
    hashes = [cells[name] for name in NAMES[10:]]
    sound &= all(not h or (len(h) == 8 and set(h.lower()) <= set("0123456789abcdef")) for h in hashes)
    sound = sound and cells["click_ts"] != "" and 0 <= int(cells["click_ts"])
    sound = sound and (not cells["conv_ts"] or int(cells["conv_ts"]) >= int(cells["click_ts"]))
    assert reading.broken == (not sound)
    if sound:
        np.testing.assert_array_equal(flat(reading.kept[0]), read_naively(path, MINE))
    else:
        assert reading.problems[0].line == 121
        got, rule = explained(line("", **changes).encode())
        assert (reading.problems[0].got, reading.problems[0].rule) == (got, rule)


def test_memory_does_not_grow_with_the_file(path, tmp_path):
    """Four times the rows, beyond those that are kept, take the same memory; a list of them would take four times."""
    data = path.read_bytes()
    peaks = []
    for times in (5, 20):
        copy = tmp_path / f"{times}.txt"
        copy.write_bytes(data * times)
        tracemalloc.start()
        read(copy, CAMPAIGNS, max_rows=200)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
