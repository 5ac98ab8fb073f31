"""`assay baseline diff|verify|prune` against releases, as a person calls them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.integration.audits.place import call as call_assay
from tests.integration.audits.place import settle
from tests.integration.bot.stage import Stage
from tests.loopback.fixtures import WRITER, client


@pytest.fixture(autouse=True)
def _place(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(stage, tmp_path, monkeypatch)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return call_assay(capsys, "baseline", *arguments)


def test_reading_needs_no_token(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.publication is not None
    tag = stage.publication.tag
    before = len(stage.github.log)
    assert tag in call(capsys, "list")[1]
    assert call(capsys, "show", tag)[0] == 0
    assert call(capsys, "fetch", tag, str(tmp_path / "got"))[0] == 0
    code, out, _ = call(capsys, "verify", tag)
    assert (code, out.startswith(f"✓ {tag}")) == (0, True)
    assert {entry.login for entry in stage.github.log[before:]} == {None}


def test_verify_all_downloads_everything(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.publish(stage.repo.commit({"weights.txt": "3"}))
    code, out, _ = call(capsys, "verify", "--all")
    assert code == 0
    assert out.count("✓ baseline/main/") == 2
    downloads = len(stage.github.requests("GET", "/assets/"))
    call(capsys, "verify", "--all")
    assert len(stage.github.requests("GET", "/assets/")) == 2 * downloads  # nothing came from a cache


def test_verify_says_what_is_wrong(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    [release] = stage.repo.published()
    release.prerelease = False
    release.latest = True
    code, out, _ = call(capsys, "verify", release.tag)
    assert code == 2
    assert "no prerelease" in out
    assert "latest of the repository" in out


def test_verify_catches_other_bytes(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    [release] = stage.repo.published()
    rows = next(a for a in release.assets.values() if a.name == "rows.parquet")
    rows.data = rows.data[:-1] + bytes([rows.data[-1] ^ 1])
    code, out, _ = call(capsys, "verify", "--all")
    assert code == 2
    assert out.startswith(f"✗ {release.tag}")
    assert "rows.parquet does not match its digest" in out


def test_verify_catches_a_release_that_lost_a_file(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    [release] = stage.repo.published()
    release.assets = {k: a for k, a in release.assets.items() if a.name != "rows.parquet"}
    code, out, _ = call(capsys, "verify", release.tag)
    assert (code, "lacks rows.parquet" in out) == (2, True)


def test_verify_knows_immutable_releases_and_where_the_tag_stands(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    [release] = stage.repo.published()
    assert "not immutable" in call(capsys, "verify", release.tag)[1]
    release.immutable = True
    stage.repo.refs[f"refs/tags/{release.tag}"] = stage.head
    code, out, _ = call(capsys, "verify", release.tag)
    assert code == 0
    assert "immutable" not in out
    assert f"stands at {stage.head[:12]}, and {stage.base[:12]} was measured" in out


def test_diff_prints_the_verdict_of_the_bot(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.publication is not None
    worse = stage.publish(stage.head, record=stage.record(stage.head, broke=60))
    run = stage.measured(broke=60)
    stage.react(run)
    said = stage.comment().splitlines()[1].removeprefix("## ")
    code, out, _ = call(capsys, "diff", stage.publication.tag, worse.tag)
    assert out.splitlines()[0].strip() == said
    assert code == 1
    assert call(capsys, "diff", stage.publication.tag, stage.publication.tag)[0] == 0


def test_prune_keeps_what_is_needed_and_removes_nothing_unasked(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", stage.github.token(WRITER))
    later = [stage.publish(stage.repo.commit({"weights.txt": f"{i}"})) for i in range(3, 6)]
    tags = {release.tag for release in stage.repo.published()}
    assert stage.publication is not None
    _, out, err = call(capsys, "prune", "--keep", "1")
    assert "needed by 1 open pull request (#1)" in out
    assert "2 publications would go" in err
    assert {r.tag for r in stage.repo.published()} == tags
    code, out, _ = call(capsys, "prune", "--keep", "1", "--yes")
    assert code == 0
    assert {r.tag for r in stage.repo.published()} == {stage.publication.tag, later[-1].tag}
    assert {r for r in stage.repo.refs if r.startswith("refs/tags/")} == {
        f"refs/tags/{stage.publication.tag}",
        f"refs/tags/{later[-1].tag}",
    }
    stage.repo.issues[stage.number].state = "closed"
    call(capsys, "prune", "--keep", "1", "--yes")
    assert [r.tag for r in stage.repo.published()] == [later[-1].tag]


CAPSTONE = """\
title: INT8 weights for the toy
question: Do INT8 weights keep the toy's accuracy within 1 point?
milestones:
  - title: A kernel
    evidence: [evidence: {kind: kernel, metric: speedup, at-least: 1}]
  - title: It is written down
    evidence: [file: {path: docs/report.md, contains-headings: [Report]}]
"""


def test_retention_comes_from_assay_yml_and_keeps_evidence_of_milestones(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", stage.github.token(WRITER))
    stage.repo.issues[stage.number].state = "closed"
    assert stage.publication is not None
    later = [stage.publish(stage.repo.commit({"weights.txt": f"{i}"})) for i in range(3, 6)]
    report = f"# Report\n\nMeasured in `{later[0].tag}`.\n"
    stage.repo.commit({"capstone.yml": CAPSTONE, "docs/report.md": report})
    code, _, err = call(capsys, "prune", "--yes")
    assert (code, "no retention policy is given, so that nothing is removed" in err) == (0, True)
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github/assay.yml").write_text("retention: {keep: 1}\n")
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys, "prune", "--yes")
    assert code == 0
    assert f"kept  {later[0].tag}  (evidence of a milestone in capstone.yml)" in out
    assert {r.tag for r in stage.repo.published()} == {later[0].tag, later[-1].tag}
    stage.repo.commit({"capstone.yml": "milestones: 7\n"})
    code, _, err = call(capsys, "prune", "--yes")
    assert (code, "capstone.yml" in err) == (2, True)
    assert len(stage.repo.published()) == 2


def test_prune_refuses_a_folder_and_asks_for_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no retention policy" in call(capsys, "prune")[2]
    code, _, err = call(capsys, "prune", "--keep", "1", "--ledger", str(tmp_path))
    assert (code, "knows no pull requests" in err) == (2, True)


def test_diff_knows_what_was_accepted_by_a_command(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.publication is not None
    worse = stage.publish(stage.head, record=stage.record(stage.head, broke=60))
    name = "01234567-89ab-cdef-0123-456789abcdef"
    expires = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    entry = {
        "id": name, "task": "mmlu", "reason": "it ships", "by": "ada", "expires": expires, "pull": 1,
        "created": "2026-11-30T09:00:00Z",
    }  # fmt: skip
    client(stage.github).journal_put(f"accepted/{expires}/{name}.json", json.dumps(entry).encode(), "Accept")
    code, out, _ = call(capsys, "diff", stage.publication.tag, worse.tag)
    assert (code, "accepted until" in out) == (0, True)
    stage.react(run := stage.measured(broke=60))
    assert stage.verdict(run) == ("completed", "success")
