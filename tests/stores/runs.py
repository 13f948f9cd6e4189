"""Runs of `baler` on a store, and what each must leave behind."""

import json

import pyarrow as pa

from compaction import OUTPUT, Source
from stores.bucket import BUCKET
from whole_tables import are_equal, ordered


class Runs:
    """`baler` with one store's environment and one folder of state."""

    def __init__(self, baler, store, state):
        self.baler, self.store, self.state = baler, store, state

    def __call__(self, *arguments, state=None, kill_at=None):
        more = {"BALER_KILL_AT": kill_at} if kill_at else {}
        environment = {**self.store.environment, "BALER_STATE": str(state or self.state), **more}
        return self.baler(*arguments, env=environment, timeout=100)

    def result(self, *arguments, **more):
        """The tables of a run that ends well, from its JSON; the four checks of each held."""
        run = self(*arguments, "--json", **more).ends(0)
        result = json.loads(run.out)
        assert result["complete"] and not result["errors"], run.story()
        for table in result["tables"]:
            checks = table["checks"]
            files, rows, previous, disk = checks["files"], checks["rows"], checks["previous"], checks["disk"]
            assert checks["passed"] and checks["mismatches"] == [], run.story()
            assert files["before"] - files["removed"] + files["added"] == files["after"], run.story()
            assert rows["before"] == rows["after"] and rows["duplicate"] == 0, run.story()
            assert previous["rows"] == previous["rows_read"], run.story()
            assert disk["files"] == disk["listed"] + disk["awaiting"] + disk["appended"], run.story()
            assert not table["failed"] and not table["refused"], run.story()
        return result["tables"]

    def is_sound(self, location):
        """Other commands find nothing wrong."""
        self("verify", location).ends(0)
        self("fsck", "--full", location).ends(0)


def published(store, prefix):
    """{name: content} of what readers of a destination see."""
    names = [name for name in store.names(prefix) if "_baler" not in name.split("/")]
    return {name: store.get(f"{prefix}/{name}") for name in names}


def reads_back(source, store, prefix, folder):
    """Every key's outputs hold the rows of its inputs in their order, and nothing else lies beside them."""
    store.download(prefix, folder)
    made = []
    for unit in source.rows:
        paths = [path for path in ordered(folder / unit) if OUTPUT.fullmatch(path.name)]
        are_equal(source.paths(unit), paths)
        made += [f"{unit}/{path.name}" for path in paths]
    assert sorted(published(store, prefix)) == sorted(made)
    return made


def live(runs, store, source, prefix, folder):
    """{key: local copies, in order, of its live files} as `baler files` lists them; every key has some."""
    folder.mkdir(parents=True)
    found = {unit: [] for unit in source.rows}
    for number, line in enumerate(runs("files", store.location(prefix), "--format", "list").ends(0).out.splitlines()):
        name = line.removeprefix(f"{store.scheme}://{BUCKET}/")
        table, _, rest = name.removeprefix(f"{prefix}/").partition("/")
        key = rest.removeprefix("_baler/data/").rpartition("/")[0]
        path = folder / f"{number:04d}.parquet"
        path.write_bytes(store.get(name))
        found[f"{table}/{key}"].append(path)
    assert all(found.values()), found
    return found


def three_generations(runs, store, prefix, folder):
    """A table of one key, compacted in place three times as files are added: (source, names of the first files)."""
    source, first = Source(folder), []
    for generation in range(3):
        for chunk in range(generation * 4, generation * 4 + 4):
            path = source.put("logs/day", chunk, pa.table({"n": range(chunk * 100, chunk * 100 + 100)}))
            name = path.relative_to(source.root).as_posix()
            store.put(f"{prefix}/{name}", path.read_bytes())
            first += [name] if generation == 0 else []
        (made,) = runs.result("compact", store.location(prefix))
        assert made["generation"] == generation + 1
    return source, first
