"""Every codec, encoding and page version in one key, with dictionaries that run full in mid-chunk."""

import pyarrow as pa
import pytest

ROWS = 1500
SMALL = {"data_page_size": 700, "write_batch_size": 64}
PLAIN = dict.fromkeys(["i", "j", "f", "g", "s", "r", "h"], "PLAIN")
DELTA = {
    "i": "DELTA_BINARY_PACKED", "j": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT", "g": "BYTE_STREAM_SPLIT",
    "s": "DELTA_BYTE_ARRAY", "r": "DELTA_LENGTH_BYTE_ARRAY", "b": "RLE", "h": "DELTA_BYTE_ARRAY",
}
WRITERS = {
    "snappy": {"compression": "snappy"},
    "gzip, pages v2": {"compression": "gzip", "data_page_version": "2.0"},
    "brotli": {"compression": "brotli", **SMALL},
    "lz4, plain": {"compression": "lz4", "use_dictionary": False, "column_encoding": PLAIN, **SMALL},
    "zstd, delta, pages v2": {"compression": "zstd", "use_dictionary": False, "column_encoding": DELTA, "data_page_version": "2.0", **SMALL},
    "no codec, delta": {"compression": "none", "use_dictionary": False, "column_encoding": {**DELTA, "s": "DELTA_LENGTH_BYTE_ARRAY", "r": "DELTA_BYTE_ARRAY", "h": "PLAIN"}, **SMALL},
    "old format, full dictionary": {"compression": "snappy", "version": "1.0", "dictionary_pagesize_limit": 512, **SMALL},
    "checksums, full dictionary, pages v2": {
        "compression": "zstd", "dictionary_pagesize_limit": 300, "data_page_version": "2.0", "write_page_checksum": True, "row_group_size": 333, **SMALL,
    },
}


def mixed(file):
    numbers = [file * ROWS + i for i in range(ROWS)]
    return pa.table({
        "i": pa.array([None if n % 11 == 0 else n * n % 1_000_003 - 500_000 for n in numbers], pa.int64()),
        "j": pa.array([n % 3 for n in numbers], pa.int32()),
        "f": pa.array([None if n % 13 == 0 else n / 7 for n in numbers], pa.float64()),
        "g": pa.array([float(n % 100) for n in numbers], pa.float32()),
        "s": [None if n % 17 == 0 else f"prefix/{n // 50:05d}/{n}" for n in numbers],
        # A dictionary that serves at first and runs full later.
        "r": [f"{n % 7}" if n < file * ROWS + 700 else f"unique-{n}" for n in numbers],
        "b": [None if n % 5 == 0 else n % 2 == 0 for n in numbers],
        "h": pa.array([n.to_bytes(6, "big") for n in numbers], pa.binary(6)),
        "l": pa.array([None if n % 9 == 0 else [str(k) for k in range(n % 4)] for n in numbers], pa.list_(pa.string())),
    })


def test_all_writers_in_one_key_give_the_same_values(source, compact):
    for chunk, options in enumerate(WRITERS.values()):
        source.put("mix/all", chunk, mixed(chunk), **options)

    compact().succeeded().has("mix/all").keeps_schema("mix/all").is_tidy()


@pytest.mark.parametrize("writer", WRITERS)
def test_each_writer_alone(source, compact, writer):
    for chunk in range(2):
        source.put("mix/all", chunk, mixed(chunk), **WRITERS[writer])

    compact().succeeded().has("mix/all").keeps_schema("mix/all")


def test_integers_and_fixed_bytes_split_by_byte(source, compact):
    split = dict(DELTA, i="BYTE_STREAM_SPLIT", j="BYTE_STREAM_SPLIT", h="BYTE_STREAM_SPLIT")
    for chunk in range(2):
        source.put("mix/split", chunk, mixed(chunk).slice(0, 200), compression="zstd", use_dictionary=False, column_encoding=split, **SMALL)

    # DuckDB and Polars do not read such sources; the outputs they may.
    compact().succeeded().has("mix/split", readers=["pyarrow", "arro3"]).keeps_schema("mix/split")


def test_outputs_are_zstd_and_named_so(source, compact):
    import parquet_bytes

    for chunk in range(2):
        source.put("mix/all", chunk, mixed(chunk), compression="snappy")

    done = compact().succeeded()
    for group in parquet_bytes.row_groups(parquet_bytes.footer(done.outputs("mix/all")[0])):
        assert {parquet_bytes.chunk_meta(group, column).value(4) for column in range(len(group.value(1)))} == {6}
