"""The marks of a report."""

from __future__ import annotations

from iosonde.report.material import Material
from iosonde.report.table import Cell, Table
from toy.record import ToyReading


def tables(material: Material) -> list[Table]:
    """Return one table with the mark of each run."""
    found = [
        (record.run_id, reading.mark)
        for source in material.sources
        for record in source.records
        if (reading := record.of(ToyReading))
    ]
    rows = [[Cell(text=run), Cell(text=str(mark), number=mark)] for run, mark in found]
    return [Table(title="Toy marks", heads=["Run", "Mark"], labels=1, rows=rows)] if rows else []


TABLES = (tables,)
