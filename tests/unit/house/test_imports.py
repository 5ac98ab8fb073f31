"""The rules of the house: imports run downward, and light commands stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("baselines", "kernels", "quant", "npu_backend", "bot")
LABORATORIES = ("kernels", "quant", "npu_backend")
HEAVY = {"torch", "transformers", "lm_eval", "datasets", "sklearn", "pandas", "statsmodels", "matplotlib"}


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield package, path


def imports(path: Path, *, top_level: bool = False, names: bool = False) -> Iterator[tuple[str, int]]:
    """(module, line) of every import; with `top_level` those that run when the module is imported, and with `names` also
    what is imported from a module, which may be a module itself."""
    tree = ast.parse(path.read_text())

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if top_level and (isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) or typing_only):
                continue
            yield child
            yield from walk(child)

    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno
            if names:
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


@pytest.mark.parametrize(("package", "path"), [pytest.param(k, p, id=str(p.relative_to(ROOT))) for k, p in modules()])
def test_imports_run_downward(package: str, path: Path) -> None:
    for module, line in imports(path):
        where = f"{path.relative_to(ROOT)}:{line} imports {module}"
        assert module.split(".")[0] not in PACKAGES, f"{where}: use assay.{module}"
        if not module.startswith("assay."):
            continue
        target = module.split(".")[1]
        if target == package or target == "baselines":
            continue
        pipeline = path.is_relative_to(ROOT / "npu_backend" / "pipeline") and target == "quant"
        assert pipeline or (package == "bot" and target in LABORATORIES and module.split(".")[2:] == ["cli"]), where


def test_no_module_imports_itself_in_a_circle() -> None:
    known = {
        ".".join(("assay", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): p
        for _, p in modules()
    }
    graph = {}
    for name, path in known.items():
        wanted = {m for m, _ in imports(path, top_level=True, names=True) if m in known}
        # `from package import module` waits for the module; the package has begun by then.
        packages = {m for m in wanted if known[m].name == "__init__.py" and any(w.startswith(f"{m}.") for w in wanted)}
        graph[name] = wanted - packages - {name}
    assert {"assay.bot.workflow_runs", "assay.bot.journal"} <= graph["assay.bot.github"]
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


@pytest.mark.parametrize("package", ["baselines", "bot"])
def test_light_packages_import_nothing_heavy(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for name, path in modules()
        if name == package
        for module, line in imports(path, top_level=package == "bot")
        if module.split(".")[0] in HEAVY or module.startswith("scipy.stats")
    ]
    assert not found


def test_bot_reaches_laboratories_only_lazily() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for name, path in modules()
        if name == "bot"
        for module, line in imports(path, top_level=True)
        if module.startswith(tuple(f"assay.{lab}" for lab in LABORATORIES))
    ]
    assert not found


def test_comment_never_imports_torch(tmp_path: Path) -> None:
    """Run the whole comment path on a hostile state in a fresh interpreter, and look at what got imported."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import assay.bot.commands.comment, assay.bot.observe, assay.bot.perform, assay.bot.github\n"
        "from assay.bot.plan import plan\n"
        "from tests.states import STATES\n"
        "made = STATES['regressed'](); assert plan(made.snapshot, made.records).operations\n"
        "print(' '.join(sorted({m.split('.')[0] for m in sys.modules})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = set(done.stdout.split())
    assert "pyarrow" in loaded
    assert not loaded & (HEAVY - {"pandas"})  # pyarrow itself imports pandas where it is installed; `bot.txt` has none
    assert "pandas" not in (ROOT / "requirements" / "bot.txt").read_text()


def test_links_are_the_packages() -> None:
    links = {p.name: p.resolve() for p in (ROOT / "src" / "assay").iterdir() if p.name != "__pycache__"}
    assert links == {name: (ROOT / name).resolve() for name in PACKAGES}
    assert all((ROOT / "src" / "assay" / name).is_symlink() for name in PACKAGES)
