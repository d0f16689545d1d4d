"""Schemas for pyarrow, with which rows and tables are written."""

from __future__ import annotations

import pyarrow as pa

from brinell.runs.schema import CLEAN, ROWS, SAMPLES, Schema

_TYPES = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "text": pa.string(),
    "name": pa.dictionary(pa.int32(), pa.string()),
    "text{}": pa.map_(pa.string(), pa.string()),
}


def arrow_schema(*schemas: Schema) -> pa.Schema:
    """Return schemas as one of pyarrow's; a column may be in several of them."""
    return pa.unify_schemas([pa.schema([(name, _type(kind)) for name, kind in schema.items()]) for schema in schemas])


def _type(kind: str) -> pa.DataType:
    return pa.list_(_type(kind[:-2])) if kind.endswith("[]") else _TYPES[kind]


ROWS_TABLE, SAMPLES_TABLE, CLEAN_TABLE = arrow_schema(ROWS), arrow_schema(SAMPLES), arrow_schema(CLEAN)
