"""The answer of one check."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    status: str
    """``ok``, ``warning``, ``failure`` or ``skipped``."""
    text: str
    """One line."""
    remedy: str = ""
    """What to do about a warning or a failure."""
    name: str = ""
    """Of the check."""

    @classmethod
    def ok(cls, text: str) -> Finding:
        """Return the finding that all is well."""
        return cls("ok", text)

    @classmethod
    def skipped(cls, text: str) -> Finding:
        """Return the finding that there is nothing to check here."""
        return cls("skipped", text)

    @classmethod
    def warning(cls, text: str, remedy: str) -> Finding:
        """Return the finding that something works less well than it could."""
        return cls("warning", text, remedy)

    @classmethod
    def failure(cls, text: str, remedy: str) -> Finding:
        """Return the finding that something does not work."""
        return cls("failure", text, remedy)

    def named(self, name: str) -> Finding:
        """Return this finding under the name of its check, its text in one line."""
        return replace(self, name=name, text=" ".join(self.text.split()))
