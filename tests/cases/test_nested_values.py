"""Null, empty and filled values at every level of nesting, and the shapes of lists and maps that other writers use."""

import pyarrow as pa

from parquet_bytes import OPTIONAL, REPEATED, REQUIRED, Chunk, element, text
import rows

STATEMENT = pa.struct([("note", pa.string()), ("rank", pa.int64()), ("tags", pa.list_(pa.string()))])
EMPTY = {"note": None, "rank": None, "tags": None}


def test_null_empty_and_struct_of_nulls_stay_apart_at_every_level(source, compact):
    schema = pa.schema([
        ("id", pa.int64()), ("statements", pa.list_(STATEMENT)), ("main", STATEMENT),
        ("by_language", pa.map_(pa.string(), pa.list_(STATEMENT))), ("deep", pa.list_(pa.list_(pa.list_(pa.int32())))),
    ])
    lists = [None, [], [None], [EMPTY], [EMPTY, None, {**EMPTY, "rank": 7, "tags": []}], [{**EMPTY, "tags": [None]}], [None, None]]
    mains = [None, EMPTY, {"note": "", "rank": 0, "tags": []}, {**EMPTY, "tags": [None, "x"]}]
    deeps = [None, [], [None], [[]], [[None]], [[[]]], [[[None]]], [[[1, None], None, []], None, [[2]]]]
    number = 0
    for chunk in range(4):
        made = []
        for i in range(17):
            languages = [None, [], [("en", lists[i % 7]), ("de", None)], [("", [])]][i % 4]
            made.append({
                "id": number, "statements": lists[(i + chunk) % 7], "main": mains[number % 4], "by_language": languages,
                "deep": deeps[(i + chunk) % 8],
            })
            number += 1
        source.put("claims/all", chunk, pa.Table.from_pylist(made, schema), row_group_size=6)
    # A child that no other row fills.
    last = {"id": -1, "statements": [{"note": "text", "rank": 1, "tags": None}], "main": None, "by_language": [], "deep": None}
    source.put("claims/all", 4, pa.Table.from_pylist([last], schema))

    compact().succeeded().has("claims/all").keeps_schema("claims/all").is_tidy()


def test_a_group_without_children_is_kept_or_refused_by_name(source, compact):
    schema = [element("id", "INT64", REQUIRED), element("extra", children=0), text("name")]
    for chunk, ids in enumerate([[1, 2], [3], [4, 5]]):
        made = [(("int", i), ("text", b"n%d" % i)) for i in ids]
        chunks = [
            Chunk(["id"], "INT64", ids),
            Chunk(["name"], "BYTE_ARRAY", [f"n{i}" for i in ids], definition=[1] * len(ids), definition_max=1),
        ]
        source.put_by_hand("docs/all", chunk, made, schema, [(len(ids), chunks)])

    done = compact()
    if done.run.code == 0:
        # pyarrow leaves the group out of its own schema; the others refuse the file.
        done.has("docs/all", readers=["pyarrow"]).keeps_schema("docs/all").is_tidy()
    else:
        done.refused("docs/all", "extra")


def maps_by_hand(source, unit, chunk, names, old_mark):
    """Four rows: three entries with a repeated key, an empty map, a null map, and one entry with an empty key."""
    schema = [
        element("id", "INT64", REQUIRED), element("props", children=1, converted=1, logical=2),
        element(names[0], repetition=REPEATED, children=2, converted=2 if old_mark else None), text(names[1]), text(names[2]),
    ]
    ids = [chunk * 10 + i for i in range(4)]
    slots = [0, 1, 1, 0, 0, 0]
    chunks = [
        Chunk(["id"], "INT64", ids),
        Chunk(["props", *names[:2]], "BYTE_ARRAY", ["z", "a", "z", ""], [3, 3, 3, 1, 0, 3], slots, 3, 1),
        Chunk(["props", names[0], names[2]], "BYTE_ARRAY", ["1", "3", "x"], [3, 2, 3, 1, 0, 3], slots, 3, 1),
    ]
    entry = lambda key, value: ("struct", ("key", ("text", key)), ("value", value and ("text", value)))
    maps = [("list", entry(b"z", b"1"), entry(b"a", None), entry(b"z", b"3")), ("list",), None, ("list", entry(b"", b"x"))]
    source.put_by_hand(unit, chunk, [(("int", i), m) for i, m in zip(ids, maps)], schema, [(4, chunks)])


def test_maps_with_an_optional_key_are_copied_in_entry_order(source, compact):
    for chunk in range(3):
        maps_by_hand(source, "maps/hive", chunk, ("map", "key", "value"), old_mark=True)
        maps_by_hand(source, "maps/trino", chunk, ("key_value", "key", "value"), old_mark=False)

    done = compact().succeeded()
    for unit in ("maps/hive", "maps/trino"):
        # pyarrow and Polars refuse such maps, in the sources too.
        done.has(unit, readers=["duckdb", "arro3"]).keeps_schema(unit)
    done.is_tidy()


def test_two_level_and_bare_repeated_lists_are_copied(source, compact):
    schema = [
        element("old", children=1, converted=3), element("array", "INT32", REPEATED),
        element("bare", "INT32", REPEATED),
    ]
    for chunk in range(2):
        first = chunk * 10
        chunks = [
            Chunk(["old", "array"], "INT32", [first, first + 1], [2, 2, 1, 0], [0, 1, 0, 0], 2, 1),
            Chunk(["bare"], "INT32", [first + 5], [0, 1, 0], [0, 0, 0], 1, 1),
        ]
        ints = lambda *values: ("list", *(("int", value) for value in values))
        made = [(ints(first, first + 1), ints()), (ints(), ints(first + 5)), (None, ints())]
        source.put_by_hand("lists/all", chunk, made, schema, [(3, chunks)])

    compact().succeeded().has("lists/all", readers=["pyarrow", "duckdb"]).keeps_schema("lists/all").is_tidy()


def test_fixed_size_lists_keep_null_vectors_null_elements_and_their_size(source, compact):
    vector = pa.list_(pa.float32(), 4)
    schema = pa.schema([
        ("id", pa.int64()), ("embedding", vector), ("inside", pa.struct([("vector", vector), ("n", pa.int32())])),
        ("pairs", pa.list_(pa.list_(pa.int16(), 2))),
    ])
    for chunk in range(4):
        made = []
        for i in range(9):
            value = [None, [None] * 4, [0.0] * 4, [chunk + 0.5, None, -i, 1e30]][i % 4]
            inside = None if i == 8 else {"vector": value, "n": i}
            made.append({"id": chunk * 9 + i, "embedding": value, "inside": inside, "pairs": [None, [], [[1, i], None, [None, 3]]][i % 3]})
        table = pa.Table.from_pylist(made, schema)
        # The first file's arrays do not start at their buffers' beginning.
        source.put("vectors/all", chunk, table if chunk else pa.concat_tables([table, table]).combine_chunks().slice(3, 11), row_group_size=4)

    done = compact().succeeded().has("vectors/all").keeps_schema("vectors/all").is_tidy()
    import pyarrow.parquet as pq

    for path in done.outputs("vectors/all"):
        assert pq.read_schema(path).types == schema.types


def test_rows_of_a_table_compare_by_bits_and_by_null(source):
    """The comparison that every other test relies on."""
    values = pa.array([0.0, -0.0, None, float("nan")], pa.float64())
    zero, minus, null, nan = rows.column(values)
    assert (zero == minus, null, nan) == (False, None, ("float", "nan"))
    lists = pa.array([None, [], [None]], pa.list_(pa.int8()))
    assert rows.column(lists) == [None, ("list",), ("list", None)]
