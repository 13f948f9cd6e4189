"""What a file says about itself beside its rows: field ids, key-value metadata, the pandas index."""

import json

import pandas
import pyarrow as pa
import pytest

import parquet_bytes


def numbered(name, kind, number, nullable=True):
    return pa.field(name, kind, nullable, {b"PARQUET:field_id": str(number).encode()})


@pytest.mark.parametrize("arrow_schema", [False, True], ids=["as a JVM writer leaves them", "with a stored Arrow schema"])
def test_field_ids_of_every_level_stay(source, compact, arrow_schema):
    place = pa.struct([numbered("lat", pa.float64(), 12), numbered("lon", pa.float64(), 11)])
    entries = pa.map_(numbered("key", pa.string(), 31, False), numbered("value", pa.list_(numbered("element", pa.int32(), 41)), 32))
    schema = pa.schema([
        numbered("id", pa.int64(), 1, False), numbered("at", place, 7), numbered("tags", pa.list_(numbered("element", pa.string(), 21)), 20),
        numbered("by_key", entries, 30), numbered("last", pa.date32(), 2),
    ])
    for chunk in range(3):
        made = [
            {"id": chunk * 2 + i, "at": None if i else {"lat": chunk, "lon": -chunk}, "tags": [f"t{chunk}", None], "by_key": [("k", [chunk, None])], "last": None}
            for i in range(2)
        ]
        source.put("geo/all", chunk, pa.Table.from_pylist(made, schema), store_schema=arrow_schema)

    done = compact().succeeded().has("geo/all").keeps_schema("geo/all").is_tidy()
    ids = {element.field_id for element in parquet_bytes.elements(done.outputs("geo/all")[0])}
    assert {1, 2, 7, 11, 12, 20, 21, 30, 31, 32, 41} <= ids


def test_a_pandas_range_index_fits_the_joined_rows(source, compact):
    for chunk in range(3):
        frame = pandas.DataFrame({"x": [chunk, chunk + 1, chunk + 2], "s": ["a", None, f"c{chunk}"]}, index=pandas.RangeIndex(5, 8))
        source.put("frames/range", chunk, pa.Table.from_pandas(frame))

    done = compact().succeeded().keeps_schema("frames/range")
    path = done.outputs("frames/range")[0]
    frame = pandas.read_parquet(path)
    assert (len(frame), len(frame.index), list(frame.columns)) == (9, 9, ["x", "s"])
    stored = parquet_bytes.key_values(path).get("pandas")
    for index in json.loads(stored)["index_columns"] if stored else []:
        if isinstance(index, dict) and index["kind"] == "range":
            assert len(range(index["start"], index["stop"], index["step"])) == 9


def test_a_named_pandas_index_stays_the_index(source, compact):
    for chunk in range(3):
        index = pandas.Index([f"k{chunk}", f"l{chunk}"], name="code")
        source.put("frames/named", chunk, pa.Table.from_pandas(pandas.DataFrame({"x": [float(chunk), float("nan")]}, index=index)))

    done = compact().succeeded().keeps_schema("frames/named")
    frame = pandas.read_parquet(done.outputs("frames/named")[0])
    assert (frame.index.name, list(frame.index), list(frame.columns)) == ("code", ["k0", "l0", "k1", "l1", "k2", "l2"], ["x"])


def with_metadata(value):
    return pa.table({"id": [1, 2]}).replace_schema_metadata({"licence": "CC0", "made": value})


def test_key_value_metadata_of_the_writers_stays(source, compact):
    for chunk in range(2):
        source.put("notes/all", chunk, with_metadata("2024"))

    done = compact().succeeded().has("notes/all")
    stored = parquet_bytes.key_values(done.outputs("notes/all")[0])
    assert (stored["licence"], stored["made"]) == ("CC0", "2024")


def test_conflicting_key_value_metadata_is_reported(source, compact):
    for chunk in range(2):
        source.put("notes/all", chunk, with_metadata(f"in {2020 + chunk}"))

    done = compact().succeeded().has("notes/all")
    assert parquet_bytes.key_values(done.outputs("notes/all")[0])["licence"] == "CC0"
    done.run.names("made")


def test_an_output_says_what_it_was_made_from_and_its_fingerprint(source, compact):
    for chunk in range(2):
        source.put("notes/all", chunk, pa.table({"id": [chunk]}))

    done = compact().succeeded()
    own = {key: value for key, value in parquet_bytes.key_values(done.outputs("notes/all")[0]).items() if key.startswith("baler.")}
    assert any("fingerprint" in key for key in own), own
