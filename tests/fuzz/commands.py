"""The fuzzer of slash commands (`make fuzz`): coverage-guided, over the parser of lines and the writer of outputs.

An input's first byte chooses: a comment as it comes, the rest of a line after `/assay <verb>`, or an entry of the journal.
Arguments are libFuzzer's, for example `-max_total_time=60`.
"""

from __future__ import annotations

import json
import sys

import atheris

with atheris.instrument_imports(include=["assay.bot.slash", "tests.fuzz.properties"]):
    from tests.fuzz.properties import line_holds, outputs_hold

    from assay.bot.slash.verbs import VERBS

NAMES = [verb.name for verb in VERBS]
KEYS = sorted({a.name for verb in VERBS for a in verb.arguments} | {"sha", "verb", "arguments", ""})


def one_input(data: bytes) -> None:
    """Hold the properties against one input."""
    given = atheris.FuzzedDataProvider(data)
    kind, verb = given.ConsumeIntInRange(0, 4), NAMES[given.ConsumeIntInRange(0, len(NAMES) - 1)]
    if kind == 0:
        line_holds(given.ConsumeUnicodeNoSurrogates(1200))
    elif kind == 1:
        line_holds(f"/assay {verb} {given.ConsumeUnicodeNoSurrogates(1200)}")
    elif kind == 2:
        pairs = [
            (KEYS[given.ConsumeIntInRange(0, len(KEYS) - 1)], given.ConsumeUnicodeNoSurrogates(200)) for _ in range(3)
        ]
        outputs_hold(verb, dict(pairs))
    elif kind == 3:
        task, reason, limit = (given.ConsumeUnicodeNoSurrogates(n) for n in (60, 60, 8))
        line_holds(f'/assay accept {task} reason="{reason}" expires=2027-01-31 up-to={limit}')
    else:
        try:
            arguments = json.loads(given.ConsumeUnicodeNoSurrogates(1200))
        except (ValueError, RecursionError):
            return
        if isinstance(arguments, dict):
            outputs_hold(verb, arguments)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
