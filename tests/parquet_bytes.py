"""Parquet files as bytes: footers read, changed and written back, and small files written by hand.

A footer is Thrift in the compact protocol. It is kept as data here: a `Struct` maps field numbers to (type, value), so
that what is read and encoded again is the same, known field or not, and a test can change any one number of a real
file. Nothing depends on a Parquet library. Compression, dictionaries and bit-packed runs are absent when writing.
"""

import struct
import zlib
from dataclasses import dataclass, field

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

MAGIC = b"PAR1"
PHYSICAL = ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"]
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2


class Struct(dict):
    """A Thrift struct: field number to (type, value)."""

    def value(self, number, default=None):
        return self[number][1] if number in self else default

    def change(self, number, value):
        """Replaces the value of a field that is there."""
        self[number] = (self[number][0], value)


class List(list):
    """A Thrift list with the type of its elements."""

    def __init__(self, kind, items=()):
        super().__init__(items)
        self.kind = kind


# ---------------------------------------------------------------- decoding and encoding


class Decoder:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def unsigned(self):
        shift = number = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def signed(self):
        number = self.unsigned()
        return number >> 1 ^ -(number & 1)

    def take(self, length):
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def value(self, kind, in_list=False):
        if kind in (TRUE, FALSE):
            return self.byte() == 1 if in_list else kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind in (I16, I32, I64):
            return self.signed()
        if kind == DOUBLE:
            return struct.unpack("<d", self.take(8))[0]
        if kind == BINARY:
            return self.take(self.unsigned())
        if kind in (LIST, SET):
            head = self.byte()
            count = head >> 4 if head >> 4 != 15 else self.unsigned()
            return List(head & 15, [self.value(head & 15, True) for _ in range(count)])
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"thrift type {kind} is not used by Parquet")

    def struct(self):
        fields, last = Struct(), 0
        while head := self.byte():
            last = last + (head >> 4) if head >> 4 else self.signed()
            kind = head & 15
            fields[last] = (kind, self.value(kind))
        return fields


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def zigzag(number):
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def encode(fields):
    """The bytes of a Struct."""
    out, last = b"", 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        step = number - last
        out += bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + zigzag(number)
        out += encode_value(kind, value)
        last = number
    return out + b"\0"


def encode_value(kind, value):
    if kind in (TRUE, FALSE):
        return b""
    if kind == BYTE:
        return bytes([value & 0xFF])
    if kind in (I16, I32, I64):
        return zigzag(value)
    if kind == DOUBLE:
        return struct.pack("<d", value)
    if kind == BINARY:
        value = value.encode() if isinstance(value, str) else value
        return varint(len(value)) + value
    if kind == LIST:
        head = bytes([len(value) << 4 | value.kind]) if len(value) < 15 else bytes([0xF0 | value.kind]) + varint(len(value))
        if value.kind in (TRUE, FALSE):
            return head + bytes(1 if item else 2 for item in value)
        return head + b"".join(encode_value(value.kind, item) for item in value)
    if kind == STRUCT:
        return encode(value)
    raise ValueError(f"thrift type {kind} is not used by Parquet")


# ---------------------------------------------------------------- footers


def split(data):
    """(everything before the footer, the footer)."""
    length = struct.unpack("<I", data[-8:-4])[0]
    return data[: -8 - length], Decoder(data[-8 - length : -8]).struct()


def join(body, footer):
    encoded = encode(footer)
    return body + encoded + struct.pack("<I", len(encoded)) + MAGIC


def footer(path):
    with open(path, "rb") as file:
        return split(file.read())[1]


def with_footer(data, change):
    """The same file with its footer passed through `change`, which alters it in place."""
    body, meta = split(data)
    change(meta)
    return join(body, meta)


def row_groups(meta):
    return meta.value(4, [])


def chunk_meta(group, column):
    """The ColumnMetaData of a column of a row group."""
    return group.value(1)[column].value(3)


def key_values(path):
    return {pair.value(1).decode(): pair.value(2, b"").decode("utf8", "replace") for pair in footer(path).value(5, [])}


def page_at(data, offset):
    """(header, offset of the page's bytes)."""
    decoder = Decoder(data, offset)
    header = decoder.struct()
    return header, decoder.at


def index_at(data, offset):
    return Decoder(data, offset).struct()


# ---------------------------------------------------------------- schemas

UNIT = {1: "ms", 2: "us", 3: "ns"}
# ConvertedType to what the LogicalType of the same meaning reads as below.
CONVERTED = {
    0: "string", 1: "map", 2: "map entry", 3: "list", 4: "enum", 6: "date", 7: "time(ms,utc)", 8: "time(us,utc)",
    9: "timestamp(ms,utc)", 10: "timestamp(us,utc)", 11: "uint8", 12: "uint16", 13: "uint32", 14: "uint64", 15: "int8",
    16: "int16", 17: "int32", 18: "int64", 19: "json", 20: "bson", 21: "interval",
}
LOGICAL = {
    1: "string", 2: "map", 3: "list", 4: "enum", 6: "date", 11: "null", 12: "json", 13: "bson", 14: "uuid", 15: "float16",
    16: "variant", 17: "geometry", 18: "geography",
}


def annotation(element):
    """The declared meaning of a schema element as text, the same for its old and its new spelling."""
    logical = element.value(10)
    if logical:
        number, (_, value) = next(iter(logical.items()))
        if number == 5:
            return f"decimal({value.value(2)},{value.value(1, 0)})"
        if number in (7, 8):
            name = "time" if number == 7 else "timestamp"
            return f"{name}({UNIT[next(iter(value.value(2)))]},{'utc' if value.value(1) else 'local'})"
        if number == 10:
            return f"{'' if value.value(2) else 'u'}int{value.value(1)}"
        return LOGICAL.get(number, f"logical {number}")
    converted = element.value(6)
    if converted == 5:
        return f"decimal({element.value(8)},{element.value(7, 0)})"
    return CONVERTED.get(converted)


@dataclass
class Element:
    """One node of a schema, below its root."""

    path: str
    repetition: int
    physical: str | None
    length: int | None
    meaning: str | None
    field_id: int | None
    children: int


def elements(source):
    """Every node below the root, depth first. `source` is a path or a footer."""
    meta = source if isinstance(source, Struct) else footer(source)
    items = iter(meta.value(2))
    found = []

    def walk(prefix, count):
        for _ in range(count):
            item = next(items)
            name = item.value(4).decode("utf8", "replace")
            path = f"{prefix}.{name}" if prefix else name
            physical = PHYSICAL[item.value(1)] if 1 in item else None
            children = item.value(5, 0)
            length = item.value(2) if physical == "FIXED_LEN_BYTE_ARRAY" else None
            found.append(Element(path, item.value(3, 0), physical, length, annotation(item), item.value(9), children))
            walk(path, children)

    walk("", next(items).value(5, 0))
    return found


def leaves(source):
    return [element for element in elements(source) if element.physical]


# ---------------------------------------------------------------- writing by hand


def element(name, physical=None, repetition=OPTIONAL, children=None, converted=None, logical=None, field_id=None):
    """A SchemaElement. `logical` is the number of a LogicalType without parameters."""
    made = Struct({4: (BINARY, name)})
    if physical:
        made[1] = (I32, PHYSICAL.index(physical))
    if repetition is not None:
        made[3] = (I32, repetition)
    if children is not None:
        made[5] = (I32, children)
    if converted is not None:
        made[6] = (I32, converted)
    if field_id is not None:
        made[9] = (I32, field_id)
    if logical is not None:
        made[10] = (STRUCT, Struct({logical: (STRUCT, Struct())}))
    return made


def text(name, repetition=OPTIONAL):
    return element(name, "BYTE_ARRAY", repetition, converted=0, logical=1)


@dataclass
class Chunk:
    """A column of a row group: present values, and a definition and repetition level per slot."""

    path: list
    physical: str
    values: list
    definition: list | None = None
    repetition: list | None = None
    definition_max: int = 0
    repetition_max: int = 0
    statistics: tuple | None = None  # (min, max, null count), bytes
    extra: dict = field(default_factory=dict)  # replaced fields of the ColumnMetaData


def write(path, schema, groups, rows=None, created_by="by hand", page_checksums=False):
    """Writes PLAIN, uncompressed version 1 pages. `groups` is [(rows, [Chunk])]; `schema` leaves out the root."""
    data = bytearray(MAGIC)
    written = List(STRUCT)
    for count, chunks in groups:
        columns, total = List(STRUCT), 0
        for chunk in chunks:
            body = b""
            if chunk.repetition_max:
                body += levels(chunk.repetition, chunk.repetition_max)
            if chunk.definition_max:
                body += levels(chunk.definition, chunk.definition_max)
            body += b"".join(plain(chunk.physical, value) for value in chunk.values)
            slots = len(chunk.definition) if chunk.definition is not None else len(chunk.values)
            header = Struct({1: (I32, 0), 2: (I32, len(body)), 3: (I32, len(body))})
            if page_checksums:
                header[4] = (I32, struct.unpack("<i", struct.pack("<I", zlib.crc32(body)))[0])
            header[5] = (STRUCT, Struct({1: (I32, slots), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}))
            page = encode(header) + body
            meta = Struct({
                1: (I32, PHYSICAL.index(chunk.physical)), 2: (LIST, List(I32, [0, 3])), 3: (LIST, List(BINARY, chunk.path)),
                4: (I32, 0), 5: (I64, slots), 6: (I64, len(page)), 7: (I64, len(page)), 9: (I64, len(data)),
            })
            if chunk.statistics:
                low, high, nulls = chunk.statistics
                meta[12] = (STRUCT, Struct({3: (I64, nulls), 5: (BINARY, high), 6: (BINARY, low)}))
            meta.update(chunk.extra)
            columns.append(Struct({2: (I64, 0), 3: (STRUCT, meta)}))
            data += page
            total += len(page)
        written.append(Struct({1: (LIST, columns), 2: (I64, total), 3: (I64, count)}))
    meta = Struct({
        1: (I32, 2), 2: (LIST, List(STRUCT, [element("schema", repetition=None, children=top_level(schema)), *schema])),
        3: (I64, sum(count for count, _ in groups) if rows is None else rows), 4: (LIST, written), 6: (BINARY, created_by),
    })
    with open(path, "wb") as file:
        file.write(join(bytes(data), meta))


def top_level(schema):
    """How many nodes of a depth-first list hang directly from the root."""
    count = open_nodes = 0
    for item in schema:
        if open_nodes == 0:
            count += 1
        else:
            open_nodes -= 1
        open_nodes += item.value(5, 0)
    return count


def levels(values, highest):
    """RLE runs with a length in front."""
    width = (highest.bit_length() + 7) // 8
    runs, at = b"", 0
    while at < len(values):
        end = at
        while end < len(values) and values[end] == values[at]:
            end += 1
        runs += varint((end - at) << 1) + values[at].to_bytes(width, "little")
        at = end
    return struct.pack("<I", len(runs)) + runs


def plain(physical, value):
    if physical in ("INT32", "INT64", "FLOAT", "DOUBLE"):
        return struct.pack({"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}[physical], value)
    if physical == "BYTE_ARRAY":
        value = value.encode() if isinstance(value, str) else value
        return struct.pack("<I", len(value)) + value
    return value
