"""Files of one key whose schemas differ: refused with the column named, or merged where that was asked for."""

from decimal import Decimal

import pyarrow as pa
import pytest

import rows


def strings(columns, chunk):
    return pa.table({name: [f"{name}-{chunk}-{row}" for row in range(3)] for name in columns})


def other_key(source):
    """A key beside the troubled one, which must be compacted all the same."""
    for chunk in range(2):
        source.put("other/all", chunk, pa.table({"id": [chunk, chunk + 10]}))


DRIFTS = {
    "type": ({"id": pa.int64()}, {"id": pa.int32()}, "id"),
    "decimal precision": ({"seconds": pa.decimal128(7, 5)}, {"seconds": pa.decimal128(8, 5)}, "seconds"),
    "decimal scale": ({"price": pa.decimal128(9, 2)}, {"price": pa.decimal128(9, 3)}, "price"),
    "time zone": ({"at": pa.timestamp("us", "UTC")}, {"at": pa.timestamp("us")}, "at"),
    "unit": ({"at": pa.timestamp("us")}, {"at": pa.timestamp("ms")}, "at"),
    "missing column": ({"id": pa.int64(), "note": pa.string()}, {"id": pa.int64()}, "note"),
    "added column": ({"id": pa.int64()}, {"id": pa.int64(), "note": pa.string()}, "note"),
    "case of a name": ({"id": pa.int64(), "Note": pa.string()}, {"id": pa.int64(), "note": pa.string()}, "note"),
    "null type": ({"id": pa.int64(), "text": pa.null()}, {"id": pa.int64(), "text": pa.string()}, "text"),
    "field of a struct": (
        {"span": pa.struct([("low", pa.int64()), ("high", pa.int64())])},
        {"span": pa.struct([("low", pa.int64()), ("top", pa.int64())])},
        "span",
    ),
    "order": ({"a": pa.string(), "b": pa.string()}, {"b": pa.string(), "a": pa.string()}, "order"),
    "text and bytes": ({"name": pa.string()}, {"name": pa.binary()}, "name"),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_key_with_differing_schemas_is_refused_and_others_go_on(source, compact, drift):
    first, second, word = DRIFTS[drift]
    for chunk, columns in enumerate([first, first, second]):
        source.put("drift/all", chunk, pa.table({name: pa.array([None, None], kind) for name, kind in columns.items()}))
    other_key(source)

    done = compact().refused("drift/all", "key all", "all/chunks-0002.parquet", word)
    done.has("other/all")


def test_nullability_alone_is_a_difference_too(source, compact):
    for chunk, nullable in enumerate([True, True, False]):
        schema = pa.schema([pa.field("id", pa.int64(), nullable)])
        source.put("drift/all", chunk, pa.table({"id": [1, 2]}, schema))
    other_key(source)

    compact().refused("drift/all", "chunks-0002.parquet", "id").has("other/all")


def test_evolve_matches_reordered_columns_by_name(source, compact):
    expected = []
    for chunk, order in enumerate(["abcd", "cbad", "dcba", "abcd"]):
        table = strings("abcd", chunk)
        expected += rows.of(table)
        source.put("places/all", chunk, table.select(list(order)))

    compact("--evolve").succeeded().has("places/all", expected).keeps_schema("places/all").is_tidy()


def test_evolve_matches_reordered_fields_of_a_struct_by_name(source, compact):
    spans = [pa.struct([("low", pa.int64()), ("high", pa.int64())]), pa.struct([("high", pa.int64()), ("low", pa.int64())])]
    expected = []
    for chunk in range(2):
        made = [{"low": 1 + chunk, "high": 100 + chunk}, None, {"low": None, "high": 7}]
        expected += rows.of(pa.table({"span": pa.array(made, spans[0])}))
        source.put("places/all", chunk, pa.table({"span": pa.array(made, spans[chunk])}))

    compact("--evolve").succeeded().has("places/all", expected).keeps_schema("places/all")


def test_evolve_fills_a_missing_column_with_null(source, compact):
    source.put("notes/all", 0, pa.table({"id": [1, 2]}))
    source.put("notes/all", 1, pa.table({"id": [3], "note": ["three"]}))

    expected = rows.of(pa.table({"id": [1, 2, 3], "note": [None, None, "three"]}))
    compact("--evolve").succeeded().has("notes/all", expected)


def test_evolve_relaxes_required_to_nullable(source, compact):
    for chunk, nullable in enumerate([False, True]):
        schema = pa.schema([pa.field("id", pa.int64(), nullable)])
        source.put("ids/all", chunk, pa.table({"id": [chunk, chunk + 5]}, schema))

    compact("--evolve").succeeded().has("ids/all").keeps_schema("ids/all", of=1)


def test_evolve_never_cuts_a_decimal(source, compact):
    """Widened exactly, or refused: never the narrower type."""
    amounts = [(7, ["12.34567", "-0.00001"]), (8, ["166.47135", None]), (7, ["99.99999"])]
    for chunk, (precision, values) in enumerate(amounts):
        made = [value and Decimal(value) for value in values]
        source.put("timing/all", chunk, pa.table({"seconds": pa.array(made, pa.decimal128(precision, 5))}))

    done = compact("--evolve")
    if done.run.code == 0:
        done.has("timing/all").keeps_schema("timing/all", of=1)
    else:
        done.refused("timing/all", "seconds")


def test_evolve_gives_a_null_typed_column_its_real_type_or_refuses_it(source, compact):
    source.put("notes/all", 0, pa.table({"id": [1, 2], "text": pa.nulls(2), "tags": pa.array([[], None], pa.list_(pa.null()))}))
    source.put("notes/all", 1, pa.table({"id": [3, 4], "text": ["three", None], "tags": pa.array([["t"], [None]])}))

    done = compact("--evolve")
    if done.run.code == 0:
        done.has("notes/all").keeps_schema("notes/all", of=1)
    else:
        done.refused("notes/all", "text")


def test_a_column_that_is_null_in_every_file_keeps_the_null_type(source, compact):
    for chunk in range(2):
        source.put("notes/never", chunk, pa.table({"id": [chunk], "text": pa.nulls(1)}))

    compact().succeeded().has("notes/never", readers=["pyarrow"]).keeps_schema("notes/never")


def test_two_columns_of_one_name_are_both_kept_or_the_key_is_refused(source, compact):
    for chunk in range(3):
        first = [chunk * 3 + i for i in range(3)]
        columns = [first, [10 * i for i in first], [None, "b", f"r{chunk}"], [100 * i for i in first]]
        table = pa.Table.from_arrays([pa.array(values) for values in columns], names=["id", "value", "note", "value"])
        source.put("joined/all", chunk, table)

    done = compact()
    if done.run.code == 0:
        done.has("joined/all", readers=["pyarrow"]).keeps_schema("joined/all").is_tidy()
    else:
        done.refused("joined/all", "duplicate", "value")
