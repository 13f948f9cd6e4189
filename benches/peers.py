"""What Baler is measured against: each peer compacts the same runs of files with zstd 3.

    python benches/peers.py prepare PEER SOURCE WORK     what is not timed: registering a table
    python benches/peers.py run PEER SOURCE WORK --target-size N

| peer | does | checks |
|---|---|---|
| pyarrow+polars | copies record batches with pyarrow (page index, content-defined chunking), then compares hashes of all rows and positions with Polars | yes |
| pyarrow | the same writer | no |
| polars | scan_parquet to sink_parquet, streaming | no |
| duckdb | COPY, order kept | no |
| delta-rs | optimize.compact of a Delta table over the same files | no |

The copying peers use all cores: pyarrow with a process per file, the others with their own threads.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import re
import shutil

ROW_GROUP_BYTES = 128 << 20


def by_number(path):
    return [int(part) for part in re.findall(r"\d+", path.name)]


def sources(folder):
    return sorted(pathlib.Path(folder).rglob("*.parquet"), key=by_number)


def runs(files, target):
    """Consecutive files of at most `target` bytes together; a larger file is alone."""
    found, size = [[]], 0
    for path in files:
        bytes_ = path.stat().st_size
        if found[-1] and size + bytes_ > target:
            found.append([])
            size = 0
        found[-1].append(path)
        size += bytes_
    return found


def rows_of_a_group(files):
    """Rows that take 128 MiB in memory, judged by the largest file."""
    import pyarrow.parquet as pq

    table = pq.read_table(max(files, key=lambda path: path.stat().st_size))
    return max(1, int(ROW_GROUP_BYTES * table.num_rows / max(1, table.nbytes)))


def pyarrow_write(files, out, group_rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(files[0])
    options = {"compression": "zstd", "compression_level": 3, "write_page_index": True, "use_content_defined_chunking": True}
    with pq.ParquetWriter(out, schema, **options) as writer:
        waiting, count = [], 0
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    waiting.append(batch)
                    count += batch.num_rows
                    while count >= group_rows:
                        table = pa.Table.from_batches(waiting, schema)
                        writer.write_table(table.slice(0, group_rows), row_group_size=group_rows)
                        waiting = table.slice(group_rows).to_batches()
                        count -= group_rows
        if count:
            writer.write_table(pa.Table.from_batches(waiting, schema), row_group_size=count)


def polars_fingerprint(files):
    """Rows, and two sums of seeded hashes of each row with its position."""
    import polars as pl

    row = pl.struct(pl.all())
    frame = pl.scan_parquet(files, glob=False).with_row_index("__place")
    return frame.select(pl.len(), row.hash(seed=1).sum().alias("a"), row.hash(seed=2).sum().alias("b")).collect(engine="streaming").row(0)


def pyarrow_job(job):
    files, out, group_rows, check = job
    pyarrow_write(files, out, group_rows)
    if check and polars_fingerprint(files) != polars_fingerprint([out]):
        raise SystemExit(f"{out} holds other rows than its sources")


def run_pyarrow(cut, outs, check):
    group_rows = rows_of_a_group([path for files in cut for path in files])
    workers = max(1, min(os.cpu_count(), len(cut)))
    os.environ["POLARS_MAX_THREADS"] = str(max(1, os.cpu_count() // workers))
    jobs = [(files, out, group_rows, check) for files, out in zip(cut, outs)]
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(pyarrow_job, jobs))


def run_polars(cut, outs):
    import polars as pl

    group_rows = rows_of_a_group([path for files in cut for path in files])
    for files, out in zip(cut, outs):
        pl.scan_parquet(files, glob=False).sink_parquet(out, compression="zstd", compression_level=3, row_group_size=group_rows, engine="streaming")


def run_duckdb(cut, outs):
    import duckdb

    group_rows = rows_of_a_group([path for files in cut for path in files])
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '12GB'; SET preserve_insertion_order = true")
        for files, out in zip(cut, outs):
            listed = ", ".join(f"'{path}'" for path in files)
            connection.execute(
                f"COPY (SELECT * FROM read_parquet([{listed}], hive_partitioning = false)) TO '{out}'"
                f" (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, ROW_GROUP_SIZE {max(2048, group_rows)})"
            )


def prepare_delta(source, work):
    import deltalake

    table = work / "table"
    table.mkdir(parents=True)
    for path in sources(source):
        os.link(path, table / path.name)
    deltalake.convert_to_deltalake(str(table))


def run_delta(work, target):
    import deltalake

    properties = deltalake.WriterProperties(compression="ZSTD", compression_level=3)
    deltalake.DeltaTable(str(work / "table")).optimize.compact(target_size=target, max_concurrent_tasks=os.cpu_count(), writer_properties=properties)


PEERS = ["pyarrow+polars", "pyarrow", "polars", "duckdb", "delta-rs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--target-size", type=int, default=500 << 20)
    given = parser.parse_args()
    source, work = given.source.resolve(), given.work.resolve()
    if given.what == "prepare":
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        if given.peer == "delta-rs":
            prepare_delta(source, work)
        return
    if given.peer == "delta-rs":
        return run_delta(work, given.target_size)
    (work / "out").mkdir(parents=True)
    cut = runs(sources(source), given.target_size)
    outs = [work / "out" / f"{number:04d}.parquet" for number in range(len(cut))]
    if given.peer.startswith("pyarrow"):
        run_pyarrow(cut, outs, check=given.peer == "pyarrow+polars")
    else:
        {"polars": run_polars, "duckdb": run_duckdb}[given.peer](cut, outs)


if __name__ == "__main__":
    main()
