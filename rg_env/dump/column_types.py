"""The types of the columns of a dump's files, for this package and for other readers.

A reader that infers types from the first lines of the first file gets a wrong one where these have null, as where
nothing was scored: it then raises, or reads later numbers as null. All types here are derived from
`rg_env.dump.schema`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from rg_env.base.errors import refuse
from rg_env.dump.schema import MESSAGE_KEYS, FileKind, Record

if TYPE_CHECKING:
    import polars as pl
    from datasets import Features

type Tree = str | list[Tree] | dict[str, Tree]
"""The type of a column: a name in `_PLAIN`, a list of one type, or an object's keys with their types."""

_PLAIN: dict[type[inspect.Type], str] = {
    inspect.BoolType: "bool",
    inspect.IntType: "int64",
    inspect.FloatType: "float64",
    inspect.StrType: "string",
    inspect.EnumType: "string",
}
_DUCKDB = {"bool": "BOOLEAN", "int64": "BIGINT", "float64": "DOUBLE", "string": "VARCHAR"}
_PANDAS = {"bool": "boolean", "int64": "Int64", "float64": "Float64", "string": "str"}


def columns_of(record: Any) -> dict[str, Tree]:
    """Return the keys of a record's class, in order, with their types."""
    described = inspect.type_info(record)
    assert isinstance(described, inspect.StructType)
    return {field.name: _tree(field.type) for field in described.fields}


def _tree(kind: inspect.Type) -> Tree:
    if isinstance(kind, inspect.UnionType):
        # Fails for a field of two types, neither of which is None: no column could hold both.
        (kind,) = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
    if isinstance(kind, inspect.Metadata):  # an annotated type, as `Json`
        kind = kind.type
    if isinstance(kind, inspect.ListType):
        return [_tree(kind.item_type)]
    if isinstance(kind, inspect.StructType):
        return {field.name: _tree(field.type) for field in kind.fields}
    if isinstance(kind, inspect.TypedDictType):  # a message, whose keys msgspec sorts
        return dict.fromkeys(MESSAGE_KEYS, "string")
    return _PLAIN[type(kind)]


def polars_schema(record: Any) -> dict[str, pl.DataType]:
    """Return the columns of a record's class as polars has them."""
    return {name: _in_polars(tree) for name, tree in columns_of(record).items()}


def _in_polars(tree: Tree) -> pl.DataType:
    import polars as pl

    if isinstance(tree, list):
        return pl.List(_in_polars(tree[0]))
    if isinstance(tree, dict):
        return pl.Struct({name: _in_polars(inner) for name, inner in tree.items()})
    plain: dict[str, type[pl.DataType]] = {"bool": pl.Boolean, "int64": pl.Int64, "float64": pl.Float64}
    return plain.get(tree, pl.String)()


def _in_duckdb(tree: Tree) -> str:
    if isinstance(tree, list):
        return f"{_in_duckdb(tree[0])}[]"
    if isinstance(tree, dict):
        keys = [f'"{name}" {_in_duckdb(inner)}' for name, inner in tree.items()]
        return f"STRUCT({', '.join(keys)})"
    return _DUCKDB[tree]


def _in_datasets(tree: Tree) -> Any:
    from datasets import List, Value

    if isinstance(tree, list):
        return List(_in_datasets(tree[0]))
    if isinstance(tree, dict):
        return {name: _in_datasets(inner) for name, inner in tree.items()}
    return Value(tree)


def _on_the_hub(name: str, tree: Tree) -> dict[str, Any]:
    """Return a column as the front matter of a dataset card has it."""
    if isinstance(tree, list):
        inner = _on_the_hub(name, tree[0])
        # A list of plain values has the name of their type, one of objects their keys.
        return {"name": name, "list": inner.get("dtype") or inner["struct"]}
    if isinstance(tree, dict):
        return {"name": name, "struct": [_on_the_hub(key, inner) for key, inner in tree.items()]}
    return {"name": name, "dtype": tree}


@dataclass(frozen=True)
class ColumnTypes:
    """The types of the columns of a kind of file, such as `rollouts` or `ledger`, in the form that each reader takes.

    Raises:
        ConfigError: when asked for types, if there is no such kind.

    >>> ColumnTypes("trained").duckdb["step"], ColumnTypes("steps").duckdb["value"]
    ('BIGINT', 'DOUBLE[]')
    """

    kind: FileKind | str

    @property
    def _record(self) -> type[Record]:
        if self.kind not in list(FileKind):
            refuse("kind", self.kind, f"use one of {', '.join(FileKind)}")
        return FileKind(self.kind).record

    @property
    def _columns(self) -> dict[str, Tree]:
        return columns_of(self._record)

    @property
    def polars(self) -> dict[str, pl.DataType]:
        """For `polars.read_ndjson(files, schema=…)`, and `scan_ndjson`."""
        return polars_schema(self._record)

    @property
    def duckdb(self) -> dict[str, str]:
        """For `read_json('files', columns=…)`, whose notation is Python's."""
        return {name: _in_duckdb(tree) for name, tree in self._columns.items()}

    @property
    def pandas(self) -> dict[str, str]:
        """For `DataFrame.astype`, after `pandas.read_json(file, lines=True, dtype=False, precise_float=True)`, which
        leaves values as they are; columns of lists stay objects."""
        return {name: _PANDAS[tree] for name, tree in self._columns.items() if isinstance(tree, str)}

    @property
    def datasets(self) -> Features:
        """For `datasets.load_dataset("json", data_files=files, features=…)`."""
        from datasets import Features

        return Features({name: _in_datasets(tree) for name, tree in self._columns.items()})

    @property
    def hub(self) -> list[dict[str, Any]]:
        """For the `dataset_info` of a dataset card."""
        return [_on_the_hub(name, tree) for name, tree in self._columns.items()]
