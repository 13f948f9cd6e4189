"""Are two lists of files the same table, in the same order? Asked of pyarrow, DuckDB and Polars, each by its own means."""

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from compaction import first_and_last


def ordered(folder):
    """The Parquet files of one key, by number."""
    return sorted(folder.glob("chunks-*.parquet"), key=lambda path: first_and_last(path.name))


def by_pyarrow(paths):
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths]).combine_chunks()


def by_duckdb(paths):
    """Rows, and two sums over hashes of each row with its position: order counts."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET preserve_insertion_order = true")
        files = [str(path) for path in paths]
        return connection.execute(
            "SELECT count(*), sum(hash(place, t)), sum(hash(t, place, 7)) FROM"
            " (SELECT row_number() OVER () AS place, t FROM read_parquet(?, hive_partitioning = false) t)",
            [files],
        ).fetchone()


def by_polars(paths):
    return polars.concat([polars.read_parquet(path, hive_partitioning=False, glob=False) for path in paths])


def are_equal(before, after):
    """Asserts it with every reader; returns the number of rows."""
    left, right = by_pyarrow(before), by_pyarrow(after)
    assert left.schema.equals(right.schema), "pyarrow: another schema"
    assert left.num_rows == right.num_rows
    for name in left.schema.names:
        assert left.column(name).equals(right.column(name)), f"pyarrow: column {name} differs"
    assert by_duckdb(before) == by_duckdb(after), "DuckDB: other rows"
    assert by_polars(before).equals(by_polars(after)), "Polars: other rows"
    return left.num_rows
