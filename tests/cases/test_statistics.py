"""Statistics, page indexes and bloom filters: what a reader may skip by must be true."""

import struct

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import polars
import pytest

import parquet_bytes
import rows
from parquet_bytes import REQUIRED, Chunk, element

NAN, INFINITY = float("nan"), float("inf")
FLOATS = [
    [0.0, -0.0, NAN, 5.0, None], [NAN] * 5, [5.0, 5.0, NAN, 5.0, 5.0], [INFINITY, -INFINITY, 5e-324, -5e-324, 1.5],
    [-0.0, -0.0, -0.0, None, -0.0], [0.0, 0.0, 0.0, None, 0.0],
]


def bounds(path):
    """(column, low, high, values) of every chunk and page that has bounds, by the file's own bytes."""
    data = path.read_bytes()
    meta, file = parquet_bytes.footer(path), pq.ParquetFile(path)
    found = []
    for number, group in enumerate(parquet_bytes.row_groups(meta)):
        table = file.read_row_group(number)
        for column, leaf in enumerate(parquet_bytes.leaves(meta)):
            values = table.column(leaf.path).to_pylist()
            chunk = group.value(1)[column]
            statistics = chunk.value(3).value(12)
            if statistics:
                nulls = statistics.value(3)
                assert nulls is None or nulls == sum(value is None for value in values), leaf.path
                for low, high in ((6, 5), (2, 1)):
                    found.append((leaf, statistics.value(low), statistics.value(high), values))
            if not (chunk.value(6) and chunk.value(4)):
                continue
            index, offsets = (parquet_bytes.index_at(data, chunk.value(field)) for field in (6, 4))
            first = [location.value(3, 0) for location in offsets.value(1)] + [len(values)]
            for page, all_null in enumerate(index.value(1)):
                part = values[first[page] : first[page + 1]]
                if all_null:
                    assert all(value is None for value in part)
                else:
                    found.append((leaf, index.value(2)[page], index.value(3)[page], part))
    return found


def holds_true(path):
    """No bound is NaN, a zero bound has the sign that hides no zero, every value lies within its bounds."""
    checked = 0
    for leaf, low, high, values in bounds(path):
        layout = {"FLOAT": "<f", "DOUBLE": "<d", "INT32": "<i", "INT64": "<q"}.get(leaf.physical)
        if not layout or leaf.meaning not in (None, "timestamp(us,local)"):
            continue
        real = [value for value in values if value is not None and value == value]
        low, high = (raw and struct.unpack(layout, raw)[0] for raw in (low, high))
        for side, raw in (("low", low), ("high", high)):
            if raw is None:
                continue
            checked += 1
            assert raw == raw, f"{leaf.path}: the {side} bound is NaN"
            if raw == 0 and leaf.physical in ("FLOAT", "DOUBLE"):
                assert str(raw) == ("-0.0" if side == "low" else "0.0"), f"{leaf.path}: {side} bound {raw}"
            if real:
                assert raw <= min(real) if side == "low" else raw >= max(real), f"{leaf.path}: {side} bound {raw}"
    return checked


def count(path, condition):
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT count(*) FROM read_parquet('{path}') WHERE {condition}").fetchone()[0]


def test_floats_keep_their_bits_and_no_filter_loses_a_row(source, compact):
    for chunk, values in enumerate(FLOATS):
        table = {"id": pa.array(range(chunk * 5, chunk * 5 + 5), pa.int64()), "x": pa.array(values, pa.float64()), "y": pa.array(values[::-1], pa.float32())}
        source.put("floats/all", chunk, pa.table(table))

    done = compact().succeeded().has("floats/all").keeps_schema("floats/all").is_tidy()
    path = done.outputs("floats/all")[0]
    assert holds_true(path) > 0
    present = [value for values in FLOATS for value in values if value is not None]
    for value in (0.0, 5.0, 1.5, -INFINITY):
        wanted = sum(x == value for x in present)
        assert count(path, f"x = '{value}'::double") == wanted
        assert polars.scan_parquet(path).filter(polars.col("x") == value).collect().height == wanted
        assert pa.dataset.dataset(path).count_rows(filter=pa.compute.field("x") == value) == wanted
    assert count(path, "x < -1") == 1


def test_bounds_that_are_nan_in_a_source_are_not_copied(source, compact):
    schema = [element("x", "DOUBLE", REQUIRED), element("y", "FLOAT", REQUIRED)]
    values = [NAN, -7.5, 2.0, NAN, 9.0]
    made = rows.of(pa.table({"x": pa.array(values, pa.float64()), "y": pa.array(values, pa.float32())}))
    for chunk in range(2):
        double, single = struct.pack("<d", NAN), struct.pack("<f", NAN)
        chunks = [
            Chunk(["x"], "DOUBLE", values, statistics=(double, double, 0)), Chunk(["y"], "FLOAT", values, statistics=(single, single, 0)),
        ]
        source.put_by_hand("floats/old", chunk, made, schema, [(5, chunks)])

    done = compact().succeeded().has("floats/old")
    path = done.outputs("floats/old")[0]
    holds_true(path)
    assert (count(path, "x = 9"), count(path, "x < -1"), count(path, "isnan(x)")) == (2, 2, 4)


def test_lying_statistics_of_a_source_are_recomputed(source, compact):
    schema = [element("n", "INT64", REQUIRED)]
    for chunk in range(2):
        values = [chunk * 100 + i for i in range(5)]
        lie = (struct.pack("<q", 9000), struct.pack("<q", -9000), 3)
        source.put_by_hand("lies/all", chunk, [(("int", i),) for i in values], schema, [(5, [Chunk(["n"], "INT64", values, statistics=lie)])])

    done = compact().succeeded().has("lies/all", readers=["pyarrow", "polars"])
    path = done.outputs("lies/all")[0]
    assert holds_true(path) > 0
    assert count(path, "n = 103") == 1


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_outputs_have_a_page_index(source, compact, codec):
    for chunk in range(3):
        source.put("pages/all", chunk, pa.table({"n": range(5000), "s": [f"text {i}" for i in range(5000)]}), compression=codec)

    done = compact().succeeded().has("pages/all")
    for group in parquet_bytes.row_groups(parquet_bytes.footer(done.outputs("pages/all")[0])):
        assert all(chunk.value(4) and chunk.value(6) for chunk in group.value(1))
    holds_true(done.outputs("pages/all")[0])


def test_long_texts_have_true_bounds_after_truncation(source, compact):
    words = ["a" * 500, "\u00ff" * 300, "", "z" * 100 + "\U0010ffff" * 50, "m"]
    for chunk in range(2):
        source.put("texts/all", chunk, pa.table({"s": words, "b": pa.array([b"\xff" * 200, b"", b"\0", b"\xff\xff", b"x" * 99])}))

    done = compact().succeeded().has("texts/all")
    for leaf, low, high, values in bounds(done.outputs("texts/all")[0]):
        real = [value.encode() if isinstance(value, str) else value for value in values]
        assert low is None or low <= min(real), leaf.path
        assert high is None or high >= max(real), leaf.path


def test_a_bloom_filter_of_the_sources_is_built_anew(source, compact):
    for chunk in range(4):
        keys = [f"user-{(chunk * 50 + i) * 7919 % 100_003:06d}" for i in range(50)]
        table = pa.table({"key": keys, "other": pa.array(range(50), pa.int64())})
        source.put("users/all", chunk, table, bloom_filter_options={"key": {"ndv": 64, "fpp": 0.01}})

    done = compact().succeeded().has("users/all").keeps_schema("users/all").is_tidy()
    path = done.outputs("users/all")[0]
    for group in parquet_bytes.row_groups(parquet_bytes.footer(path)):
        key, other = (parquet_bytes.chunk_meta(group, column) for column in range(2))
        assert key.value(14) and not other.value(14)
    with duckdb.connect() as connection:
        probe = lambda value: [
            excluded for _, _, excluded in connection.execute("SELECT * FROM parquet_bloom_probe(?, 'key', ?)", [str(path), value]).fetchall()
        ]
        for value in pq.read_table(path).column("key").to_pylist():
            assert not any(probe(value)), f"the filter excludes {value}, which is there"
        assert any(all(probe(f"nobody-{i}")) for i in range(20)), "the filter excludes nothing"


def test_a_false_claim_of_order_is_dropped(source, compact):
    for chunk in range(2):
        source.put("orders/all", chunk, pa.table({"n": [5, 1, 9, chunk]}), sorting_columns=[pq.SortingColumn(0)])

    done = compact().succeeded().has("orders/all")
    for group in parquet_bytes.row_groups(parquet_bytes.footer(done.outputs("orders/all")[0])):
        assert not group.value(4)


def test_a_single_right_file_with_false_statistics_is_written_anew(source, compact):
    """Such a file would be taken over byte for byte, and its lie with it."""
    path = source.put("lies/all", 0, pa.table({"n": pa.array(range(7_000_111, 7_000_911), pa.int64())}), write_page_index=True)
    data = bytearray(path.read_bytes())
    length = struct.unpack("<i", data[-8:-4])[0]
    least, lie = struct.pack("<q", 7_000_111), struct.pack("<q", 7_000_500)
    footer = bytes(data[-8 - length :])
    assert least in footer
    data[-8 - length :] = footer.replace(least, lie)
    path.write_bytes(data)

    done = compact().succeeded().has("lies/all", readers=["pyarrow"]).is_tidy()
    (made,) = done.outputs("lies/all")
    assert made.read_bytes() != bytes(data)
    assert holds_true(made) > 0
    assert count(made, "n = 7000200") == 1


def test_a_single_right_file_is_taken_over_byte_for_byte(source, compact):
    path = source.put("right/all", 0, pa.table({"n": range(800)}), write_page_index=True)
    (made,) = compact().succeeded().has("right/all").outputs("right/all")
    assert made.read_bytes() == path.read_bytes()
