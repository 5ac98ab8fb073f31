"""Archives from GitHub: downloaded and unpacked as untrusted data."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import requests
from github import GithubException
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from assay.baselines.errors import InputError

MAX_ENTRIES = 2_000
BLOCK = 1 << 18
ATTEMPTS = 4
TIMEOUT_S = (15.0, 60.0)


@dataclass(frozen=True)
class Source:
    """An API address that answers with a redirect to storage, and how to ask it."""

    url: str
    headers: dict[str, str]
    retry: Retry


def download(source: Source, folder: Path, max_bytes: int) -> Path:
    """Stream to a temporary file beside `folder`, which the caller removes.

    The token goes to the API only, never to the storage that it redirects to. Raises `InputError` beyond `max_bytes`,
    `GithubException` for GitHub's refusals and `requests` errors when the network fails repeatedly.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{folder.name}.", suffix=".zip", dir=folder.parent)
    os.close(handle)
    path = Path(name)
    try:
        with requests.Session() as session:
            session.trust_env = True
            session.mount("http://", HTTPAdapter(max_retries=source.retry))
            session.mount("https://", HTTPAdapter(max_retries=source.retry))
            for attempt in range(ATTEMPTS):
                try:
                    _stream(session, source, path, max_bytes)
                    return path
                except (requests.exceptions.ChunkedEncodingError, requests.ConnectionError):
                    if attempt + 1 == ATTEMPTS:
                        raise
        raise AssertionError("unreachable")
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _stream(session: requests.Session, source: Source, path: Path, max_bytes: int) -> None:
    with session.get(
        source.url, headers=source.headers, allow_redirects=False, stream=True, timeout=TIMEOUT_S
    ) as reply:
        if reply.status_code not in {301, 302, 303, 307, 308}:
            raise GithubException(reply.status_code, _json(reply), dict(reply.headers))
        location = requests.compat.urljoin(source.url, reply.headers["Location"])
    with session.get(location, headers={"User-Agent": "assay"}, stream=True, timeout=TIMEOUT_S) as reply:
        if reply.status_code != 200:
            raise GithubException(
                reply.status_code, {"message": "the storage refused the download"}, dict(reply.headers)
            )
        size = 0
        with path.open("wb") as stream:
            for block in reply.iter_content(BLOCK):
                size += len(block)
                if size > max_bytes:
                    raise InputError(f"the archive is over {max_bytes:,} bytes: upload the evidence folder alone.")
                stream.write(block)


def unpack(archive: Path, folder: Path, max_bytes: int, *, origin: str = "archive") -> list[str]:
    """Unpack a zip archive into `folder`, which is replaced whole or not at all; returns the names, sorted.

    Raises `InputError` for anything but plain files with relative names, for more than `max_bytes` of content (counted
    while unpacking, whatever the directory claims) and for more than 2,000 entries.
    """
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        try:
            with zipfile.ZipFile(archive) as file:
                names = _unpack(file, staging, max_bytes, origin)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
            raise InputError(
                f"{origin} is not a readable zip archive ({' '.join(str(error).split())[:120]}): upload it again."
            ) from None
        staging.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        staging.rename(folder)
        return names
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack(file: zipfile.ZipFile, staging: Path, max_bytes: int, origin: str) -> list[str]:
    entries = [entry for entry in file.infolist() if not entry.is_dir()]
    if len(entries) > MAX_ENTRIES:
        raise InputError(
            f"{origin} has {len(entries):,} files, over {MAX_ENTRIES:,}: upload the evidence folder alone."
        )
    left = max_bytes
    names: set[str] = set()
    for entry in entries:
        name = entry.filename
        path = PurePosixPath(name)
        plain = stat.S_IFMT(entry.external_attr >> 16) in {0, stat.S_IFREG}
        escapes = path.is_absolute() or ".." in path.parts or "\\" in name or ":" in path.parts[0] or "\x00" in name
        if not plain or escapes or name in names:
            raise InputError(
                f"{origin} holds {name[:80]!r}, which is a link, a duplicate or outside its folder: refused."
            )
        names.add(name)
        target = staging / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open(entry) as source, target.open("wb") as stream:
            while block := source.read(BLOCK):
                left -= len(block)
                if left < 0:
                    raise InputError(f"{origin} unpacks to over {max_bytes:,} bytes: upload the evidence folder alone.")
                stream.write(block)
    return sorted(names)


def _json(reply: requests.Response) -> dict[str, object]:
    try:
        data = reply.json()
    except ValueError:
        return {"message": reply.reason or ""}
    return data if isinstance(data, dict) else {"message": ""}
