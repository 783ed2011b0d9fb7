"""Loads on a key-value store by their names in db_bench and YCSB, with their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal[
    "load",
    "fillseq",
    "fillrandom",
    "filluniquerandom",
    "overwrite",
    "readrandom",
    "readseq",
    "readreverse",
    "seekrandom",
    "deleteseq",
    "deleterandom",
    "readwhilewriting",
    "ycsb_a",
    "ycsb_b",
    "ycsb_c",
    "ycsb_d",
    "ycsb_e",
    "ycsb_f",
    "trace",
]

OPERATIONS = ("read", "update", "update_field", "insert", "delete", "scan", "iterate", "read_modify_write")
"""Operations on records; a phase is a mix of them."""

WRITES = {"update", "update_field", "insert", "delete", "read_modify_write"}

LOG_STRUCTURED = ("rocksdb",)
"""Stores that compact in the background what was written: a run after writes loads their databases again."""

LOG_APART = ("rocksdb", "wiredtiger", "cassandra")
"""Stores whose log can be on another target."""

LOADS = ("load", "fillseq", "fillrandom", "filluniquerandom")
"""Phases that begin with an empty database and write as many records as it is to have."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """Parameters of a phase."""

    operations: str
    choice: str
    """Empty: by `load_order`."""
    text: str
    direction: Literal["forward", "reverse"] = "forward"


_ZIPFIAN = "scrambled_zipfian:0.99"

PHASES: dict[Phase, Meaning] = {
    "load": Meaning(
        operations="update",
        choice="",
        text="every record once into an empty database, in `load_order`, in batches of `load_batch`",
    ),
    "fillseq": Meaning(
        operations="update", choice="sequential", text="every record once, by key, into an empty database"
    ),
    "fillrandom": Meaning(
        operations="update",
        choice="uniform",
        text="as many writes as there are records, at random, into an empty database: 63 % of the keys occur",
    ),
    "filluniquerandom": Meaning(
        operations="update", choice="each_once", text="every record once, at random, into an empty database"
    ),
    "overwrite": Meaning(operations="update", choice="uniform", text="new values of records at random"),
    "readrandom": Meaning(operations="read", choice="uniform", text="records at random"),
    "readseq": Meaning(operations="iterate", choice="sequential", text="one record after the other, by key"),
    "readreverse": Meaning(
        operations="iterate", choice="sequential", direction="reverse", text="one record after the other, backwards"
    ),
    "seekrandom": Meaning(
        operations="scan", choice="uniform", text="seek to a record at random, and read `scan_records`"
    ),
    "deleteseq": Meaning(operations="delete", choice="sequential", text="delete records by key"),
    "deleterandom": Meaning(operations="delete", choice="uniform", text="delete records at random"),
    "readwhilewriting": Meaning(
        operations="read",
        choice="uniform",
        text="`jobs` readers (stream `readers`) and one writer of new values (stream `writer`), each at random",
    ),
    "ycsb_a": Meaning(operations="read/50:update_field/50", choice=_ZIPFIAN, text="update heavy"),
    "ycsb_b": Meaning(operations="read/95:update_field/5", choice=_ZIPFIAN, text="read mostly"),
    "ycsb_c": Meaning(operations="read", choice=_ZIPFIAN, text="read only"),
    "ycsb_d": Meaning(operations="read/95:insert/5", choice="latest:0.99", text="read what was inserted last"),
    "ycsb_e": Meaning(operations="scan/95:insert/5", choice=_ZIPFIAN, text="short ranges"),
    "ycsb_f": Meaning(operations="read/50:read_modify_write/50", choice=_ZIPFIAN, text="read, modify, write"),
    "trace": Meaning(
        operations="read:update:delete",
        choice="uniform",
        text="the operations of a `trace`, on its keys, with its sizes",
    ),
}
"""Parameters of each phase."""
