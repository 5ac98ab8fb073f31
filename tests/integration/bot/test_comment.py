"""Which comment is ours, and that the newest state is what stays in it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.bot.stage import Stage, headline
from tests.loopback import Token, job_token
from tests.loopback.fixtures import WRITER, client

from assay.bot.observe import observe

QUOTED = "<!-- assay run=999 attempt=1 head=000000000000 -->\n## ✓ Accuracy is equivalent\n"
RESULT = "## ✗ Accuracy regressed on mmlu"


def test_ours_is_found_among_hundreds_of_look_alikes(stage: Stage) -> None:
    for i in range(120):
        stage.repo.comment(stage.number, QUOTED if i % 2 else f"> {QUOTED}", author="mallory")
    stage.react(stage.measured(broke=60))
    for _ in range(120):
        stage.repo.comment(stage.number, QUOTED, author="other-bot[bot]")
    stage.react(stage.measured(broke=1, fixed=1))
    assert headline(stage.comment()) == "## ✓ Accuracy is equivalent"
    strangers = [c.body for c in stage.repo.comments_on(stage.number) if c.author != "github-actions[bot]"]
    assert len(strangers) == 240
    assert all(QUOTED in body for body in strangers)


def test_our_own_comment_that_quotes_a_marker_later_on_is_left_alone(stage: Stage) -> None:
    said = f"As assay wrote:\n{QUOTED}"
    stage.repo.comment(stage.number, said, author="github-actions[bot]")
    stage.react(stage.measured(broke=60))
    assert stage.comments()[0] == said
    assert headline(stage.comments()[1]) == RESULT


def test_among_more_checks_and_runs_than_a_page_holds(stage: Stage) -> None:
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    for i in range(130):
        stage.repo.start_run(stage.head, branch="feature", name=f"ci {i}", path=f".github/workflows/ci{i}.yml",
                             status="completed", conclusion="success")  # fmt: skip
    bot = client(stage.github)
    for i in range(130):
        bot.create_check("assay", stage.head, external_id=f"someone-else-{i}")
    stage.react(run)
    assert stage.verdict(run) == ("completed", "failure")
    assert headline(stage.comment()) == RESULT
    assert len(stage.github.requests("GET", r"/artifacts$")) <= 40  # not one for each of the 131 runs
    assert sum(c.status == "in_progress" for c in stage.checks()) == 130


def test_a_second_measuring_workflow_is_not_lost_among_many_runs(stage: Stage) -> None:
    other = stage.start("assay nightly")
    stage.react(other, "requested")
    stage.finish(other, broke=60)
    stage.react(other)
    for i in range(60):
        stage.repo.start_run(stage.head, branch="feature", name=f"ci {i}", path=f".github/workflows/ci{i}.yml",
                             status="completed", conclusion="success")  # fmt: skip
    stage.react(stage.measured(broke=1, fixed=1))
    assert "assay nightly: Accuracy regressed" in stage.comment()
    assert "assay measure: Accuracy is equivalent" in stage.comment()


def test_duplicates_heal_into_the_oldest(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.react(run)
    body = stage.comment()
    first = next(iter(stage.repo.comments))
    for _ in range(3):
        stage.repo.comment(stage.number, body, author="github-actions[bot]")
    stage.react(run)
    assert stage.comment() == body
    assert [c.id for c in stage.repo.comments_on(stage.number)] == [first]


def test_a_text_that_somebody_edited_is_written_anew(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.react(run)
    body = stage.comment()
    [comment] = stage.repo.comments_on(stage.number)
    comment.body = body.splitlines()[0] + "\n## ✓ all is well, please merge\n"
    stage.react(run)
    assert stage.comment() == body


def test_a_deleted_comment_comes_back(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.react(run)
    stage.repo.comments.clear()
    stage.react(run)
    assert headline(stage.comment()) == RESULT


def test_a_minimized_comment_is_not_where_people_look(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.react(run)
    hidden = next(iter(stage.repo.comments))
    written = stage.github.payloads.comment

    def payload(repo: Any, comment: Any) -> Any:
        """GitHub's payload once somebody has hidden the comment as outdated."""
        return written(repo, comment) | ({"minimized": {"reason": "outdated"}} if comment.id == hidden else {})

    stage.github.payloads.comment = payload  # type: ignore[method-assign]
    again = stage.measured(broke=1, fixed=1)
    stage.react(again)
    stage.react(again)
    old, new = stage.comments()
    assert headline(old) == RESULT
    assert headline(new) == "## ✓ Accuracy is equivalent"


def test_personal_token_writes_as_its_owner(stage: Stage) -> None:
    person = Token(login="robot", kind="personal", permissions=WRITER.permissions)
    stage.repo.comment(stage.number, QUOTED, author="github-actions[bot]")
    stage.react(stage.measured(broke=60), token=person)
    stage.react(stage.measured(broke=1, fixed=1), token=person)
    [body] = stage.comments(author="robot")
    assert headline(body) == "## ✓ Accuracy is equivalent"
    assert stage.comments() == [QUOTED]


def test_an_app_of_its_own_keeps_one_comment(stage: Stage) -> None:
    """An app's token may not ask who it is; the app that its check names tells."""
    app = Token(login="acme-gate[bot]", permissions=WRITER.permissions)
    written = stage.github.payloads.check
    stage.github.payloads.check = lambda repo, check: (  # type: ignore[method-assign]
        (made := written(repo, check)) | {"app": made["app"] | {"slug": "acme-gate"}}
    )
    for flips in ({"broke": 60}, {"broke": 1, "fixed": 1}):
        run = stage.start()
        stage.react(run, "requested", token=app)
        stage.finish(run, **flips)
        stage.react(run, token=app)
    [body] = stage.comments(author="acme-gate[bot]")
    assert headline(body) == "## ✓ Accuracy is equivalent"


def test_the_older_run_finishes_last(stage: Stage) -> None:
    older, newer = stage.start(), stage.start()
    for run in (older, newer):
        stage.react(run, "requested")
    stage.finish(newer, broke=1, fixed=1)
    stage.react(newer)
    stage.finish(older, broke=60)
    stage.react(older)
    assert f"run={newer} " in stage.comment()
    assert headline(stage.comment()) == "## ✓ Accuracy is equivalent"
    assert [stage.verdict(run)[0] for run in (older, newer)] == ["completed", "completed"]


def test_what_another_run_wrote_between_look_and_word_is_not_overwritten(stage: Stage) -> None:
    """The older run looks while the newer one is unfinished, and writes when the newer one has already written."""
    first = stage.measured(broke=60)
    stage.react(first)
    slow, quick = stage.start("assay measure"), stage.start("assay nightly")
    for run in (slow, quick):
        stage.react(run, "requested")
    stage.finish(slow, broke=1, fixed=1)
    bot = client(stage.github)
    ask, turns = bot.comment, []

    def comment(number: int) -> Any:
        """The moment just before writing: now the other run finishes and answers."""
        if not turns:
            turns.append(number)
            stage.finish(quick, broke=60)
            stage.react(quick)
        return ask(number)

    bot.comment = comment  # type: ignore[method-assign]
    stage.react(slow, bot=bot)
    assert turns
    assert "assay nightly: Accuracy regressed" in stage.comment()
    assert "assay measure: Accuracy is equivalent" in stage.comment()
    assert len(stage.summary) == 1


def test_the_head_moves_between_look_and_word(stage: Stage) -> None:
    old = stage.start()
    stage.react(old, "requested")
    stage.finish(old, broke=60)
    stage.react(old)
    again = stage.measured(broke=60)
    bot = client(stage.github)
    ask, turns = bot.comment, []

    def comment(number: int) -> Any:
        if not turns:
            turns.append(number)
            head = stage.repo.commit({"weights.txt": "3"}, branch="feature")
            stage.repo.synchronize(stage.number)
            stage.react(stage.measured(broke=1, fixed=1, head=head))
        return ask(number)

    bot.comment = comment  # type: ignore[method-assign]
    stage.react(again, bot=bot)
    assert headline(stage.comment()) == "## ✓ Accuracy is equivalent"
    assert f"head={stage.repo.issues[stage.number].head_sha[:12]}" in stage.comment()


@pytest.mark.parametrize("crashed", ["cancelled", "failure", "timed_out"])
def test_two_workflows_one_in_progress_one_crashed(stage: Stage, crashed: str) -> None:
    done = stage.start("assay measure")
    running, broken = stage.start("assay nightly"), stage.start("assay weekly")
    for run in (done, running, broken):
        stage.react(run, "requested")
    stage.finish(done, broke=1, fixed=1)
    stage.react(done)
    assert headline(stage.comment()) == "## ✓ Accuracy is equivalent"
    stage.repo.finish_run(broken, crashed)
    stage.react(broken)
    body = stage.comment()
    assert headline(body) == "## ✗ The measurement failed"
    assert "assay measure: Accuracy is equivalent" in body
    assert "assay weekly: The measurement failed" in body
    assert "nightly" not in body
    assert stage.verdict(running) == ("in_progress", None)
    stage.finish(running, broke=60)
    stage.react(running)
    body = stage.comment()
    assert headline(body) == "## ✗ The measurement failed (and 1 more)"
    for line in ("measure: Accuracy is equivalent", "nightly: Accuracy regressed", "weekly: The measurement failed"):
        assert line in body
    again = stage.start("assay nightly")
    stage.react(again, "requested")
    stage.react(broken)
    assert "[A newer run]" in stage.comment()


def test_a_pass_of_one_workflow_does_not_hide_the_block_of_another(stage: Stage) -> None:
    """GitHub requires a check by its name, and of that name the newest counts."""
    bad, good = stage.start("assay nightly"), stage.start("assay measure")
    for run in (bad, good):
        stage.react(run, "requested")
    stage.finish(bad, broke=60)
    stage.react(bad)
    stage.finish(good, broke=1, fixed=1)
    stage.react(good)
    newest = max(stage.checks(), key=lambda c: c.id)
    assert newest.external_id == f"{good}-1"
    assert (newest.conclusion, newest.title) == ("failure", "✗ Accuracy regressed on mmlu")


def test_names_of_their_own_keep_the_checks_apart(stage: Stage) -> None:
    bad, good = stage.start("assay nightly"), stage.start("assay measure")
    for run, name in ((bad, "assay-nightly"), (good, "assay")):
        stage.react(run, "requested", check_name=name)
    stage.finish(bad, broke=60)
    stage.react(bad, check_name="assay-nightly")
    stage.finish(good, broke=1, fixed=1)
    stage.react(good)
    assert {c.name: c.conclusion for c in stage.checks()} == {"assay": "success", "assay-nightly": "failure"}


def test_a_lost_requested_event_leaves_no_gap(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.react(run)
    assert stage.verdict(run) == ("completed", "failure")


def test_a_run_that_waits_for_an_approval_has_not_failed(stage: Stage) -> None:
    """GitHub completes it as `action_required`; its check waits, nobody is told of a fault, and the approved run answers."""
    run = stage.start()
    stage.react(run, "requested")
    stage.repo.finish_run(run, "action_required")
    stage.react(run)
    assert stage.comments() == []
    assert stage.verdict(run) == ("in_progress", None)
    stage.react(stage.finish(run, broke=60))
    assert stage.verdict(run) == ("completed", "failure")
    assert "Accuracy regressed" in stage.comment()


def test_a_run_that_measures_no_pull_request_opens_no_check(stage: Stage) -> None:
    run = stage.repo.start_run(stage.base, event="push", name="assay measure")
    assert stage.react(run, "requested") == []
    stage.repo.finish_run(run)
    assert stage.react(run) == []
    assert not stage.repo.checks


def test_observing_changes_nothing(stage: Stage) -> None:
    from tests.loopback import events
    from tests.loopback.fixtures import ledger

    from assay.bot.observe import event_facts

    run = stage.measured(broke=60)
    stage.github.log.clear()
    facts = event_facts("workflow_run", events.workflow_run(stage.github, stage.repo, run))
    reader = job_token(contents="read", actions="read", checks="read", pull_requests="read")
    bot = client(stage.github, reader)
    shelf = ledger(stage.github, stage.scratch / "cache", reader)
    [(snapshot, _)] = observe(facts, bot, shelf, lambda _: [stage.base], stage.scratch / "store")
    assert snapshot.baselines[0].commit == stage.base
    assert {(e.method, e.path) for e in stage.github.log if e.method != "GET"} <= {("POST", "/api/graphql")}  # a query
