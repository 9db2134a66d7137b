"""Compares the readers of parquet and CSV with pyarrow and Python's csv on random tables.

usage: compare_tables.py TEST_DATA FOLDER [COUNT] [SEED]

Writes COUNT (3000) parquet tables into FOLDER, in every supported encoding, codec and page version of pyarrow, and
as many CSV tables, each with the rows that pyarrow or csv reads from it. Then TEST_DATA (build/tests/test_data)
compares. Needs pyarrow from PyPI.
"""
import csv
import json
import os
import pathlib
import random
import subprocess
import sys

import pyarrow
import pyarrow.parquet

LEAVES = [pyarrow.string(), pyarrow.large_string(), pyarrow.int32(), pyarrow.int64(), pyarrow.uint8(), pyarrow.uint32(), pyarrow.int16(),
          pyarrow.float32(), pyarrow.float64(), pyarrow.bool_(), pyarrow.null()]
WORDS = ["", "a", "ä", "漢字", "\n", "\"", "word ", "x" * 40, "\U0001f600"]


def random_type(rng, depth=0):
    kind = rng.random()
    if depth > 3 or kind < 0.6:
        return rng.choice(LEAVES)
    if kind < 0.75:
        return pyarrow.list_(random_type(rng, depth + 1))
    if kind < 0.8 and depth < 3:
        return pyarrow.map_(pyarrow.string(), random_type(rng, depth + 2))
    return pyarrow.struct([random_field(rng, f"f{i}", depth + 1) for i in range(rng.randint(1, 3))])


def random_field(rng, name, depth=0):
    kind = random_type(rng, depth)
    return pyarrow.field(name, kind, nullable=pyarrow.types.is_null(kind) or rng.random() < 0.8)


def random_value(rng, field, kind=None):
    kind = kind or field.type
    if field.nullable and rng.random() < 0.2 or pyarrow.types.is_null(kind):
        return None
    if pyarrow.types.is_map(kind):
        return [(f"k{i}", random_value(rng, kind.item_field)) for i in range(rng.randint(0, 3))]
    if pyarrow.types.is_list(kind):
        return [random_value(rng, kind.value_field) for _ in range(rng.choice([0, 1, 2, 3, 9]))]
    if pyarrow.types.is_struct(kind):
        return {kind.field(i).name: random_value(rng, kind.field(i)) for i in range(kind.num_fields)}
    if pyarrow.types.is_boolean(kind):
        return rng.random() < 0.5
    if pyarrow.types.is_integer(kind):
        bits = kind.bit_width
        low, high = (0, 2**bits - 1) if str(kind).startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return rng.choice([low, high, rng.randint(low, high), rng.randint(0, 9)])
    if pyarrow.types.is_floating(kind):
        return rng.choice([0.0, -1.5, 2.0**20, 0.25]) if kind == pyarrow.float32() else rng.gauss(0, 1e3)
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, 6)))


def encodings(rng, schema):
    """One encoding for each top-level column that pyarrow can write in another way."""
    chosen = {}
    for field in schema:
        if field.type in (pyarrow.string(), pyarrow.large_string()):
            chosen[field.name] = rng.choice(["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
        elif field.type in (pyarrow.int32(), pyarrow.int64()):
            chosen[field.name] = rng.choice(["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
        elif field.type in (pyarrow.float32(), pyarrow.float64()):
            chosen[field.name] = rng.choice(["PLAIN", "BYTE_STREAM_SPLIT"])
        elif field.type == pyarrow.bool_():
            chosen[field.name] = rng.choice(["PLAIN", "RLE"])
    return chosen or None


def plain(value, kind):
    """The value as in JSON: a map becomes an object."""
    if value is None:
        return None
    if pyarrow.types.is_map(kind):
        return {key: plain(held, kind.item_type) for key, held in value}
    if pyarrow.types.is_list(kind):
        return [plain(held, kind.value_type) for held in value]
    if pyarrow.types.is_struct(kind):
        return {kind.field(i).name: plain(value[kind.field(i).name], kind.field(i).type) for i in range(kind.num_fields)}
    return value


def write_table(rng, path):
    schema = pyarrow.schema([random_field(rng, f"c{i}") for i in range(rng.randint(1, 5))])
    count = rng.choice([0, 1, 2, 7, 30, 30, 200])
    columns = {field.name: [random_value(rng, field) for _ in range(count)] for field in schema}
    table = pyarrow.table({name: pyarrow.array(columns[name], schema.field(name).type) for name in columns}, schema=schema)
    uses_dictionary = rng.random() < 0.6
    pyarrow.parquet.write_table(
        table, path, compression=rng.choice(["snappy", "zstd", "gzip", "none"]), data_page_version=rng.choice(["1.0", "2.0"]),
        version=rng.choice(["1.0", "2.4", "2.6"]), use_dictionary=uses_dictionary,
        column_encoding=None if uses_dictionary else encodings(rng, schema), data_page_size=rng.choice([None, 64, 1000]),
        write_batch_size=rng.choice([None, 3]), dictionary_pagesize_limit=rng.choice([None, 60]),
        row_group_size=rng.choice([None, 5, 33]), write_statistics=rng.random() < 0.5, write_page_checksum=rng.random() < 0.5,
        use_compliant_nested_type=rng.random() < 0.7)
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid:  # pyarrow cannot read everything that it writes
        path.unlink()
        return False
    lines = [json.dumps({field.name: plain(row[field.name], field.type) for field in schema}, ensure_ascii=False) for row in rows]
    path.with_suffix(".jsonl").write_text("".join(line + "\n" for line in lines))
    return True


def write_csv(rng, path):
    pieces = ["", "a", "ä", " ", ",", ";", "\t", "\"", "\"\"", "\n", "\r\n", "x y", "[1, {}]", "'"]
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    pieces += ["\r"] if quoting == csv.QUOTE_ALL else []  # otherwise csv writes a CR that it reads as the end of a row
    names = [f"c{i}" for i in range(rng.randint(1, 4))]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"]))
        writer.writerow(names)
        for _ in range(rng.choice([0, 1, 2, 20])):
            writer.writerow(["".join(rng.choice(pieces) for _ in range(rng.randint(0, 5))) for _ in names])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    count, seed = [int(given) for given in sys.argv[3:5]] + [3000, 1][len(sys.argv[3:5]):]
    folder.mkdir(parents=True)
    written = sum(write_table(random.Random(seed * 1_000_003 + i), folder / f"{i}.parquet") for i in range(count))
    for i in range(count):
        write_csv(random.Random(seed * 1_000_003 + i), folder / f"csv{i}.csv")
    print(f"{written} tables, and {count - written} that pyarrow writes and does not read")
    command = [program, "--gtest_brief=1", "--gtest_filter=ParquetRows.MatchOtherReadersOnManyTables"]
    sys.exit(subprocess.run(command, env={**os.environ, "HT_TABLES": str(folder)}).returncode)


main()
