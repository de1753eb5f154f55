"""Numbers with decimal commas, told from those with commas or points between thousands."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tsformer.errors import DataError

_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}[.,]\d{3}\s*")
# What pandas takes for truth values.
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


@dataclass
class Decimals:
    """Makes numbers of a file's texts, and keeps in mind what signs they have, chunk by chunk.

    Attributes:
        path: of the file.
        text: columns that are never numbers.
        needed: columns whose numbers are used; others only show what a comma means.
        commas: columns that have numbers with a comma, and whether one of them cannot be between
            thousands.
        points: likewise.
    """

    path: Path
    text: Collection[str]
    needed: list[str]
    commas: dict[str, bool] = field(default_factory=dict)
    points: dict[str, bool] = field(default_factory=dict)

    @property
    def certain(self) -> bool:
        """Whether some comma is certainly decimal."""
        return any(self.commas.values())

    def convert(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the needed columns, with numbers instead of texts where all texts are numbers.

        Args:
            frame: texts of all columns; numbers too, if commas were read as decimal.

        Raises:
            DataError: of the needed columns, some have decimal commas and some points.
        """
        columns = {name: self._convert(frame[name], name) for name in frame}
        commas = [name for name in self.needed if name in self.commas]
        points = [name for name in self.needed if name in self.points]
        if commas and points:
            raise DataError(
                f"{self.path}: column {commas[0]!r} seems to hold decimal commas, but column "
                f"{points[0]!r} decimal points. Write all numbers with points, and nothing "
                "between thousands."
            )
        return pd.DataFrame({name: columns[name] for name in self.needed}, index=frame.index)

    def _convert(self, column: pd.Series, name: str) -> pd.Series:
        if pd.api.types.is_float_dtype(column):
            if name not in self.commas and (column % 1 > 0).any():
                self.commas[name] = True
            return column
        if name in self.text or pd.api.types.infer_dtype(column) not in ("string", "empty"):
            return column
        signed = {sign: column.str.contains(sign, regex=False, na=False) for sign in ",."}
        plain = column.str.replace(",", ".", regex=False) if signed[","].any() else column
        try:
            numbers = pd.to_numeric(plain)
        except ValueError:
            is_truth = all(text in _TRUTH for text in column.dropna())
            return column.map(_TRUTH) if is_truth else column
        for sign, seen in ((",", self.commas), (".", self.points)):
            if signed[sign].any() and not seen.get(name):
                seen[name] = not all(map(_THOUSANDS.fullmatch, column[signed[sign]]))
        return numbers

    def refuse_thousands(self) -> None:
        """Refuse signs that may be between thousands, once the whole file was seen.

        Raises:
            DataError: no comma is certainly decimal, or one is, and all points of a column may be
                between thousands.
        """
        decimal = [name for name, certain in self.commas.items() if certain]
        for name in self.needed:
            if name in self.commas and not decimal:
                raise DataError(
                    f"{self.path}: the commas in the numbers of column {name!r} may stand for "
                    "decimals or for thousands. Write decimals with points, and nothing between "
                    "thousands."
                )
            if decimal and not self.points.get(name, True):
                raise DataError(
                    f"{self.path}: the points in the numbers of column {name!r} seem to stand for "
                    f"thousands, as column {decimal[0]!r} holds decimal commas. Write decimals "
                    "with points, and nothing between thousands."
                )
