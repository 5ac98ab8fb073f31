"""`assay compile` when something goes wrong: what is said of it, and where."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.npu.compiling import DECLARED, invoke, worker_answer

from assay.baselines.checkout import relative_file
from assay.baselines.errors import InputError
from assay.baselines.record import read_record
from assay.bot.cli import assay
from assay.npu_backend.catalogue import hugging_face_model
from assay.npu_backend.declaration import load


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("lambda: nn.Linear(2, 2), lambda: torch.zeros(1, 3)", "got [1, 3] X [2, 2]"),
        ("lambda: 1 / 0, lambda: torch.zeros(1, 2)", "making the model raised ZeroDivisionError"),
        ("lambda: 'net', lambda: torch.zeros(1, 2)", "made a str, not a torch.nn.Module"),
        ("lambda: nn.Linear(2, 2), lambda: {}[3]", "making the inputs raised KeyError: 3"),
        ("nn.Identity, lambda: torch.zeros(1, 2), training=True", "no output depends on a parameter"),
        ("nn.Identity, lambda: 3", "PyTorch found no graph to compile"),
        ("lambda: torch.jit.trace(nn.ReLU(), torch.zeros(3)), lambda: torch.zeros(3)", "a scripted or traced module"),
    ],
)
def test_a_model_that_fails_says_why(model: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        f"{DECLARED}m = Declaration('m', {model})\nn = Declaration('n', nn.ReLU, lambda: torch.zeros(3))\n"
    )
    failed, fine = worker_answer(tmp_path)["models"]
    assert words in failed["failed"]
    assert "\n" not in failed["failed"]
    assert fine["programs"]


def test_what_is_no_utf8_is_refused(tmp_path: Path) -> None:
    fact = r"configuration={'a': '\ud800'}"
    (tmp_path / "models.py").write_text(f"{DECLARED}m = Declaration('m', nn.ReLU, lambda: torch.zeros(3), {fact})\n")
    with pytest.raises(InputError, match="m: the fact a holds half a surrogate pair"):
        load(tmp_path / "models.py")
    name = tmp_path / "\udcff.py"
    name.write_text("x = 1")
    with pytest.raises(InputError, match=r"the name of '.*\\udcff\.py' is no UTF-8: rename the file"):
        relative_file(name, tmp_path)


def test_strict_names_the_operator(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        f"{DECLARED}class N(nn.Module):\n  def forward(self, x): return x.sort(0).values\nm = Declaration('m', N, lambda: torch.ones(4))\n"
    )
    [found] = worker_answer(tmp_path, strict=True)["models"]
    assert "aten.sort.default would run on the host" in found["failed"]
    assert "written at models.py:5: " in found["failed"]


LINES = """
import os, sys
from helper import shape, fails

class Nothing(nn.Module):
    def forward(self, x):
        return torch.relu(x).nothing

class Helped(nn.Module):
    def forward(self, x):
        return fails(x)

class Leaves(nn.Module):
    def forward(self, x):
        sys.exit("gone")

class Eager(nn.Module):
    def forward(self, x):
        try:
            print(x.sum().item() > 0, {}["hidden"])
        except KeyError:
            raise ValueError("what it says")

class Deep(nn.Module):
    def forward(self, x):
        return self.forward(x)

class Nameless(Exception):
    def __str__(self):
        raise RuntimeError

def refuse():
    raise Nameless
x = lambda: torch.zeros(2, 3)
"""
HELPER = """
import torch

def shape():
    raise ValueError("no shape")

def fails(x):
    return x @ torch.zeros(5, 5)
"""


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("lambda: 1 / 0, x", "making the model raised ZeroDivisionError: division by zero (models.py:38)"),
        ("nn.ReLU, lambda: shape()", "making the inputs raised ValueError: no shape (helper.py:5)"),
        ("refuse, x", "making the model raised Nameless (models.py:36)"),
        ("lambda: sys.exit(0), x", "making the model called sys.exit(0) (models.py:38)"),
        ("lambda: sys.exit(), x", "making the model called sys.exit() (models.py:38)"),
        ("lambda: open('/nowhere/' + os.getcwd()), x", "(models.py:38)"),
        ("Nothing, x", "compiling it raised AttributeError: 'Tensor' object has no attribute 'nothing' (models.py:10)"),
        ("Helped, x", "got [2, 3] X [5, 5]. (helper.py:8)"),
        ("Leaves, x", "compiling it called sys.exit('gone') (models.py:18)"),
        ("Eager, x", "compiling it raised ValueError: what it says (models.py:25)"),
        ("Deep, x", "compiling it raised RecursionError: maximum recursion depth exceeded (models.py:29)"),
    ],
)
def test_a_failure_has_a_file_and_a_line(model: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "models.py").write_text(f"{DECLARED}{LINES}m = Declaration('m', {model})\n")
    sys.modules.pop("helper", None)
    [found] = worker_answer(tmp_path)["models"]
    # Python says where the depth was exceeded: in a comparison, in a call, or nothing.
    said = re.sub(r"depth exceeded (in|while) [\w ]+", "depth exceeded", found["failed"]).replace(
        "exceeded(", "exceeded ("
    )
    assert said.endswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\nimport nowhere", "ModuleNotFoundError: No module named 'nowhere' (m.py:3)"),
        ("def (", "raised SyntaxError: invalid syntax (m.py:2)"),
        ("\n\nraise SystemExit(3)", "importing m.py called sys.exit(3) (m.py:4)"),
        ("class Odd(BaseException): pass\nraise Odd", "importing m.py raised Odd (m.py:3)"),
        ("Declaration('a b', list, list)", "dashes and underscores. (m.py:2)"),
    ],
)
def test_a_file_that_cannot_be_imported_has_a_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"from assay.npu_backend.declaration import Declaration\n{text}\n")
    before = list(sys.path)
    try:
        with pytest.raises(InputError) as caught:
            load(tmp_path / "m.py")
    finally:
        sys.path[:] = before
    assert str(caught.value).endswith(words)


def test_messages_name_no_folder_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        f"{DECLARED}m = Declaration('m', lambda: torch.load({str(tmp_path / 'weights.pt')!r}), list)\n"
    )
    [found] = worker_answer(tmp_path)["models"]
    assert str(tmp_path) not in found["failed"]
    assert "'weights.pt'" in found["failed"]


WRITES = """
import sys
def make(word):
    print("\\x1b[2Jfirst of", word)
    print("x" * 5000, file=sys.stderr)
    for line in range(30): print(word, line)
    raise ValueError(word)
ok = Declaration("ok", nn.ReLU, lambda: print("of no interest") or torch.zeros(3))
a = Declaration("a", lambda: make("one"), list)
b = Declaration("b", lambda: make("two"), list)
"""


def test_what_a_failing_model_wrote_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(DECLARED + WRITES)
    ran = invoke("models.py")
    assert ran.exit_code == 0
    lines = ran.stderr.splitlines()
    for model, word in (("a", "one"), ("b", "two")):
        start = lines.index(f"head: {model} failed, having written")
        assert lines[start + 1 : start + 11] == [f"head:   {word} {n}" for n in range(20, 30)]
    assert "of no interest" not in ran.output
    assert len(lines) == 2 * 11 + 5  # and: importing, compiling each, simulating the one
    assert "\x1b" not in ran.output


def test_when_no_model_compiles_each_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "".join(f"m{n} = Declaration('m{n}', lambda: {{}}[{n}], list)\n" for n in range(5))
    (tmp_path / "models.py").write_text(DECLARED + text)
    ran = invoke("models.py", "--once")
    assert isinstance(ran.exception, InputError)
    assert [f"m{n} does not compile: making the model raised KeyError: {n}" in str(ran.exception) for n in range(5)] == [
        True, True, True, False, False
    ]  # fmt: skip
    assert str(ran.exception).endswith("; so do 2 more")


def test_debugging_lets_the_process_speak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_DEBUG", "1")
    (tmp_path / "models.py").write_text(DECLARED + WRITES.replace("range(30)", "range(1)"))
    with pytest.raises(InputError):
        invoke("models.py", "--model", "a", catch_exceptions=False)
    out, err = capfd.readouterr()
    assert err.count("one 0") == 1  # two processes compile it, one speaks
    assert ", line 10, in make" in err
    assert "ValueError: one" in err
    assert "one 0" not in out


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            "lambda: nn.Linear(2, 2, device='meta'), lambda: torch.zeros(1, 2)",
            "its parameter weight lies on the device meta:",
        ),
        (
            "lambda: nn.BatchNorm1d(2, affine=False, device='meta'), lambda: torch.zeros(4, 2)",
            "its buffer running_mean lies",
        ),
        ("nn.ReLU, lambda: {'x': torch.zeros(2, device='meta')}", "its argument 1 lies on the device meta:"),
    ],
)
def test_what_has_no_values_is_refused(model: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(f"{DECLARED}m = Declaration('m', {model})\n")
    [found] = worker_answer(tmp_path)["models"]
    assert found["failed"].startswith(words)


def test_a_head_without_a_model_that_compiles_fails_and_has_evidence(tmp_path: Path) -> None:
    for side, shape in (("base", "2"), ("head", "3")):
        (tmp_path / side).mkdir()
        text = f"m = Declaration('m', lambda: nn.Linear(2, 2), lambda: torch.zeros(1, {shape}))\n"
        (tmp_path / side / "models.py").write_text(DECLARED + text)
    out = tmp_path / "out"
    ran = invoke("models.py", "--head", tmp_path / "head", "--base", tmp_path / "base", "--once", "--out", out)
    assert isinstance(ran.exception, InputError)
    assert str(ran.exception).startswith("m does not compile: compiling it raised RuntimeError")
    judged = CliRunner().invoke(assay, ["gate", "--base", f"{out}/evidence.base", "--head", f"{out}/evidence"])
    assert judged.exit_code == 1
    assert "Does not compile on m" in judged.output


class GatedRepoError(Exception):
    """As huggingface_hub names it."""


class ConnectError(Exception):
    """As httpx names it."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (GatedRepoError(), "gives the model of this name to approved accounts alone"),
        (ConnectError(), "the hub cannot be reached"),
        (ValueError(), "nor does the hub give one"),
    ],
)
def test_a_configuration_that_is_nowhere(error: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")

    def refuse(source: str) -> None:
        raise OSError(f"We couldn't load {source}. " + 40 * "And so on. ") from error

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    with pytest.raises(InputError) as caught:
        hugging_face_model("owner/nope")
    assert str(caught.value).startswith("there is no folder owner/nope with a config.json, ")
    assert words in str(caught.value)
    assert str(caught.value).endswith(": check the name, or give the folder of a model.")


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(InputError) as caught:
        hugging_face_model(str(tmp_path))
    assert "its config.json is not one that transformers reads" in str(caught.value)
    assert str(caught.value).endswith("): mend it.")
    assert len(str(caught.value)) < 400


def test_a_model_that_fails_in_one_of_two_processes_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
def make():
    if os.environ["PYTHONHASHSEED"] == "1":
        print("the second speaks")
        raise ValueError("it is the second")
    return nn.ReLU()
m = Declaration("m", make, lambda: torch.zeros(3))
"""
    (tmp_path / "models.py").write_text(DECLARED + text)
    ran = invoke("models.py")
    assert ran.exit_code == 0
    assert "failed once: making the model raised ValueError: it is the second (models.py:8)" in ran.stdout
    assert "head:   the second speaks" in ran.stderr


def test_a_change_that_mends_the_declarations_is_compiled(tmp_path: Path) -> None:
    """The base cannot be imported: there is nothing to compare with, which is said, and the head has its numbers."""
    good = DECLARED + "net = Declaration('net', lambda: nn.Linear(4, 2), lambda: torch.randn(3, 4))\n"
    for side, text in (("base", "import nowhere\n"), ("head", good)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "models.py").write_text(text)
    sides = ("--base", tmp_path / "base", "--head", tmp_path / "head")
    ran = invoke(tmp_path / "head" / "models.py", *sides, "--once", "--out", tmp_path / "out")
    assert ran.exit_code == 0, ran.output
    assert "the base declares no models that can be used, so that there is nothing to compare with: " in ran.stderr
    assert "nowhere" in ran.stderr
    assert read_record(tmp_path / "out" / "evidence").evidence.metrics["cycles/net"].value > 0
    (tmp_path / "head" / "models.py").write_text("import nowhere\n")
    assert isinstance(invoke(tmp_path / "head" / "models.py", *sides, "--once").exception, InputError)
