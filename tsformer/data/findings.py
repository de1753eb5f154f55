"""What is found out about a table: faults that stop it, and what is worth knowing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tsformer.errors import DataError

Level = Literal["error", "warning", "note"]


@dataclass
class Finding:
    """One kind of fault or peculiarity, however often it occurs.

    Attributes:
        level: an `error` stops the table; a `warning` says that it is used otherwise than the
            user may think; a `note` tells what was done with it.
        kind: in a few words, such as `duplicate rows`.
        example: the first occurrence: series, column, row, stamp, value.
        remedy: what to do, a sentence; empty when there is nothing to do.
        count: occurrences.
    """

    level: Level
    kind: str
    example: str
    remedy: str = ""
    count: int = 1

    def __str__(self) -> str:
        """Return it as a sentence or two."""
        more = f" ({self.count:,} in all)" if self.count > 1 else ""
        return f"{self.example}{more}.{' ' if self.remedy else ''}{self.remedy}"


@dataclass
class Findings:
    """All findings of one table, one of each kind and place."""

    items: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def add(self, finding: Finding, place: str = "") -> None:
        """Add a finding, or its count to the one of the same kind and place, such as a column."""
        known = self.items.setdefault((finding.kind, place), finding)
        if known is not finding:
            known.count += finding.count

    def __iter__(self) -> Iterator[Finding]:
        """Iterate over the findings, errors first."""
        order = ("error", "warning", "note")
        return iter(sorted(self.items.values(), key=lambda finding: order.index(finding.level)))

    def of(self, *levels: Level) -> list[Finding]:
        """Return the findings of these levels."""
        return [finding for finding in self if finding.level in levels]

    def refuse(self) -> None:
        """Raise one DataError that lists all errors, if there are any."""
        errors = self.of("error")
        if len(errors) == 1:
            raise DataError(str(errors[0]))
        if errors:
            listed = "".join(f"\n  {number}. {error}" for number, error in enumerate(errors, 1))
            raise DataError(f"{len(errors)} faults:{listed}")
