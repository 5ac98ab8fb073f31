"""A comparison for other machines: JSON, and JUnit XML for CI systems that show tests."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree as ET

from assay.baselines.compare.verdict import Conclusion, Finding, State
from assay.bot.sections import Result, section_for


def to_json(result: Result, conclusion: Conclusion, exit_code: int) -> str:
    """The whole comparison as one JSON object; keys are those of `Finding` and `Flip`."""
    comparison = result.comparison
    document: dict[str, Any] = {
        "schema_version": 1,
        "overall": result.overall.value,
        "conclusion": conclusion.value,
        "exit_code": exit_code,
        "reason": result.reason,
        "head": result.head_digest,
        "baseline": asdict(result.baseline) if result.baseline is not None else None,
        "kind": result.kind,
    }
    if comparison is not None:
        fields = asdict(comparison)
        fields.pop("kind"), fields.pop("overall"), fields.pop("reason")
        fields["findings"] = [_finding(f, result.kind) for f in comparison.findings]
        document |= fields
    return json.dumps(_finite(document), indent=1, default=str, allow_nan=False, ensure_ascii=False) + "\n"


def to_junit(result: Result, *, block_inconclusive: bool) -> str:
    """JUnit XML: one test case for each hypothesis.

    Regressed is a failure; inconclusive is skipped, or a failure when the policy blocks on it; no verdict at all is an
    error.
    """
    findings = result.comparison.findings if result.comparison is not None else ()
    verdict_words = section_for(result.kind).verdict_words
    suite = ET.Element("testsuite", name=f"assay {result.kind}")
    failures = skipped = errors = 0
    for f in findings:
        case = ET.SubElement(
            suite, "testcase", classname=_xml(f"assay.{result.kind}.{f.group}"), name=_xml(f.name), time="0"
        )
        words = _xml(f"{verdict_words(f)}: {f.base:.6g} to {f.head:.6g}, p = {f.p:.4g}, n = {f.n}")
        if f.blocks or (f.state is State.INCONCLUSIVE and block_inconclusive):
            failures += 1
            ET.SubElement(case, "failure", message=words, type=f.state.value)
        elif f.state is State.INCONCLUSIVE:
            skipped += 1
            ET.SubElement(case, "skipped", message=words)
        else:
            ET.SubElement(case, "system-out").text = words
    if result.comparison is None:
        errors = 1
        case = ET.SubElement(suite, "testcase", classname=f"assay.{result.kind}", name="comparison", time="0")
        ET.SubElement(case, "error", message=_xml(result.reason), type=result.overall.value)
    suite.attrib |= {
        "tests": str(len(findings) + errors),
        "failures": str(failures),
        "skipped": str(skipped),
        "errors": str(errors),
    }
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _finding(f: Finding, kind: str) -> dict[str, Any]:
    return {
        **asdict(f),
        "state": f.state.value,
        "verdict": section_for(kind).verdict_words(f),
        "blocks": f.blocks,
        "accepted": f.accepted.model_dump(mode="json") if f.accepted else None,
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity; what is not finite is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _xml(text: str) -> str:
    """Text that XML 1.0 may hold."""
    return "".join(
        c if c in "\t\n" or 0x20 <= ord(c) <= 0xD7FF or 0xE000 <= ord(c) <= 0xFFFD or ord(c) >= 0x10000 else "\ufffd"
        for c in text
    )
