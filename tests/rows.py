"""Rows as plain Python values that compare exactly, read by three readers that are not Baler's.

A value is None, or a tuple that starts with its kind: floats by their bits (every NaN alike), instants in nanoseconds
and whether they are UTC, decimals by their digits. A map is a list of entries. So -0.0 differs from 0.0, null from an
empty list, and a struct of nulls from a null struct.
"""

import struct

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def column(array):
    """The values of an Arrow array or chunked array."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in column(chunk)]
    if isinstance(array, pa.ExtensionArray):
        return column(array.storage)
    kind = array.type
    is_ = pa.types
    if is_.is_dictionary(kind):
        words = column(array.dictionary)
        return [None if code is None else words[code] for code in array.indices.to_pylist()]
    if is_.is_null(kind):
        return [None] * len(array)
    present = array.is_valid().to_pylist()

    def each(values, make):
        return [make(value) if there else None for value, there in zip(values, present)]

    if is_.is_boolean(kind):
        return each(array.to_pylist(), lambda value: ("bool", value))
    if is_.is_integer(kind):
        return each(array.to_pylist(), lambda value: ("int", value))
    if is_.is_floating(kind):
        return each(array.to_pylist(), lambda value: ("float", "nan" if value != value else struct.pack(">d", value).hex()))
    if is_.is_decimal(kind):
        return each(array.to_pylist(), lambda value: ("decimal", f"{value.normalize():f}" if value else "0"))
    if is_.is_string(kind) or is_.is_large_string(kind) or str(kind) == "string_view":
        as_bytes = array.cast(pa.large_string()).view(pa.large_binary())
        return each(as_bytes.to_pylist(), lambda value: ("text", value))
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        return each(array.to_pylist(), lambda value: ("bytes", value))
    if is_.is_date32(kind):
        return each(array.view(pa.int32()).to_pylist(), lambda value: ("date", value))
    if is_.is_time(kind):
        raw = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        return each(raw.to_pylist(), lambda value: ("time", value * NANOSECONDS[kind.unit]))
    if is_.is_timestamp(kind):
        zone = "utc" if kind.tz else "local"
        return each(array.view(pa.int64()).to_pylist(), lambda value: ("instant", value * NANOSECONDS[kind.unit], zone))
    if is_.is_struct(kind):
        children = [(part.name, column(array.field(i))) for i, part in enumerate(kind)]
        return each(range(len(array)), lambda i: ("struct", *((name, values[i]) for name, values in children)))
    if is_.is_map(kind):
        offsets, keys, values = array.offsets.to_pylist(), column(array.keys), column(array.items)
        entry = lambda i: ("struct", ("key", keys[i]), ("value", values[i]))
        return each(range(len(array)), lambda i: ("list", *map(entry, range(offsets[i], offsets[i + 1]))))
    if is_.is_fixed_size_list(kind):
        values, size, first = column(array.values), kind.list_size, array.offset
        return each(range(len(array)), lambda i: ("list", *values[(first + i) * size : (first + i + 1) * size]))
    if is_.is_list(kind) or is_.is_large_list(kind):
        offsets, values = array.offsets.to_pylist(), column(array.values)
        return each(range(len(array)), lambda i: ("list", *values[offsets[i] : offsets[i + 1]]))
    raise TypeError(f"no plain form of {kind}")


def of(table):
    """The rows of an Arrow table or batch, in order."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(column(table.column(i)) for i in range(table.num_columns))))


def by_pyarrow(path, **options):
    with pq.ParquetFile(path, **options) as file:
        return [row for batch in file.iter_batches(batch_size=4096) for row in of(batch)]


def by_duckdb(path):
    # DuckDB takes these for patterns.
    literal = "".join(f"[{c}]" if c in "[*?" else c for c in str(path))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        relation = connection.execute("SELECT * FROM read_parquet(?, hive_partitioning = false)", [literal])
        return [row for batch in relation.to_arrow_reader(4096) for row in of(batch)]


def by_polars(path):
    frame = polars.read_parquet(path, hive_partitioning=False, glob=False)
    return of(frame.to_arrow(compat_level=polars.CompatLevel.oldest()))


def by_arro3(path):
    """arrow-rs through Python: for what DuckDB and Polars do not read."""
    import arro3.io

    return of(pa.table(arro3.io.read_parquet(path).read_all()))


READERS = {"pyarrow": by_pyarrow, "duckdb": by_duckdb, "polars": by_polars, "arro3": by_arro3}
THREE = ("pyarrow", "duckdb", "polars")
