"""Kinds of entries of the journal that servers write, with those of storage, and what undoes each."""

from __future__ import annotations

from iosonde.storage import undo
from iosonde.storage.safety.journal import DATABASE_ON_SERVER, DATABASES, OWN_DIRECTORY, SERVER, JournalKind
from iosonde.study.servers import foreign, programs

KINDS = (
    *undo.KINDS,
    JournalKind(
        what=SERVER,
        path=rf"/.+/{OWN_DIRECTORY.pattern}/[a-z]+-[0-9a-f]{{8}}(/[a-z]+(/(mon|mgr|osd)\.[a-z0-9]+)?)?",
        facts={"process": r"[0-9a-f-]+ [0-9]+ [0-9]+", "program": r"/.+"},
        undo=programs.undo,
    ),
    JournalKind(
        what=DATABASE_ON_SERVER,
        path=rf"{DATABASES}/iosonde[_-][0-9a-f]{{8}}",
        facts={
            "url": r"[a-z0-9]+://[^\s]+",
            "database": r"iosonde[_-][0-9a-f]{8}",
            "region": r"[a-z0-9-]{0,64}",
            "auth_source": r"[^\s/\\.\"$]{0,63}",
        },
        undo=foreign.undo,
    ),
)
