"""Source folders, runs of `baler`, and what a run must leave behind.

A `Source` lays out TABLE/KEY/chunks-N.parquet files and remembers the rows they were made from. `Baler` runs the binary
from its command line. A `Compaction` is one finished run of `baler compact SRC --out DST` with the checks that the
tests share: rows by every reader, schema, names of outputs, nothing stray, sources untouched.
"""

import hashlib
import os
import pathlib
import re
import subprocess
from dataclasses import dataclass

import pyarrow.parquet as pq

import parquet_bytes
import rows

OUTPUT = re.compile(r"chunks-(\d+)-(\d+)\.parquet")
CONTROL = "_baler"


def binary():
    """The binary under test: $BALER, else the development build."""
    path = pathlib.Path(os.environ.get("BALER", pathlib.Path(__file__).parent.parent / "target/debug/baler"))
    assert path.is_file(), f"{path} is not built: cargo build"
    return str(path)


class Source:
    """A root of tables that is being laid out."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.rows = {}  # "table/key" -> {file name: rows}

    def place(self, unit, chunk):
        """The path of a file, its folder made. `chunk` is a number or a whole file name."""
        name = chunk if isinstance(chunk, str) else f"chunks-{chunk:04d}.parquet"
        path = self.root / unit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def put(self, unit, chunk, table, **options):
        path = self.place(unit, chunk)
        pq.write_table(table, path, **{"compression": "zstd", **options})
        self.rows.setdefault(unit, {})[path.name] = rows.of(table)
        return path

    def put_by_hand(self, unit, chunk, made_of, schema, groups, **options):
        """A file of `parquet_bytes.write` that holds the rows `made_of`."""
        path = self.place(unit, chunk)
        parquet_bytes.write(path, schema, groups, **options)
        self.rows.setdefault(unit, {})[path.name] = list(made_of)
        return path

    def put_bytes(self, unit, chunk, data):
        """A file that is no good: it adds no rows to what is expected."""
        path = self.place(unit, chunk)
        path.write_bytes(data)
        return path

    def files(self, unit):
        """Names of a unit's files in the order of their numbers."""
        return sorted(self.rows[unit], key=first_and_last)

    def expected(self, unit):
        return [row for name in self.files(unit) for row in self.rows[unit][name]]

    def paths(self, unit):
        return [self.root / unit / name for name in self.files(unit)]


def first_and_last(name):
    match = re.search(r"(\d+)(?:-(\d+))?\.parquet$", name)
    return int(match[1]), int(match[2] or match[1])


def digests(root):
    """SHA-256 of every regular file below a folder, by relative path."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(pathlib.Path(root).rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@dataclass
class Run:
    """A finished process."""

    arguments: list
    code: int
    out: str
    err: str

    @property
    def said(self):
        return self.out + self.err

    def ends(self, code):
        assert "panicked at" not in self.said, self.story()
        assert self.code == code, self.story()
        return self

    def names(self, *words):
        """The messages hold every one of these words."""
        low = self.said.lower()
        missing = [word for word in words if str(word).lower() not in low]
        assert not missing, f"not named: {missing}\n{self.story()}"
        return self

    def story(self):
        return f"baler {' '.join(map(str, self.arguments))} -> {self.code}\n{self.out[-3000:]}\n{self.err[-3000:]}"


class Baler:
    def __init__(self, binary):
        self.binary = binary

    def __call__(self, *arguments, timeout=120, env=None, cwd=None):
        """Runs to the end. A run that does not end in `timeout` seconds fails the test."""
        run = subprocess.run(
            [self.binary, *map(os.fspath, arguments)], capture_output=True, timeout=timeout, cwd=cwd,
            stdin=subprocess.DEVNULL, env={**os.environ, "RUST_BACKTRACE": "0", **(env or {})},
        )
        return Run(list(arguments), run.returncode, run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace"))


class Compaction:
    """`baler compact SRC --out DST`, run once."""

    def __init__(self, baler, source, out, *options, **more):
        self.source, self.out = source, pathlib.Path(out)
        before = digests(source.root)
        self.run = baler("compact", source.root, "--out", out, *options, **more)
        assert digests(source.root) == before, f"sources were touched\n{self.run.story()}"

    def outputs(self, unit):
        folder = self.out / unit
        found = [path for path in folder.iterdir() if OUTPUT.fullmatch(path.name)] if folder.is_dir() else []
        return sorted(found, key=lambda path: first_and_last(path.name))

    def succeeded(self):
        self.run.ends(0)
        return self

    def refused(self, unit, *words):
        """The unit was refused with a message that names its trouble, and has no output."""
        self.run.ends(1).names(*words)
        assert self.outputs(unit) == [], self.run.story()
        return self

    def has(self, unit, expected=None, readers=rows.THREE, options=None):
        """Every reader finds exactly the expected rows, in order."""
        expected = self.source.expected(unit) if expected is None else expected
        paths = self.outputs(unit)
        assert paths, f"{unit} has no output\n{self.run.story()}"
        for name in readers:
            found = [row for path in paths for row in rows.READERS[name](path, **(options or {}).get(name, {}))]
            assert len(found) == len(expected), f"{name} reads {len(found)} rows of {unit}, {len(expected)} expected"
            for i, (have, want) in enumerate(zip(found, expected)):
                assert have == want, f"{name} reads another row {i} of {unit}"
        return self

    def keeps_schema(self, unit, of=0):
        """The Parquet schema is the source's: names, repetition, types, meanings, field ids."""
        want = parquet_bytes.elements(self.source.paths(unit)[of])
        for path in self.outputs(unit):
            assert parquet_bytes.elements(path) == want, path.name
        return self

    def is_tidy(self):
        """Outputs cover their sources once, are padded, and nothing else lies outside the control folders."""
        known = set()
        for unit in self.source.rows:
            paths = self.outputs(unit)
            known.update(paths)
            ranges = [first_and_last(path.name) for path in paths]
            for path, (_, last) in zip(paths, ranges):
                width = max(4, len(str(last)))
                assert all(len(part) == width for part in OUTPUT.fullmatch(path.name).groups()), path.name
            assert all(a[1] < b[0] for a, b in zip(ranges, ranges[1:])), ranges
            if paths:
                sources = [first_and_last(name) for name in self.source.files(unit)]
                assert (ranges[0][0], ranges[-1][1]) == (sources[0][0], sources[-1][1])
        assert strays(self.out, known) == []
        return self


def strays(root, known=()):
    """Files below `root` that are neither known nor in a control folder."""
    root = pathlib.Path(root)
    return [
        path.relative_to(root).as_posix()
        for path in sorted(root.rglob("*"))
        if not path.is_dir() and path not in known and CONTROL not in path.relative_to(root).parts
    ]
