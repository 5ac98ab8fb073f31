"""Whole leases with real worker processes: what is measured, and that a head that cheats is caught."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.kernels import cheats

from assay.baselines import usercode
from assay.baselines.compare import compare
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Overall, State
from assay.baselines.errors import InputError, ServiceError
from assay.baselines.evidence import Environment
from assay.baselines.policy import Policy
from assay.baselines.record import Record, read_record, write_record
from assay.bot.cli import assay
from assay.kernels.bench import arm as arm_module
from assay.kernels.bench.arm import Arm
from assay.kernels.bench.evidence import records
from assay.kernels.bench.lease import measure
from assay.kernels.bench.order import BASE, CONTROL, HEAD
from assay.kernels.bench.timed import Lease, Plan

MEASURED_AGAIN = 6
TODAY = datetime(2026, 11, 30, tzinfo=UTC).date()


def lease(
    tmp_path: Path,
    head: str,
    base: str | None = cheats.HONEST,
    declaration: str = "",
    **options: object,
) -> Lease:
    return measure(
        Plan(
            file=Path("bench.py"),
            head=cheats.checkout(tmp_path / "head", head, declaration),
            base=cheats.checkout(tmp_path / "base", base) if base is not None else None,
            **{
                "blocks": 10,
                "rounds": 1,
                "cache": 1 << 16,
                "block_seconds": 1e-3,
                "margin": 0.5,
                "timeout": 60.0,
                **options,
            },  # type: ignore[arg-type]
        )
    )


def written(found: Lease, folder: Path) -> tuple[Record, Record | None]:
    """The records as a later step reads them."""
    made = records(
        found,
        commits={"head": "a" * 40, "base": "b" * 40},
        command="assay bench bench.py",
        environment=Environment(hardware="test CPU"),
    )
    kept = []
    for name, record in zip(("head", "base"), made, strict=True):
        if record is not None:
            write_record(folder / name, record.evidence, record.rows)
            kept.append(read_record(folder / name))
    return kept[0], kept[1] if len(kept) > 1 else None


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lease, Record, Record]:
    """Measured again, as the report of a void run asks, while something else on this machine moves the control."""
    for _ in range(MEASURED_AGAIN):
        folder = tmp_path_factory.mktemp("slower")
        found = lease(folder, cheats.SLOW, rounds=2)
        head, base = written(found, folder / "evidence")
        assert base is not None
        if not compare(head, base, Policy(), TODAY).reason:
            break
    return found, head, base


def test_every_block_has_all_arms_in_the_drawn_order(slower: tuple[Lease, Record, Record]) -> None:
    found, _, _ = slower
    timed = found.timed["n64k"]
    assert not timed.faults
    for block in range(10):
        rows = [r for r in timed.rows if r.block == block]
        assert sorted(r.arm for r in rows) == [BASE, CONTROL, HEAD]
        assert sorted(r.position for r in rows) == [0, 1, 2]
        assert all(0 < r.seconds * r.launches < r.wall for r in rows)


def test_rounds_have_processes_of_their_own(slower: tuple[Lease, Record, Record]) -> None:
    found, head, base = slower
    assert [r.round for r in found.timed["n64k"].rows if r.arm == HEAD] == [0] * 5 + [1] * 5
    assert head.rows is not None
    assert base.rows is not None
    assert head.rows.column("round").to_pylist() == [0] * 5 + [1] * 5
    assert head.evidence.attributes["rounds"] == 2


def test_a_slower_head_is_blocked(slower: tuple[Lease, Record, Record]) -> None:
    _, head, base = slower
    compared = compare(head, base, Policy(), TODAY)
    assert compared.overall is Overall.REGRESSED
    [finding] = compared.findings
    assert finding.change > 1
    assert finding.n == 10


def test_evidence_says_what_and_how(slower: tuple[Lease, Record, Record]) -> None:
    found, head, base = slower
    evidence = head.evidence
    assert evidence.subject.name == "double"
    assert evidence.subject.configuration == {"unrolled": False}
    assert evidence.subject.digest != base.evidence.subject.digest
    assert evidence.protocol == base.evidence.protocol
    assert {k: v for k, v in evidence.attributes.items() if k.startswith("contract.")} == {
        "contract.n64k": True,
        "contract.odd": True,
        "contract.empty": True,
    }
    assert evidence.attributes["lease"] == base.evidence.attributes["lease"] == found.id
    assert evidence.attributes["losing_regions"] == "n64k"
    assert evidence.attributes["command"] == "assay bench bench.py"
    assert base.evidence.attributes["supplement"] is True
    latency = evidence.metrics["latency/n64k"]
    assert latency.low is not None
    assert latency.high is not None
    assert latency.low <= latency.value <= latency.high
    assert {"bandwidth/n64k", "roofline/n64k", "first-use/n64k", "model-bytes/n64k", "import"} <= set(evidence.metrics)
    assert head.rows is not None
    assert base.rows is not None
    assert set(head.rows.column("arm").to_pylist()) == {HEAD}
    assert set(base.rows.column("arm").to_pylist()) == {BASE, CONTROL}


def test_a_wrong_kernel_is_not_timed(tmp_path: Path) -> None:
    found = lease(tmp_path, cheats.WRONG_ON_ODD)
    assert found.timed == {}
    head, base = written(found, tmp_path / "evidence")
    assert base is not None
    compared = compare(head, base, Policy(), TODAY)
    assert (compared.overall, [f.state for f in compared.findings]) == (Overall.REGRESSED, [State.REGRESSED])


@pytest.mark.parametrize(
    ("head", "base", "code", "detail"),
    [
        (cheats.ROOFLINE, None, "roofline", "where the ceilings allow"),
        (cheats.PATCHES_THE_CLOCK, None, "patched", "time.perf_counter_ns was exchanged"),
        (cheats.SLOWS_THE_CLOCK, cheats.HONEST_WITH_FEW_BYTES, "clock", "of each block are missing"),
        (cheats.WRITES_TO_THE_PIPE, None, "pipe", "answer"),
        (cheats.GIVES_NO_TIME, None, "clock", "'nan', which is no such number"),
        (cheats.PUTS_WORK_OFF, cheats.HONEST, "wrong-output", "elements are outside the tolerance"),
    ],
    ids=[
        "faster than the roofline",
        "patches the clock",
        "slows the clock",
        "writes to the pipe",
        "gives no time",
        "puts work off",
    ],
)
def test_a_cheat_is_caught(head: str, base: str | None, code: str, detail: str, tmp_path: Path) -> None:
    found = lease(tmp_path, head, base)
    fault = found.timed["n64k"].faults[HEAD]
    assert fault.code == code
    assert detail in fault.detail
    record, beside = written(found, tmp_path / "evidence")
    assert record.evidence.attributes["refused.n64k"] == code
    assert "latency/n64k" not in record.evidence.metrics
    if beside is None:  # without a base the head has a control of its own, and no lease to share
        assert set(found.checkouts) == {HEAD, CONTROL}
        assert "lease" not in record.evidence.attributes
    else:
        compared = compare(record, beside, Policy(), TODAY)
        assert (compared.overall, [f.state for f in compared.findings]) == (Overall.REGRESSED, [State.REGRESSED])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (cheats.EXITS, r"the head worker exited with 7 during `check` \(it last wrote: was read\)"),
        (cheats.HANGS, r"the head worker gave no answer to `check` within 4 s"),
    ],
    ids=["exits", "hangs"],
)
def test_a_worker_that_ends_or_hangs_is_one_line(head: str, message: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ServiceError, match=message) as caught:
        lease(tmp_path, head, base=None, timeout=4.0)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 40
    assert not _children()


def test_inputs_that_shrink_after_the_first_draw_are_refused(tmp_path: Path) -> None:
    found = lease(tmp_path, cheats.HONEST, declaration=cheats.DRAWS_LESS_LATER)
    assert found.timed["n64k"].faults[HEAD].code == "other-inputs"
    record, beside = written(found, tmp_path / "evidence")
    assert beside is not None
    assert compare(record, beside, Policy(), TODAY).overall is Overall.REGRESSED


def test_inputs_that_a_change_draws_otherwise_accuse_nobody(tmp_path: Path) -> None:
    other = cheats.DECLARATION.replace("device=device)", "device=device) + 1")
    found = lease(tmp_path, cheats.HONEST, declaration=other)
    assert not found.timed["n64k"].faults
    record, beside = written(found, tmp_path / "evidence")
    assert beside is not None
    with pytest.raises(ProtocolMismatchError, match="inputs"):
        compare(record, beside, Policy(), TODAY)


def test_processes_in_a_session_of_their_own_end_with_their_arm(tmp_path: Path) -> None:
    assert not lease(tmp_path, cheats.STARTS_A_SESSION, base=None).timed["n64k"].faults
    started = [int(line) for line in (tmp_path / "head" / "started").read_text().split()]
    assert len(started) == 2  # head and control
    # What nobody has waited for is a zombie until the system's first process does.
    left = [Path(f"/proc/{pid}/stat") for pid in started]
    assert not [p for p in left if p.exists() and p.read_text().rpartition(")")[2].split()[0] != "Z"]


def test_a_kernel_that_prints_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usercode, "MAX_PRINTED", 2 << 20)
    with pytest.raises(InputError, match=r"^head: the kernel printed more than 2 MiB: let it print less\.$"):
        lease(tmp_path, cheats.PRINTS_FOR_EVER, base=None)
    assert not _children()


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ("x = 1", r"head: importing bench.py raised ImportError: cannot import name 'kernel' .*\(bench.py:4\)$"),
        ("import sys\nsys.exit('no GPU')", r"head: importing bench.py called sys.exit\('no GPU'\) \(ours.py:2\)$"),
        ("def f(:\n  pass", r"head: importing bench.py raised SyntaxError: .* \(ours.py:1\)$"),
        (
            "def bytes_moved(case): return {}[case]\ndef kernel(x): return x",
            r"head: double: `bytes` or `flops` raised .* \(ours.py:1\)$",
        ),
        (
            "def bytes_moved(case): return float('nan')\ndef kernel(x): return x",
            r"head: double, case n64k: `bytes` and `flops` give nan and 65536: return numbers of 0 to",
        ),
        (
            "def bytes_moved(case): return -1\ndef kernel(x): return x",
            r"head: double, case n64k: `bytes` and `flops` give -1 and 65536: return numbers of 0 to",
        ),
    ],
    ids=[
        "imports what is missing",
        "exits",
        "is no Python",
        "raises in a model",
        "models no number",
        "models less than 0",
    ],
)
def test_a_declaration_that_cannot_be_used_is_one_line(ours: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        lease(tmp_path, ours, base=None)
    assert "\n" not in str(caught.value)
    assert not _children()


def test_a_case_of_no_elements_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cheats, "DECLARATION", cheats.DECLARATION.replace('{"n": 65536,', '{"n": 0,'))
    with pytest.raises(InputError, match=r"n64k, has no elements to be timed: move it to `contract_cases`"):
        lease(tmp_path, cheats.HONEST, base=None)


def test_a_kernel_that_exits_fails_its_contract(tmp_path: Path) -> None:
    found = lease(tmp_path, cheats.HONEST.replace("return x * 2", "raise SystemExit(3)"), base=None)
    assert found.timed == {}
    reasons = {row[0]: row[4] for row in found.checkouts[HEAD].contract["double"]}
    assert reasons["n64k"] == "the kernel called sys.exit(3) (ours.py:4)"


def test_nothing_of_an_arm_runs_out_of_its_turn(tmp_path: Path) -> None:
    """A head that keeps the cores busy cannot slow the base: it stands still while the base is timed."""
    with ExitStack() as stack:
        arms = {
            name: stack.enter_context(
                Arm(name, cheats.checkout(tmp_path / name, ours), "cpu", timeout=60.0, environment={})
            )
            for name, ours in (("head", cheats.KEEPS_OTHERS_BUSY), ("base", cheats.HONEST_WITH_FEW_BYTES))
        }
        for arm in arms.values():
            arm.ask("load", file=str(arm.root / "bench.py"), root=str(arm.root), only=[])
        began = time.monotonic()
        arms["base"].ask("check", kernel="double")
        time.sleep(0.2)
        ended = time.monotonic()
        arms["head"].ask("release")
        stood = arms["head"].stands_still
        diary = (tmp_path / "head" / "diary").read_text().split()
    ran = [float(line) for line in diary[:-1]]  # the last may be cut off
    assert len(ran) > 10
    assert any(moment > ended for moment in ran)
    if not stood:
        pytest.skip("SIGSTOP has no effect on this system, as the arm has noticed")
    assert not [moment for moment in ran if began < moment < ended]


def test_an_arm_is_stopped_after_each_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where stopping has no effect, so that the test above skips."""
    sent = []
    kill = os.killpg

    def noted(group: int, number: int) -> None:
        sent.append(number)
        kill(group, number)

    monkeypatch.setattr(os, "killpg", noted)
    monkeypatch.setattr(arm_module, "STOP_SECONDS", 0.05)
    with Arm("head", cheats.checkout(tmp_path / "head", cheats.HONEST), "cpu", timeout=60.0, environment={}) as arm:
        for _ in range(2):
            arm.ask("hello")
        assert sent == [signal.SIGCONT, signal.SIGSTOP] * 2


def test_an_arm_that_goes_on_before_its_turn_is_noticed(tmp_path: Path) -> None:
    with Arm("head", cheats.checkout(tmp_path / "head", cheats.HONEST), "cpu", timeout=60.0, environment={}) as arm:
        arm.ask("hello")
        if not arm.stands_still:
            pytest.skip("SIGSTOP has no effect on this system, as the arm has noticed")
        os.killpg(arm._process.pid, signal.SIGCONT)
        arm.ask("hello")
        assert not arm.stands_still


def test_arms_that_cannot_be_stopped_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox where SIGSTOP has no effect: it is waited for once by each arm, and the comparison notes it."""
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda group, number: number == signal.SIGSTOP or kill(group, number))
    monkeypatch.setattr(arm_module, "STOP_SECONDS", 0.05)
    found = lease(tmp_path, cheats.HONEST)
    head, base = written(found, tmp_path / "evidence")
    assert head.evidence.attributes["arms_stand_still"] is False
    assert base is not None
    warnings = compare(head, base, Policy(), TODAY).warnings
    assert any("SIGSTOP has no effect there" in warning for warning in warnings)


def test_a_worker_does_not_outlive_a_coordinator_that_was_killed(tmp_path: Path) -> None:
    folder = cheats.checkout(tmp_path / "head", cheats.HONEST)
    coordinator = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import pathlib, sys, time\n"
            "from assay.kernels.bench.arm import Arm\n"
            "arm = Arm('head', pathlib.Path(sys.argv[1]), 'cpu', timeout=60.0, environment={})\n"
            "arm.ask('hello')\n"
            "print(arm._process.pid, arm.stands_still, flush=True)\n"
            "time.sleep(60)\n",
            str(folder),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert coordinator.stdout is not None
    process, stood = coordinator.stdout.readline().split()
    worker = Path("/proc", process, "stat")
    if stood == "True":
        assert worker.read_text().rpartition(")")[2].split()[0] == "T"
    coordinator.kill()
    coordinator.wait()
    for _ in range(100):
        if not worker.is_file() or worker.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the worker is still there")


def _children() -> list[str]:
    """Processes of ours that are still there."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    return [child for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def test_what_is_not_committed_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`assay bench` in a working tree whose kernel was edited after the commit that the evidence names."""
    head = cheats.checkout(tmp_path / "repository", cheats.HONEST)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(head)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Measure a kernel"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.delenv("ASSAY_HEAD_SHA", raising=False)
    marks = []
    for place, edit in enumerate(("", "\n# faster now\n")):
        (head / "bench.py").write_text((head / "bench.py").read_text() + edit)
        out = tmp_path / f"evidence-{place}"
        ran = CliRunner().invoke(
            assay,
            [
                *("bench", "bench.py", "--head", str(head), "--out", str(out)),
                *("--blocks", "8", "--rounds", "1", "--block-ms", "0.2"),
            ],
        )
        assert ran.exit_code == 0, ran.output
        marks.append(
            (read_record(out).evidence.attributes.get("uncommitted_files"), "bench.py is not as in" in ran.stderr)
        )
    assert marks == [(None, False), (1, True)]
