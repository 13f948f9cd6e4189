"""Files that are damaged or lie: each is refused by name, its key has no output, and the other keys go on.

Every case is one file between two good ones. The run must end by itself with exit code 1, name the file, and say nothing
of a panic. What is refused here is refused before anything is published.
"""

import random
import struct
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bytes as bytes_of
import rows
from parquet_bytes import BINARY, I32, LIST, REQUIRED, STRUCT, Chunk, List, Struct, element, footer, text

BAD = "chunks-0001.parquet"


def good(first=0, **options):
    """A small real file: a required number, a nullable text with a dictionary, a list."""
    schema = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("tags", pa.list_(pa.int32()))])
    table = pa.table(
        {
            "id": range(first, first + 40),
            "name": [None if i % 7 == 0 else f"n{i % 5}" for i in range(40)],
            "tags": [None if i % 5 == 0 else list(range(i % 4)) for i in range(40)],
        },
        schema,
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"compression": "none", "write_page_checksum": False, **options})
    return table, sink.getvalue().to_pybytes()


def changed(change, **options):
    """The good file with its footer changed."""
    return bytes_of.with_footer(good(**options)[1], change)


def each_chunk(change):
    """A change of the ColumnMetaData of the first column."""
    return lambda meta: change(bytes_of.chunk_meta(bytes_of.row_groups(meta)[0], 0))


def patched_page(column, change, dictionary=False, **options):
    """The good file with the header of a column's first page changed; the new header has the length of the old."""
    data = bytearray(good(**options)[1])
    meta = bytes_of.chunk_meta(bytes_of.row_groups(bytes_of.split(bytes(data))[1])[0], column)
    offset = meta.value(11) if dictionary else meta.value(9)
    header, body = bytes_of.page_at(data, offset)
    change(header)
    encoded = bytes_of.encode(header)
    assert len(encoded) == body - offset, "the change alters the header's length"
    data[offset:body] = encoded
    return bytes(data)


def patched_body(column, change, **options):
    """The good file with the bytes of a column's first data page changed in place."""
    data = bytearray(good(**options)[1])
    meta = bytes_of.chunk_meta(bytes_of.row_groups(bytes_of.split(bytes(data))[1])[0], column)
    header, body = bytes_of.page_at(data, meta.value(9))
    page = data[body : body + header.value(3)]
    change(page)
    data[body : body + header.value(3)] = page
    return bytes(data)


def by_hand(schema, groups, **options):
    """Bytes of a hand-written file."""
    with tempfile.NamedTemporaryFile() as file:
        bytes_of.write(file.name, schema, groups, **options)
        return open(file.name, "rb").read()


def only_footer(footer_bytes):
    return b"PAR1" + footer_bytes + struct.pack("<I", len(footer_bytes)) + b"PAR1"


def nested_schema(depth):
    groups = [element(f"g{i}", children=1) for i in range(depth)]
    path = [f"g{i}" for i in range(depth)] + ["leaf"]
    return by_hand([*groups, element("leaf", "INT32")], [(1, [Chunk(path, "INT32", [], [0], None, depth + 1)])])


def page_of(header_fields, body):
    """A file of one required INT64 column whose only page has these header fields."""
    data = by_hand([element("n", "INT64", REQUIRED)], [(8, [Chunk(["n"], "INT64", list(range(8)))])])
    start = 4
    header, at = bytes_of.page_at(data, start)
    header.update(header_fields)
    page = bytes_of.encode(header) + body
    tail, meta = bytes_of.split(data)
    chunk = bytes_of.chunk_meta(bytes_of.row_groups(meta)[0], 0)
    chunk.change(6, max(len(page), header.value(2)))
    chunk.change(7, len(page))
    return bytes_of.join(b"PAR1" + page, meta)


def zstd_bomb():
    """A page of 8 values that unpacks to 512 MiB of zeros."""
    size = 512 << 20
    packed = pa.Codec("zstd").compress(b"\0" * size, asbytes=True)
    data = page_of({2: (I32, size), 3: (I32, len(packed))}, packed)
    return bytes_of.with_footer(data, each_chunk(lambda chunk: chunk.change(4, 6)))


def one_level_too_few():
    chunk = Chunk(["n"], "INT32", [1, 2], [1, 1], None, 1)
    data = by_hand([element("n", "INT32")], [(2, [chunk])])
    header, body = bytes_of.page_at(data, 4)
    header.value(5).change(1, 5)  # claims five slots, levels for two
    tail, meta = bytes_of.split(data)
    meta.change(3, 5)
    bytes_of.row_groups(meta)[0].change(3, 5)
    bytes_of.chunk_meta(bytes_of.row_groups(meta)[0], 0).change(5, 5)
    return bytes_of.join(b"PAR1" + bytes_of.encode(header) + data[body : body + header.value(3)], meta)


def without_dictionary_page(chunk):
    del chunk[11]


HUGE_LIST = bytes([0x15, 2, 0x19, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x07])  # version, then a schema of 2^31 - 1 structs
DEEP = bytes([0x1C] * 10_000)  # structs in structs

DAMAGES = {
    "no bytes": lambda: b"",
    "one magic": lambda: b"PAR1",
    "two magics": lambda: b"PAR1PAR1",
    "eleven bytes": lambda: b"PAR1\0\0\0PAR1",
    "text": lambda: b"id,name\n1,one\n2,two\n",
    "a web page": lambda: b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
    "a zip archive": lambda: b"PK\x03\x04" + bytes(100),
    "cut at 25 %": lambda: good()[1][: len(good()[1]) // 4],
    "cut at 50 %": lambda: good()[1][: len(good()[1]) // 2],
    "cut at 75 %": lambda: good()[1][: len(good()[1]) * 3 // 4],
    "cut at 99 %": lambda: good()[1][: len(good()[1]) * 99 // 100],
    "bad first magic": lambda: b"XXXX" + good()[1][4:],
    "bad last magic": lambda: good()[1][:-4] + b"PAR2",
    "footer longer than the file": lambda: good()[1][:-8] + struct.pack("<I", 1 << 20) + b"PAR1",
    "footer of no bytes": lambda: good()[1][:-8] + struct.pack("<I", 0) + b"PAR1",
    "footer of 2^31 - 1 bytes": lambda: good()[1][:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1",
    "footer of -1 bytes": lambda: good()[1][:-8] + struct.pack("<i", -1) + b"PAR1",
    "footer with a list of 2^31 - 1 structs": lambda: only_footer(HUGE_LIST),
    "footer nested 10,000 deep": lambda: only_footer(DEEP),
    "footer of random bytes": lambda: only_footer(random.Random(7).randbytes(400)),
    "more rows in the footer than in its groups": lambda: changed(lambda meta: meta.change(3, 41)),
    "negative rows": lambda: changed(lambda meta: meta.change(3, -40)),
    "negative rows in a group": lambda: changed(lambda meta: bytes_of.row_groups(meta)[0].change(3, -1)),
    "a group with more rows than it holds": lambda: changed(
        lambda meta: (meta.change(3, 41), bytes_of.row_groups(meta)[0].change(3, 41))
    ),
    "a group with fewer rows than it holds": lambda: changed(
        lambda meta: (meta.change(3, 39), bytes_of.row_groups(meta)[0].change(3, 39))
    ),
    "a chunk beyond the end": lambda: changed(each_chunk(lambda chunk: (chunk.pop(11, None), chunk.change(9, 1 << 40)))),
    "a chunk at a negative offset": lambda: changed(each_chunk(lambda chunk: (chunk.pop(11, None), chunk.change(9, -5)))),
    "a chunk of a negative length": lambda: changed(each_chunk(lambda chunk: chunk.change(7, -1))),
    "a chunk of 2^62 bytes": lambda: changed(each_chunk(lambda chunk: chunk.change(7, 1 << 62))),
    "a chunk inside the footer": lambda: changed(
        each_chunk(lambda chunk: (chunk.pop(11, None), chunk.change(9, len(good()[1]) - 60)))
    ),
    "a chunk with more values than it holds": lambda: changed(each_chunk(lambda chunk: chunk.change(5, 41))),
    "no columns in a group": lambda: changed(lambda meta: bytes_of.row_groups(meta)[0].change(1, List(STRUCT))),
    "unknown codec": lambda: changed(each_chunk(lambda chunk: chunk.change(4, 77))),
    "LZO": lambda: changed(each_chunk(lambda chunk: chunk.change(4, 3))),
    "another codec than the pages'": lambda: changed(each_chunk(lambda chunk: chunk.change(4, 6))),
    "a schema of fewer nodes than it says": lambda: changed(lambda meta: meta.value(2)[0].change(5, 9)),
    "a schema of more nodes than it says": lambda: changed(lambda meta: meta.value(2)[0].change(5, 1)),
    "a schema with a negative count": lambda: changed(lambda meta: meta.value(2)[0].change(5, -3)),
    "no schema": lambda: changed(lambda meta: meta.change(2, List(STRUCT))),
    "an unknown physical type": lambda: changed(lambda meta: meta.value(2)[1].change(1, 42)),
    "schema nested 10,000 deep": lambda: nested_schema(10_000),
    "encrypted footer": lambda: good()[1][:-4] + b"PARE",
    "a page of 10^9 values": lambda: page_of({5: (STRUCT, Struct({1: (I32, 10**9), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}))}, bytes(64)),
    "a page of -1 values": lambda: page_of({5: (STRUCT, Struct({1: (I32, -1), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}))}, bytes(64)),
    "a page of a negative size": lambda: page_of({3: (I32, -64)}, bytes(64)),
    "a page larger than its file": lambda: page_of({2: (I32, 1 << 30), 3: (I32, 1 << 30)}, bytes(64)),
    "a page smaller than its values": lambda: page_of({2: (I32, 56), 3: (I32, 56)}, bytes(56)),
    "a page of an unknown kind": lambda: page_of({1: (I32, 55)}, bytes(64)),
    "a page without its header": lambda: patched_body(0, lambda page: None)[:4] + b"\xff" * 40 + good()[1][44:],
    "a bomb": zstd_bomb,
    "a wrong page checksum": lambda: patched_body(0, lambda page: page.__setitem__(len(page) - 1, page[-1] ^ 1), write_page_checksum=True),
    "an index beyond its dictionary": lambda: patched_page(1, lambda header: header.value(7).change(1, 1), dictionary=True),
    "a dictionary that is missing": lambda: changed(
        lambda meta: without_dictionary_page(bytes_of.chunk_meta(bytes_of.row_groups(meta)[0], 1))
    ),
    "indices of 254 bits": lambda: patched_body(1, lambda page: page.__setitem__(4 + struct.unpack("<I", page[:4])[0], 254)),
    "levels longer than their page": lambda: patched_body(1, lambda page: page.__setitem__(slice(0, 4), struct.pack("<I", 10**6))),
    "levels for fewer slots than said": one_level_too_few,
    "a text longer than its page": lambda: by_hand(
        [text("s", REQUIRED)], [(1, [Chunk(["s"], "BYTE_ARRAY", [b"abc"])])]
    ).replace(struct.pack("<I", 3) + b"abc", struct.pack("<I", 2**31 - 1) + b"abc"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_refuses_its_key_by_name_and_others_go_on(source, compact, damage):
    data = DAMAGES[damage]()
    for chunk in (0, 2):
        source.put("bad/all", chunk, good(chunk * 100)[0])
    source.put_bytes("bad/all", BAD, data)
    for chunk in range(2):
        source.put("good/all", chunk, good(chunk * 100)[0])

    compact(timeout=60).refused("bad/all", BAD).has("good/all")


def test_a_footer_above_the_cap_is_refused_before_it_is_read(source, compact):
    data = changed(lambda meta: meta.__setitem__(5, (LIST, List(STRUCT, [Struct({1: (BINARY, "k"), 2: (BINARY, b"v" * (65 << 20))})]))))
    source.put("bad/all", 0, good()[0])
    source.put_bytes("bad/all", BAD, data)

    compact(timeout=60).refused("bad/all", BAD, "footer")


def readable(path):
    try:
        return bool(rows.by_pyarrow(path))
    except (OSError, pa.ArrowException):
        return False


@pytest.mark.parametrize("region", ["start", "pages", "indexes", "footer", "tail"])
def test_a_flipped_bit_anywhere_never_changes_rows_in_silence(source, compact, region):
    """60 flips in each region of a file with page checksums, each in a key of its own."""
    table, data = good(write_page_checksum=True, write_page_index=True, compression="snappy")
    length = struct.unpack("<I", data[-8:-4])[0]
    _, meta = bytes_of.split(data)
    last = bytes_of.chunk_meta(bytes_of.row_groups(meta)[0], 2)
    pages_end = last.value(11, last.value(9)) + last.value(7)
    low, high = {
        "start": (0, 60), "pages": (4, pages_end), "indexes": (pages_end, len(data) - 8 - length),
        "footer": (len(data) - 8 - length, len(data) - 8), "tail": (len(data) - 20, len(data)),
    }[region]
    draw = random.Random(region)
    for number in range(60):
        at = draw.randrange(low, high)
        flipped = bytearray(data)
        flipped[at] ^= 1 << draw.randrange(8)
        source.put_bytes(f"flips/{number:02d}", "chunks-0000.parquet", bytes(flipped))
        source.put_bytes(f"flips/{number:02d}", "chunks-0001.parquet", data)
    source.put("flips/good", 0, table)

    done = compact(timeout=200)
    assert done.run.code in (0, 1), done.run.story()
    assert "panicked at" not in done.run.said
    done.has("flips/good")
    twice = rows.of(table) * 2
    said = {}
    for number in range(60):
        unit = f"flips/{number:02d}"
        if done.outputs(unit):
            damaged = source.root / unit / "chunks-0000.parquet"
            read = rows.by_pyarrow if readable(damaged) else rows.by_duckdb  # DuckDB does not look at Arrow's own schema
            found = [row for path in done.outputs(unit) for row in read(path)]
            if found != twice:
                assert found == read(damaged) + rows.of(table), f"{unit}: rows that nobody wrote"
        else:
            said[unit] = f"key {number:02d}" in done.run.said
    assert all(said.values()), [unit for unit, named in said.items() if not named]


def test_a_file_cut_at_any_of_its_last_bytes_is_refused(source, compact):
    table, data = good()
    for left_out in range(1, 400, 5):
        source.put_bytes(f"cuts/{left_out:04d}", "chunks-0000.parquet", data[:-left_out])
    source.put("cuts/good", 0, table)

    done = compact(timeout=200)
    done.run.ends(1)
    done.has("cuts/good")
    for left_out in range(1, 400, 5):
        assert done.outputs(f"cuts/{left_out:04d}") == []
        assert f"key {left_out:04d}" in done.run.said


def test_text_that_is_not_utf8_is_kept_byte_for_byte_or_refused_by_name(source, compact):
    for chunk in range(2):
        values = [b"fine", b"\xff\xfe", b"\xc3\x28"]
        made = [(("text", value),) for value in values]
        source.put_by_hand("texts/all", chunk, made, [text("s", REQUIRED)], [(3, [Chunk(["s"], "BYTE_ARRAY", values)])])

    done = compact()
    if done.run.code == 0:
        done.has("texts/all", readers=["pyarrow"])
    else:
        done.refused("texts/all", "s", "utf-8")


def test_a_broken_arrow_schema_is_ignored_or_refused(source, compact):
    def spoil(meta):
        for pair in meta.value(5):
            if pair.value(1) == b"ARROW:schema":
                pair.change(2, b"//" + pair.value(2)[:2])

    table, _ = good()
    for chunk in range(2):
        source.put("arrow/all", chunk, table)
        source.put_bytes("arrow/all", chunk, changed(spoil))

    done = compact()
    if done.run.code == 0:
        done.has("arrow/all", readers=["duckdb"])
    else:
        done.refused("arrow/all", "arrow")


def test_a_lying_page_index_is_rebuilt(source, compact):
    import duckdb

    table, data = good(write_page_index=True)
    chunk = bytes_of.row_groups(bytes_of.split(data)[1])[0].value(1)[0]
    index = bytes_of.index_at(data, chunk.value(6))
    wrong = struct.pack("<q", 100_000)
    at = data.index(index.value(2)[0], chunk.value(6))
    lying = data[:at] + wrong + data[at + 8 :]
    for number in range(2):
        source.put("index/all", number, table)
        source.put_bytes("index/all", number, lying)

    done = compact().succeeded().has("index/all")
    path = done.outputs("index/all")[0]
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM '{path}' WHERE id = 3").fetchone() == (2,)


def test_schema_depth_100_is_copied(source, compact):
    for chunk in range(2):
        source.put_bytes("deep/all", chunk, nested_schema(100))

    done = compact().succeeded()
    assert footer(done.outputs("deep/all")[0]).value(3) == 2


def test_thousands_of_columns_are_copied_or_refused_at_the_cap(source, compact):
    for unit, count in (("wide/2000", 2000), ("wide/25000", 25_000)):
        for chunk in range(2):
            source.put(unit, chunk, pa.table({f"c{i}": [chunk] for i in range(count)}))

    done = compact(timeout=250)
    done.has("wide/2000", readers=["pyarrow"])
    if done.run.code == 0:
        done.has("wide/25000", readers=["pyarrow"])
    else:
        done.refused("wide/25000", "column")


def test_thousands_of_row_groups_of_one_row_are_joined(source, compact):
    for chunk in range(2):
        source.put("groups/all", chunk, pa.table({"n": range(3000)}), row_group_size=1)

    done = compact(timeout=250).succeeded().has("groups/all", readers=["pyarrow"])
    assert len(bytes_of.row_groups(footer(done.outputs("groups/all")[0]))) == 1


def test_a_text_of_many_megabytes_is_copied(source, compact):
    # Random, since a page of more than 16 MiB that packs a thousandfold is refused as a bomb.
    long = random.Random(1).randbytes(10 << 20).hex()
    for chunk in range(2):
        source.put("long/all", chunk, pa.table({"s": [long, None, "", "y" * (3 << 20)]}))

    compact(timeout=250).succeeded().has("long/all", readers=["pyarrow"])
