"""What a checklist is ticked from: the evidence that is kept, headings of files, and the gate's verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import quote

from assay.baselines.evidence import Evidence
from assay.bot.milestones.vocabulary import Selector

MAX_HEADINGS = 200
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True)
class Link:
    """Where something can be looked at: a URL, or a place on this machine."""

    label: str
    target: str = ""


@dataclass(frozen=True)
class Kept:
    """Evidence with its digest and where it is kept."""

    digest: str
    evidence: Evidence
    place: str = ""
    """URL, tag or folder."""

    @property
    def link(self) -> Link:
        return Link(f"{self.evidence.kind} {self.digest[:12]}", self.place)


@dataclass(frozen=True)
class Verdict:
    """What the gate said about the head, for one kind of evidence."""

    overall: str
    place: str = ""


@dataclass(frozen=True)
class Shelf:
    """Everything that predicates may look at."""

    kept: tuple[Kept, ...] = ()
    files: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    """Path -> its headings; None for a file that is not there."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Kind of evidence -> the gate's verdict."""
    files_at: str = ""
    """What stands before a path to make a link of it."""

    def matching(self, selector: Selector) -> list[Kept]:
        """The evidence that a selector means, newest first."""
        found = {k.digest: k for k in self.kept if fits(selector, k.evidence)}
        return sorted(found.values(), key=lambda k: (k.evidence.provenance.created.timestamp(), k.digest), reverse=True)

    def file(self, path: str) -> Link:
        """A link to a file of the repository."""
        return Link(path, self.files_at + (quote(path) if "://" in self.files_at else path))


def fits(selector: Selector, evidence: Evidence) -> bool:
    """Whether evidence is what a selector means."""
    subject = evidence.subject
    wanted = ((selector.subject, subject.name), (selector.format, subject.format), (selector.backend, subject.backend))
    return evidence.kind == selector.kind and all(p is None or fnmatchcase(value, p) for p, value in wanted)


def headings(text: str) -> tuple[str, ...]:
    """The headings of a Markdown text, without their marks; lines of code that look like one are none."""
    found: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and (match := _HEADING.match(line)) and len(found) < MAX_HEADINGS:
            found.append(match[1][:200])
    return tuple(found)


def lacking(wanted: Iterable[str], found: Iterable[str]) -> list[str]:
    """The wanted headings that are not there; letter case and spacing do not matter."""
    there = {" ".join(h.casefold().split()) for h in found}
    return [w for w in wanted if " ".join(w.casefold().split()) not in there]
