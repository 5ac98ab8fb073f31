"""Why evidence is refused, in our own words.

An artefact comes from code that anyone may have written. The reasons that reading and comparing give quote it (a key, a
task, the name of a file), which helps at a terminal and has no place in a comment, a check or a summary. So what is
published is one of the sentences below, which hold nothing of the artefact but counts; the reason in full goes to the log.
"""

from __future__ import annotations

import re
import sys

from assay.baselines.errors import InputError

OTHERWISE = "it is not what this assay writes: measure again"

REASONS: tuple[tuple[str, str], ...] = (
    # the archive
    (r"is not a readable zip archive", "the artefact is not a readable zip archive: run the measuring workflow again"),
    (r"has ([\d,]+) files, over ([\d,]+)", "the artefact has {0} files, over {1}: upload the evidence folder alone"),
    (r"which is a link, a duplicate or outside its folder",
     "the artefact holds a link, a duplicate name or a path outside its folder: upload the evidence folder alone"),
    (r"(?:unpacks to|archive is) over ([\d,]+) bytes",
     "the artefact is over {0} bytes: upload the evidence folder alone"),
    # the document
    (r"bytes; evidence has at most ([\d,]+)", "evidence.json has over {0} bytes: was a table inlined?"),
    (r"nested too deeply", "evidence.json is nested too deeply: measure again"),
    (r"is not valid JSON", "evidence.json is not valid JSON: measure again"),
    (r"is JSON but not an object", "evidence.json is not an object: upload the folder that assay wrote"),
    (r"has schema_version (\d{1,9}), and this assay reads (\d+)",
     "evidence.json has schema_version {0}, and this assay reads {1}: use one version of assay in both workflows"),
    (r"has schema_version", "evidence.json has an unknown schema_version: use one version of assay in both workflows"),
    (r"evidence\.json: .*; measure again", "evidence.json has fields or values that its schema does not allow: measure again"),
    # the table
    (r"(?:declares|has) ([\d,]+) rows.*assay reads at most ([\d,]+)",
     "the table has {0} rows and assay reads at most {1}: split the evaluation"),
    (r"has ([\d,]+) rows where the evidence says ([\d,]+)",
     "rows.parquet has {0} rows where evidence.json says {1}: run the measuring workflow again"),
    (r"is missing, and the evidence beside it names a table",
     "rows.parquet is missing, and evidence.json names it: upload the whole folder that assay wrote"),
    (r"it is truncated or changed", "rows.parquet is truncated or changed: run the measuring workflow again"),
    (r"does not match its digest", "rows.parquet does not match the digest in evidence.json: run the measuring workflow again"),
    (r"is not a readable Parquet file", "rows.parquet is not a readable Parquet file: run the measuring workflow again"),
    (r"has no table of examples", "the evidence has no table of examples, which an evaluation needs: measure again"),
    (r"the table has (?:unknown|no) column|the table has a column twice",
     "rows.parquet has other columns than an evaluation: use one version of assay in both workflows"),
    (r"has the wrong type", "a column of rows.parquet has the wrong type: use one version of assay in both workflows"),
    (r"has nulls", "rows.parquet lacks values that an evaluation needs: measure again"),
    (r"([\d,]+) of ([\d,]+) scores are not finite",
     "{0} of {1} scores are not finite numbers: the model or harness failed; a failure is not a score"),
    (r"a weight is not a positive number", "a weight is not a positive number: measure again"),
    # the comparison
    (r"has ([\d,]+) duplicate example ids", "there are {0} duplicate example ids: each example must occur once"),
    (r"([\d,]+) examples of .* are in head and not in base",
     "{0} examples are in head and not in base: give base-checkpoint to the evaluate action, or publish more on the base branch"),
    (r"([\d,]+) examples of .* are in base and not in head",
     "{0} examples are in base and not in head: evaluate the same examples"),
    (r"share no task", "base and head share no task: evaluate the same tasks"),
    (r"the head has no results for .*(?:evaluate|measure) the same",
     "a task of the base is missing in the head: evaluate the same tasks"),
    (r"share no example", "base and head share no example of a task: evaluate the same examples"),
    (r"no group of the policy matches", "no group of the policy matches a measured task: name them under gate.groups"),
    (r"the policy gates .* on ", "the policy gates a task on a metric that the evidence lacks: name one that it has"),
    (r"is declared binary and has scores other than", "a metric is declared binary and has scores other than 0 and 1"),
    (r"outside its declared range", "scores lie outside the range that the evidence declares"),
    (r"the perplexity overflows", "the perplexity overflows: the model is broken"),
    (r"^the supplementary base rows (were|do not)", "the supplementary base rows do not belong to this baseline: evaluate again"),
    (r"of kind .* is unknown to this assay", "the evidence is of a kind that this assay does not know: update assay"),
    (r"the environment changed .* and the policy blocks that",
     "the environment changed and the policy blocks that: measure the base again in this environment"),
    # the comparison of kernels
    (r"(?:base|head|the arm) has ([\d,]+) blocks: an interval needs at least (\d+)",
     "a case has {0} blocks, and an interval needs at least {1}: measure more"),
    (r"share no timed case", "base and head share no timed case: measure the same cases on both"),
    (r"^block \d+ of .* occurs twice", "a block occurs twice in rows.parquet: measure again"),
    (r"has over ([\d,]+) (cases|blocks): measure fewer", "rows.parquet has over {0} {1}: measure fewer"),
    # the comparison of compiled models
    (r"the head has no results for .*: compile the same models",
     "a model of the base is missing in the head: compile the same models"),
    (r"has no table of layers", "the evidence has no table of layers, which a compiled model needs: compile again"),
    (r"a row is no layer and no host operator",
     "rows.parquet has a row that is no layer and no host operator, or counts below zero: compile again"),
    # our own, which quote nothing
    (r"^the evidence (names another run than the one that uploaded it|claims another head commit than the run measured)",
     "the evidence {0}: measure the pull request's head commit in the run that uploads it"),
    (r"^the run left (two records of one kind|an artefact without evidence in it)",
     "the run left {0}: upload the folder that assay wrote, one of each kind"),
    (r"^the artefact holds more than (\d+) records", "the artefact holds more than {0} records: upload one of each kind"),
    (r"^the run left (\d+) artefacts of assay, over (\d+)", "the run left {0} artefacts of assay, over {1}: upload one"),
)  # fmt: skip


def own_words(error: InputError) -> str:
    """The published reason, without a full stop."""
    text = str(error)
    for pattern, words in REASONS:
        match = re.search(pattern, text)
        if match is not None:
            return words.format(*match.groups())
    return OTHERWISE


def refuse(error: InputError, what: str) -> str:
    """The published reason; the error in full goes to the log, on one line that no runner takes for a command."""
    print(f"assay: {what}: {' '.join(str(error).split())[:500]}", file=sys.stderr)
    return own_words(error)
