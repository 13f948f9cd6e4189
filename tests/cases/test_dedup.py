"""Whole-row duplicates over all files of a key."""

import struct

import pyarrow as pa

import rows

NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]


def distinct(values):
    return list(dict.fromkeys(values))


def test_the_first_of_equal_rows_stays_in_order_of_first_occurrence(source, compact):
    inner = pa.struct([("k", pa.string()), ("v", pa.list_(pa.float64()))])
    schema = pa.schema([("x", pa.float64()), ("s", pa.string()), ("n", inner)])
    base = [
        (1.0, "a", None), (None, None, None), (NAN, "a", {"k": None, "v": [NAN, None]}), (1.0, "a", {"k": None, "v": None}),
        (1.0, "a", {"k": "", "v": []}), (1.0, "a", {"k": "", "v": [None]}), (OTHER_NAN, "a", {"k": None, "v": [OTHER_NAN, None]}),
        (1.0, "", None), (1.0, None, None),
    ]
    zeros = [(0.0, "z", None), (-0.0, "z", None), (0.0, "z", None), (-0.0, "y", None), (0.0, "y", None)]
    parts = [base + zeros[:1], base[::-1], [base[4], (2.0, "a", None), base[4]] + zeros[1:3], zeros[3:] + [base[1]], [base[0]] * 5 + [(3.0, "c", None)]]
    for chunk, part in enumerate(parts):
        source.put("labels/all", chunk, pa.Table.from_pylist([dict(zip(schema.names, row)) for row in part], schema))

    expected = distinct(source.expected("labels/all"))
    assert len(expected) == 14  # 8 of the base, where both NaNs count as one, 4 with zeros, 2 more
    compact("--dedup").succeeded().has("labels/all", expected).keeps_schema("labels/all")


def test_many_duplicates_across_files_and_row_groups(source, compact):
    for chunk in range(4):
        numbers = [(i * 7919 + chunk * 31) % 5000 for i in range(8000)]
        table = pa.table({"n": pa.array(numbers, pa.int32()), "s": [f"value {n % 977}" if n % 11 else None for n in numbers]})
        source.put("labels/all", chunk, table, row_group_size=1500)

    expected = distinct(source.expected("labels/all"))
    assert len(expected) == 5000
    compact("--dedup").succeeded().has("labels/all", expected)


def test_only_the_named_tables_are_deduplicated(source, compact):
    for unit in ("labels/all", "claims/all"):
        for chunk in range(2):
            source.put(unit, chunk, pa.table({"n": [1, 2, 2]}))

    done = compact("--dedup=labels").succeeded()
    done.has("claims/all")
    done.has("labels/all", expected=distinct(source.expected("labels/all")))


def test_keys_are_deduplicated_each_on_its_own(source, compact):
    for unit in ("labels/de", "labels/en"):
        for chunk in range(2):
            source.put(unit, chunk, pa.table({"n": [1, chunk]}))

    done = compact("--dedup").succeeded()
    done.has("labels/de", expected=rows.of(pa.table({"n": [1, 0]})))
    done.has("labels/en", expected=rows.of(pa.table({"n": [1, 0]})))
