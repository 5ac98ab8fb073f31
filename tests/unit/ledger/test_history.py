"""Local ancestry, against real git."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from assay.baselines.errors import InputError
from assay.baselines.ledger.history import local_history, local_merge_base

DAYS = itertools.count(1)


def git(folder: Path, *arguments: str) -> str:
    date = f"2026-10-01T00:00:00 +{next(DAYS) % 60:04d}"  # later commits have *older* timestamps: clocks are wrong
    environment = {
        "GIT_AUTHOR_NAME": "ada", "GIT_AUTHOR_EMAIL": "ada@example.invalid", "GIT_COMMITTER_NAME": "ada",
        "GIT_COMMITTER_EMAIL": "ada@example.invalid", "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date,
        "HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def test_children_come_before_parents_whatever_the_clocks_say(clone: Path) -> None:
    root = commit(clone, "root")
    git(clone, "checkout", "-q", "-b", "side")
    side = [commit(clone, f"side {index}") for index in range(3)]
    git(clone, "checkout", "-q", "main")
    mine = [commit(clone, f"main {index}") for index in range(3)]
    git(clone, "merge", "-q", "--no-ff", "-m", "merge", "side")
    listed = list(local_history(clone))
    assert set(listed) == {root, *side, *mine, git(clone, "rev-parse", "HEAD")}
    place = {sha: index for index, sha in enumerate(listed)}
    for child, *parents in (line.split() for line in git(clone, "rev-list", "--parents", "HEAD").splitlines()):
        assert all(place[child] < place[parent] for parent in parents)
    assert listed[-1] == root


def test_a_swapped_merge_does_not_hide_the_old_tip(clone: Path) -> None:
    root = commit(clone, "root")
    git(clone, "branch", "upstream")
    mine = commit(clone, "mine")
    git(clone, "checkout", "-q", "upstream")
    tip = commit(clone, "tip")
    git(clone, "checkout", "-q", "main")
    git(clone, "merge", "-q", "--no-ff", "-m", "pull", "upstream")
    assert tip not in git(clone, "rev-list", "--first-parent", "HEAD").split()
    listed = list(local_history(clone))
    assert listed.index(tip) < listed.index(root)
    assert mine in listed


def test_the_walk_is_lazy_and_bounded(clone: Path) -> None:
    shas = [commit(clone, str(index)) for index in range(12)][::-1]
    walk = local_history(clone)
    assert [next(walk) for _ in range(2)] == shas[:2]
    walk.close()
    assert list(local_history(clone, shas[3])) == shas[3:]
    assert list(local_history(clone, limit=5)) == shas[:5]


def test_merge_base(clone: Path) -> None:
    root = commit(clone, "root")
    git(clone, "checkout", "-q", "-b", "feature")
    commit(clone, "feature")
    git(clone, "checkout", "-q", "main")
    commit(clone, "main")
    assert local_merge_base(clone, "main", "feature") == root


def test_bad_commits_and_places_are_named(clone: Path) -> None:
    commit(clone, "root")
    with pytest.raises(InputError, match="cannot list the history of nonsense"):
        list(local_history(clone, "nonsense"))
    with pytest.raises(InputError, match="cannot list"):
        list(local_history(clone, "--all"))
    with pytest.raises(InputError, match="no common ancestor"):
        local_merge_base(clone, "main", "nonsense")
    (clone / "plain").mkdir()
    git(clone, "checkout", "-q", "--orphan", "other")
    commit(clone, "other")
    with pytest.raises(InputError, match="no common ancestor"):
        local_merge_base(clone, "main", "other")
