"""The hold on a worker process: its answer, its progress, and what is said when it gives none."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.npu.compiling import alive, invoke

from assay.baselines import usercode
from assay.baselines.errors import InputError, ServiceError
from assay.npu_backend import compilation
from assay.npu_backend.compilation import Request
from assay.npu_backend.machine import SPEC
from assay.npu_backend.process import run

ENDS = "print('noise'); print('last words', flush=True); raise SystemExit(3)"
HANGS = """
import json, subprocess, sys, time
from pathlib import Path
out = Path(json.loads(Path(sys.argv[1]).read_text())["out"])
made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
out.joinpath("started").write_text(str(made.pid))
time.sleep(600)
"""
TELLS = """
import os, sys
os.write(int(sys.argv[2]), b"compiling big (1 of ")
os.write(int(sys.argv[2]), b"2)\\n")
print("a word")
"""
ANSWERS = """
import json, os, sys
from pathlib import Path
out = Path(json.loads(Path(sys.argv[1]).read_text())["out"])
os.write(int(sys.argv[2]), b"one\\ntwo\\n")
print("noise on standard output")
seen = {k: os.environ.get(k) for k in ("PYTHONHASHSEED", "ASSAY_NPU_CACHE")}
out.joinpath("result.json").write_text(json.dumps({**seen, "models": []}) if TEXT is None else TEXT)
"""


def ask(folder: Path, program: str, *, processes: int = 1, seconds: float = 30.0) -> tuple[list[Any], list[str]]:
    requests = [{"root": str(folder), "out": str(folder / str(i))} for i in range(processes)]
    told: list[str] = []
    return run(requests, name="head", seconds=seconds, told=told.append, program=program), told


def test_processes_hash_differently_and_share_no_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_NPU_CACHE", "/plans")
    found, told = ask(tmp_path, ANSWERS.replace("TEXT", "None"), processes=2)
    assert found == [{"PYTHONHASHSEED": seed, "ASSAY_NPU_CACHE": "", "models": []} for seed in ("0", "1")]
    assert told == ["head: one", "head: two"]
    alone, _ = ask(tmp_path, ANSWERS.replace("TEXT", "None"))
    assert alone == [{"PYTHONHASHSEED": "0", "ASSAY_NPU_CACHE": "/plans", "models": []}]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (ENDS, "exited with 3 while it compiled (it last wrote: last words;"),
        ("pass", "exited with 0 while it compiled (it wrote nothing;"),
        (TELLS + "os._exit(7)", "exited with 7 while compiling big (1 of 2) (it last wrote: a word;"),
        (
            TELLS + "os.kill(os.getpid(), 9)",
            "SIGKILL while compiling big (1 of 2) (probably the memory was not enough: give fewer",
        ),
        (TELLS + "os.kill(os.getpid(), 11)", "SIGSEGV while compiling big (1 of 2) (it last wrote: a word;"),
        (ANSWERS.replace("TEXT", "'[1]'"), "wrote no answer that can be read"),
        (ANSWERS.replace("TEXT", "'{'"), "wrote no answer that can be read"),
        (ANSWERS.replace("TEXT", "'[' * 100_000"), "wrote no answer that can be read"),
        (ANSWERS.replace("TEXT", "'{}'"), "wrote no answer that can be read"),
        (ANSWERS.replace("TEXT", "json.dumps({'models': 3})"), "wrote no answer that can be read"),
    ],
    ids=["ends", "says nothing", "exits", "killed", "crashes", "a list", "no JSON", "deep", "empty", "no models"],
)
def test_a_process_without_an_answer(program: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as caught:
        ask(tmp_path, program)
    assert words in str(caught.value)


def test_a_process_that_prints_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usercode, "MAX_PRINTED", 2 << 20)
    with pytest.raises(InputError, match=r"more than 2 MiB were printed \(compiling big \(1 of 2\)\): let the models"):
        ask(tmp_path, TELLS + "while True: print('x' * 100_000)")


def test_what_a_process_wrote_is_told_before_its_end(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(ServiceError):
        run(
            [{"root": str(tmp_path), "out": str(tmp_path / "0")}],
            name="head",
            seconds=30,
            told=told.append,
            program=ENDS,
        )
    assert told == ["head:   noise", "head:   last words"]


def test_a_process_that_leaves_children_behind_is_not_waited_for(tmp_path: Path) -> None:
    forks = "import os, sys, time\nif os.fork() == 0: time.sleep(600)\n" + ANSWERS.replace("TEXT", "'{\"models\": []}'")
    started = time.monotonic()
    assert ask(tmp_path, forks)[0] == [{"models": []}]
    assert time.monotonic() - started < 20


def test_a_thread_that_user_code_left_running_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import atexit, os, threading, time\n"
        "from torch import nn, zeros\n"
        "from assay.npu_backend.declaration import Declaration\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "atexit.register(os._exit, 5)\n"
        "m = Declaration('m', nn.ReLU, lambda: zeros(3))\n"
    )
    ran = invoke(tmp_path / "models.py", "--head", tmp_path, "--once", "--timeout", 60)
    assert ran.exit_code == 0, ran.output


def test_a_process_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="took longer than 3 s"):
        ask(tmp_path, HANGS, seconds=3.0)
    child = int((tmp_path / "0" / "started").read_text())
    deadline = time.monotonic() + 20  # a busy machine takes a while to end it; by itself it would live for minutes
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


MODEL = {"name": "m", "dtype": "float32", "precision": "", "training": False, "configuration": {}, "seconds": 1.0}
MODEL |= {"graphs": 1, "warnings": [], "inputs": "", "host": [], "programs": []}


@pytest.mark.parametrize(
    "models",
    [
        [3],
        [{}],
        [{**MODEL, "name": "../../elsewhere"}],
        [{**MODEL, "name": 3}],
        [MODEL, MODEL],
        [{**MODEL, "programs": [{}]}],
        [{**MODEL, "programs": 3}],
        [{**MODEL, "programs": [{"file": "../secret", "layers": [], "of": []}]}],
        [{**MODEL, "programs": [{"file": "/etc/passwd", "layers": [], "of": []}]}],
        [{**MODEL, "host": [3]}],
        [{**MODEL, "seconds": "long"}],
    ],
)
@pytest.mark.parametrize("twice", [True, False])
def test_an_answer_of_another_form_is_refused(
    models: list[Any], twice: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "head-0").mkdir()
    (tmp_path / "head-1").mkdir()
    monkeypatch.setattr(compilation, "run", lambda asked, **_: [{"models": models} for _ in asked])
    with pytest.raises(ServiceError, match="the worker's answer cannot be read"):
        compilation.compile_checkout(Request(None, SPEC, twice=twice), tmp_path, tmp_path, side="head")
