"""Files without rows, in every form that writers leave them."""

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bytes import REQUIRED, Chunk, element, text

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
BY_HAND = [element("id", "INT64", REQUIRED), text("name")]
EMPTY_GROUP = (0, [Chunk(["id"], "INT64", []), Chunk(["name"], "BYTE_ARRAY", [], [], None, 1)])


def people(first, last):
    return pa.table({"id": pa.array(range(first, last), pa.int64()), "name": [f"n{i}" for i in range(first, last)]}, SCHEMA)


def test_files_without_rows_add_nothing_and_stop_nothing(source, compact):
    source.put("labels/en", 0, people(0, 5))
    source.put_by_hand("labels/en", 1, [], BY_HAND, [])
    source.put_by_hand("labels/en", 2, [], BY_HAND, [EMPTY_GROUP])
    source.put("labels/en", 3, people(5, 6))
    mixed = source.put("labels/en", 4, people(20, 25))
    with pq.ParquetWriter(mixed, SCHEMA) as writer:  # an empty group between full ones
        for part in (people(20, 23), people(0, 0), people(23, 25)):
            writer.write_table(part)
    source.put("labels/en", 5, people(0, 0))
    # The first files of a key hold nothing.
    source.put_by_hand("labels/de", 0, [], BY_HAND, [])
    source.put("labels/de", 1, people(0, 0))
    source.put("labels/de", 2, people(7, 9))

    done = compact().succeeded()
    for unit, count in (("labels/en", 11), ("labels/de", 2)):
        assert len(source.expected(unit)) == count
        done.has(unit).keeps_schema(unit)
    done.is_tidy()


def test_a_key_of_empty_files_keeps_one_file_with_its_schema(source, compact):
    source.put("labels/none", 0, people(0, 0))
    source.put("labels/none", 1, people(0, 0))

    done = compact().succeeded().has("labels/none", expected=[]).keeps_schema("labels/none")
    assert len(done.outputs("labels/none")) == 1


def test_rows_without_columns_are_counted_or_refused(source, compact):
    for chunk, count in enumerate([3, 4]):
        source.put_by_hand("bare/all", chunk, [()] * count, [], [(count, [])])
        assert pq.read_metadata(source.place("bare/all", chunk)).num_rows == count

    done = compact()
    if done.run.code == 0:
        assert sum(pq.read_metadata(path).num_rows for path in done.outputs("bare/all")) == 7
    else:
        done.refused("bare/all", "column")
