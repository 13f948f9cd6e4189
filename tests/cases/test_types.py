"""Types whose values or whose meaning copying tools lose."""

import datetime
import struct
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bytes
from parquet_bytes import REQUIRED, Chunk, element

EPOCH = datetime.datetime(1970, 1, 1)


def int96(moment):
    passed = moment - EPOCH
    return struct.pack("<qi", (passed.seconds * 10**6 + passed.microseconds) * 1000, passed.days + 2440588)


def test_int96_instants_of_the_years_1_and_9999_keep_their_bytes(source, compact):
    moments = [
        datetime.datetime(1, 1, 1), datetime.datetime(1000, 1, 1, 12), None, datetime.datetime(1677, 9, 21, 0, 12, 43),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
        datetime.datetime(2262, 4, 12), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ]
    schema = [element("id", "INT64", REQUIRED), element("seen", "INT96")]
    for chunk in range(3):
        turned = moments[chunk * 2 :] + moments[: chunk * 2]
        ids = [chunk * 100 + i for i in range(len(turned))]
        made = [
            (("int", i), None if moment is None else ("instant", (moment - EPOCH) // datetime.timedelta(microseconds=1) * 1000, "local"))
            for i, moment in zip(ids, turned)
        ]
        chunks = [
            Chunk(["id"], "INT64", ids),
            Chunk(["seen"], "INT96", [int96(m) for m in turned if m], [int(m is not None) for m in turned], None, 1),
        ]
        source.put_by_hand("visits/all", chunk, made, schema, [(len(ids), chunks)], created_by="parquet-mr version 1.10.1")

    done = compact().succeeded().keeps_schema("visits/all").is_tidy()
    done.has("visits/all", readers=["pyarrow", "duckdb"], options={"pyarrow": {"coerce_int96_timestamp_unit": "us"}})


def test_every_primitive_type_keeps_its_values_and_its_schema(source, compact):
    """Extremes of each type, in an order that differs from file to file."""
    columns = {
        "i8": (pa.int8(), [-128, 127, None, 0]),
        "u8": (pa.uint8(), [0, 255, None, 1]),
        "u16": (pa.uint16(), [0, 65535, None, 1]),
        "u32": (pa.uint32(), [0, 2**32 - 1, None, 1]),
        "u64": (pa.uint64(), [0, 2**64 - 1, None, 1]),
        "i64": (pa.int64(), [-(2**63), 2**63 - 1, None, 0]),
        "f16": (pa.float16(), [0.0, -0.0, None, 65504.0]),
        "f32": (pa.float32(), [0.0, -0.0, None, float("inf")]),
        "f64": (pa.float64(), [5e-324, float("nan"), None, float("-inf")]),
        "d9": (pa.decimal128(9, 2), [Decimal("9999999.99"), Decimal("-0.01"), None, Decimal("0")]),
        "d18": (pa.decimal128(18, 6), [Decimal("1e11"), Decimal("-0.000001"), None, Decimal("0")]),
        "d38": (pa.decimal128(38, 10), [Decimal("1e27"), Decimal("-1e-10"), None, Decimal("0")]),
        "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None, datetime.date(1970, 1, 1)]),
        "time": (pa.time64("us"), [datetime.time(0), datetime.time(23, 59, 59, 999999), None, datetime.time(1)]),
        "ms": (pa.timestamp("ms"), [-(2**52), 2**52, None, 0]),
        "us_utc": (pa.timestamp("us", "UTC"), [-1, 2**55, None, 0]),
        "ns": (pa.timestamp("ns"), [-(2**63) + 1, 2**63 - 1, None, 0]),
        "zone": (pa.timestamp("us", "Europe/Berlin"), [-1, 1, None, 0]),
        "text": (pa.string(), ["", "\u0000", None, "na\u00efve \u6771\u4eac \U0001f600"]),
        "bytes": (pa.binary(), [b"", b"\xff\x00", None, b"x" * 300]),
        "fixed": (pa.binary(5), [b"\0" * 5, b"\xff" * 5, None, b"abcde"]),
        "flag": (pa.bool_(), [True, False, None, True]),
    }
    for chunk in range(3):
        turn = lambda values: values[chunk:] + values[:chunk]
        table = pa.table({name: pa.array(turn(values), kind) for name, (kind, values) in columns.items()})
        source.put("types/all", chunk, table)

    done = compact().succeeded().has("types/all", readers=["pyarrow"]).keeps_schema("types/all").is_tidy()
    # Polars does not read half floats as numbers, DuckDB not the nanosecond extremes.
    path = done.outputs("types/all")[0]
    assert pq.read_schema(path).equals(pq.read_schema(source.paths("types/all")[0]))


def test_uuid_json_and_enum_keep_their_meaning(source, compact):
    schema = [
        element("id", "FIXED_LEN_BYTE_ARRAY", REQUIRED, logical=14) | {2: (parquet_bytes.I32, 16)},
        element("doc", "BYTE_ARRAY", converted=19, logical=12), element("kind", "BYTE_ARRAY", REQUIRED, converted=4, logical=4),
        element("blob", "BYTE_ARRAY", REQUIRED, converted=20, logical=13),
        element("span", "FIXED_LEN_BYTE_ARRAY", REQUIRED, converted=21) | {2: (parquet_bytes.I32, 12)},
    ]
    schema = [parquet_bytes.Struct(item) for item in schema]
    for chunk in range(2):
        chunks = [
            Chunk(["id"], "FIXED_LEN_BYTE_ARRAY", [bytes([chunk] * 16), bytes(range(16))]),
            Chunk(["doc"], "BYTE_ARRAY", ['{"a": 1}'], [1, 0], None, 1),
            Chunk(["kind"], "BYTE_ARRAY", ["up", "down"]), Chunk(["blob"], "BYTE_ARRAY", [b"\x05\0\0\0\0"] * 2),
            Chunk(["span"], "FIXED_LEN_BYTE_ARRAY", [struct.pack("<iii", 1, 2, 3), b"\xff" * 12]),
        ]
        source.put_by_hand("meanings/all", chunk, [], schema, [(2, chunks)])

    done = compact().succeeded().keeps_schema("meanings/all").is_tidy()
    want = [column for path in source.paths("meanings/all") for column in [stored(path)]]
    have = [stored(path) for path in done.outputs("meanings/all")]
    assert [sum(parts, []) for parts in zip(*want)] == [sum(parts, []) for parts in zip(*have)]


def stored(path):
    """Per column the stored bytes of its values, by arrow-rs without any meaning."""
    table = pq.read_table(path, columns=["id", "doc", "kind", "blob"])
    return [[str(value) for value in column.to_pylist()] for column in table.columns]


def test_decimals_of_every_physical_form_are_exact(source, compact):
    values = [Decimal("123456.789"), Decimal("-0.001"), None, Decimal("0")]
    for form, options in {"narrow": {"store_decimal_as_integer": True}, "wide": {}}.items():
        for chunk in range(2):
            table = pa.table({"a": pa.array(values, pa.decimal128(9, 3)), "b": pa.array(values, pa.decimal128(18, 3))})
            source.put(f"decimals/{form}", chunk, table, **options)

    done = compact().succeeded()
    for unit in source.rows:
        done.has(unit).keeps_schema(unit)


def test_a_decimal_of_76_digits_is_exact_or_refused_by_name(source, compact):
    values = [Decimal("1e60"), None, Decimal("-1e-5")]
    for chunk in range(2):
        source.put("wide/all", chunk, pa.table({"amount": pa.array(values, pa.decimal256(76, 5))}))

    done = compact()
    if done.run.code == 0:
        done.has("wide/all", readers=["pyarrow"]).keeps_schema("wide/all")
    else:
        done.refused("wide/all", "amount")


def test_dictionaries_that_differ_from_file_to_file_keep_values_not_codes(source, compact):
    def coded(codes, words):
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(words, pa.string()))

    small = [([0, 1, None, 0], ["red", "blue"]), ([0, 1, 2, None], ["blue", "green", "red"]), ([None] * 4, []), ([3, 3, 0, None], ["aaa", "m", "n", "red", "zzz"])]
    for chunk, (codes, words) in enumerate(small):
        source.put("colours/few", chunk, pa.table({"id": range(chunk * 4, chunk * 4 + 4), "colour": coded(codes, words)}))
    for chunk in range(3):  # 300 words in all: more than the 8-bit codes of each file hold
        words = [f"w{chunk * 100 + i:03d}" for i in range(100)]
        source.put("colours/many", chunk, pa.table({"word": coded(list(range(99, -1, -1)), words)}))

    done = compact().succeeded().is_tidy()
    for unit in source.rows:
        done.has(unit).keeps_schema(unit)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
def test_a_time_zone_stays_in_the_stored_schema(source, compact, zone):
    for chunk in range(2):
        source.put("times/all", chunk, pa.table({"at": pa.array([0, None, 10**15 + chunk], pa.timestamp("us", zone))}))

    done = compact().succeeded().has("times/all", readers=["pyarrow", "duckdb"])
    assert pq.read_schema(done.outputs("times/all")[0]).field("at").type == pa.timestamp("us", zone)
