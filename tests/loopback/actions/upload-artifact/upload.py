"""Pack files as the real action does (paths relative to their deepest common folder) and put them into the loopback."""

import glob
import hashlib
import io
import os
import sys
import urllib.request
import zipfile
from pathlib import Path


def main() -> int:
    files: list[Path] = []
    roots: list[Path] = []
    for line in filter(None, map(str.strip, os.environ["PATHS"].splitlines())):
        for found in map(Path, sorted(glob.glob(line, recursive=True)) or [line]):  # noqa: PTH207 - absolute patterns too
            if found.is_dir():
                roots.append(found.resolve())
                files += [path.resolve() for path in sorted(found.rglob("*")) if path.is_file()]
            elif found.is_file():
                roots.append(found.resolve().parent)
                files.append(found.resolve())
    if os.environ["HIDDEN"] != "true":
        files = [
            path for path in files if not any(part.startswith(".") for part in path.relative_to(_top(roots)).parts)
        ]
    if not files:
        missing = os.environ["MISSING"]
        print(f"::{'error' if missing == 'error' else 'warning'}::No files were found with the provided path")
        return 1 if missing == "error" else 0
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in dict.fromkeys(files):
            archive.write(path, path.relative_to(_top(roots)))
    run, repository = os.environ["GITHUB_RUN_ID"], os.environ["GITHUB_REPOSITORY"]
    url = f"{os.environ['LOOPBACK_ARTIFACTS']}/{repository}/{run}/{os.environ['NAME']}?overwrite={os.environ['OVERWRITE']}"
    with urllib.request.urlopen(urllib.request.Request(url, packed.getvalue(), method="PUT"), timeout=60) as reply:
        number = reply.read().decode()
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    with Path(os.environ["GITHUB_OUTPUT"]).open("a") as outputs:
        outputs.write(f"artifact-id={number}\nartifact-digest={digest}\n")
    return 0


def _top(roots: list[Path]) -> Path:
    return Path(os.path.commonpath(roots))


if __name__ == "__main__":
    sys.exit(main())
