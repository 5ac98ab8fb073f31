"""What `assay command verify` hands to the steps after it."""

from __future__ import annotations

import json

from assay.bot.slash.entries import Dispatched


def outputs_of(entry: Dispatched) -> str:
    """The lines for GITHUB_OUTPUT: `sha`, `verb`, all arguments as one JSON text, and each argument by its name.

    An entry holds no line break and no argument of a reserved name, so that a line is an output and nothing else (the
    runner reads `name=value` and `name<<end` by line, and of two outputs of one name the later). That is checked here again,
    for what is written decides which commit a machine of somebody's runs. Raises `ValueError` otherwise.
    """
    pairs = [("sha", entry.head_sha), ("verb", entry.verb)]
    pairs.append(("arguments", json.dumps(entry.arguments, sort_keys=True, ensure_ascii=True)))
    pairs += sorted(entry.arguments.items())
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names) or not all(name.replace("-", "").isalnum() and name.isascii() for name in names):
        raise ValueError("an argument has the name of another output")
    if any(character < " " or character in "\x7f\x85\u2028\u2029" for _, value in pairs for character in value):
        raise ValueError("an argument has a line break")
    return "".join(f"{name}={value}\n" for name, value in pairs)
