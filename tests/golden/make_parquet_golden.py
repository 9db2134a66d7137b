"""Writes parquet/, one table in several encodings of pyarrow, and table.json with its rows. Writes examples/, 200
examples in three formats, each in two parquet variants, and alpaca.jsonl with the same examples.

usage: python make_parquet_golden.py          (pyarrow 26.0.1)
"""
import json
import pathlib

import pyarrow
import pyarrow.parquet

FOLDER = pathlib.Path(__file__).parent / "parquet"
message = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
schema = pyarrow.schema([
    ("text", pyarrow.string()), ("number", pyarrow.int64()), ("small", pyarrow.uint32()), ("real", pyarrow.float32()),
    ("truth", pyarrow.bool_()), pyarrow.field("must", pyarrow.int32(), nullable=False),
    ("messages", pyarrow.list_(message)), ("lists", pyarrow.list_(pyarrow.list_(pyarrow.int32()))),
    ("map", pyarrow.map_(pyarrow.string(), pyarrow.string())), ("inside", pyarrow.struct([("list", pyarrow.list_(pyarrow.string()))])),
])


def row(i):
    return {
        "text": None if i % 7 == 3 else "" if i % 7 == 4 else f"zwölf {i % 5} " * (i % 4 + 1),
        "number": None if i % 5 == 0 else (-1) ** i * 3**i,
        "small": 2**32 - 1 - i,
        "real": i / 4,
        "truth": None if i % 4 == 3 else i % 3 == 0,
        "must": i // 3,
        "messages": None if i % 6 == 5 else [{"role": "user" if j % 2 == 0 else "assistant", "content": None if j == 3 else f"{i}.{j}"}
                                             for j in range(i % 5)],
        "lists": None if i % 9 == 8 else [None if j == 1 else list(range(j)) for j in range(i % 4)],
        "map": None if i % 8 == 7 else {f"k{j}": None if j == 2 else str(i) for j in range(i % 4)},
        "inside": None if i % 10 == 9 else {"list": None if i % 3 == 2 else ["x"] * (i % 3)},
    }


ROWS = [row(i) for i in range(40)]
WAYS = {
    "snappy_v1": dict(compression="snappy"),
    "zstd_v2": dict(compression="zstd", data_page_version="2.0", row_group_size=15),
    "gzip_small_pages": dict(compression="gzip", data_page_size=64, write_batch_size=4, dictionary_pagesize_limit=40),
    "plain": dict(compression="none", use_dictionary=False, write_page_checksum=True),
    "plain_v2": dict(compression="none", use_dictionary=False, data_page_version="2.0", write_statistics=False),
    "delta": dict(compression="snappy", use_dictionary=False, column_encoding={
        "text": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED", "must": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT",
        "truth": "RLE", "messages.list.element.content": "DELTA_LENGTH_BYTE_ARRAY"}),
    "two_groups_old_lists": dict(compression="snappy", row_group_size=17, use_compliant_nested_type=False, version="1.0"),
}

FOLDER.mkdir(exist_ok=True)
table = pyarrow.Table.from_pylist(ROWS, schema=schema)
for name, way in WAYS.items():
    pyarrow.parquet.write_table(table, FOLDER / f"{name}.parquet", **way)
assert all(dict(r["map"]) == w["map"] if w["map"] is not None else r["map"] is None
           for r, w in zip(pyarrow.parquet.read_table(FOLDER / "delta.parquet").to_pylist(), ROWS))
(FOLDER / "table.json").write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS) + "\n")

WORDS = ["quick", "brown", "Fuß,", "\"jumps\"", "over\n", "the", "lazy", "dog;", "\t1", ""]


def text(i, count):
    return " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(count)) + str(i)


ALPACA = [{"instruction": text(i, 3), "input": text(i, 2) if i % 2 else "", "output": text(i + 1, 4)} for i in range(200)]
asked = [f"{r['instruction']}\n\n{r['input']}" if r["input"] else r["instruction"] for r in ALPACA]
SHAPES = {
    "alpaca": ALPACA,
    "messages": [{"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": r["output"]}]}
                 for a, r in zip(asked, ALPACA)],
    "sharegpt": [{"conversations": [{"from": "human", "value": a}, {"from": "gpt", "value": r["output"]}]} for a, r in zip(asked, ALPACA)],
}
EXAMPLES = FOLDER.parent / "examples"
EXAMPLES.mkdir(exist_ok=True)
codecs = iter(["snappy", "zstd", "gzip", "snappy", "zstd", "none"])
for shape, rows in SHAPES.items():
    for version in "1.0", "2.0":
        codec = next(codecs)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), EXAMPLES / f"{shape}_{codec}_v{version[0]}.parquet",
                                    compression=codec, data_page_version=version)
(EXAMPLES / "alpaca.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in ALPACA))
