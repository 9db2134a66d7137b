"""Writes class_labels.parquet: texts with classes as numbers, whose names are in the metadata, as Hugging Face's datasets
writes a ClassLabel.

usage: python make_class_label_golden.py          (pyarrow 26.0.1)
"""
import json
import pathlib

import pyarrow
import pyarrow.parquet

FEATURES = {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": ["neg", "pos", "none"], "_type": "ClassLabel"}}
table = pyarrow.table({"text": [f"text {i}" for i in range(8)], "label": [i % 2 for i in range(8)]})
table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})
pyarrow.parquet.write_table(table, pathlib.Path(__file__).parent / "class_labels.parquet")
