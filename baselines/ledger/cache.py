"""Downloads that survive interruption: resumed by byte range, kept by digest, trusted only after verification."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedRandom
from pathlib import Path
from urllib.parse import urljoin

import requests

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger.service import Forbidden

if sys.platform != "win32":
    import fcntl

ATTEMPTS = 6
BLOCK = 1 << 16
TIMEOUT_S = (15.0, 60.0)


@dataclass(frozen=True)
class Remote:
    """A file behind an API address that redirects to storage.

    `headers` (with the token, if any) go to the API alone; the storage's address is signed and gets none of them.
    """

    url: str
    headers: Mapping[str, str]
    name: str
    size: int
    sha256: str
    """The digest, or the beginning of it that is known."""
    page: str = ""
    """The same file where anyone may load it, asked first and without `headers`; what it gives is verified as all is."""


class Cache:
    """Records by digest below `root`; shared by processes."""

    def __init__(
        self, root: Path, session: requests.Session | None = None, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.root = Path(root)
        self._session = session or requests.Session()
        self._pause = pause

    def folder(self, digest12: str) -> Path:
        """Where the record with this digest is, or would be."""
        return self.root / "records" / digest12

    def drop(self, digest12: str) -> None:
        """Forget a record that no longer verifies."""
        shutil.rmtree(self.folder(digest12), ignore_errors=True)

    @contextmanager
    def filling(self, digest12: str) -> Iterator[Path]:
        """A new folder that becomes the record's when the block ends well; of two at once the first stays."""
        place = self.folder(digest12)
        place.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{digest12}.", dir=place.parent))
        try:
            yield staging
            try:
                staging.rename(place)
            except OSError:
                if not place.exists():
                    raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def get(self, remote: Remote, target: Path) -> None:
        """Download to `target`, continuing what an earlier process left unfinished.

        Raises `InputError` when the whole file does not match its digest, `Forbidden` and `ServiceError` otherwise.
        """
        partial = self.root / "partial" / hashlib.sha256(f"{remote.url} {remote.sha256}".encode()).hexdigest()[:32]
        partial.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("a+b") as stream:
            if sys.platform != "win32":  # another process may be at the same file: wait, then find its bytes complete
                fcntl.flock(stream, fcntl.LOCK_EX)
            for again in (True, False):
                self._fill(remote if again else replace(remote, page=""), stream)
                if _digest(stream).startswith(remote.sha256):
                    break
                stream.truncate(0)
                if not again:
                    raise InputError(f"{remote.name} does not match its digest {remote.sha256[:12]}: it was changed.")
            stream.seek(0)
            with target.open("wb") as out:
                shutil.copyfileobj(stream, out, BLOCK)
                out.flush()
                os.fsync(out.fileno())
            partial.unlink(missing_ok=True)

    def _fill(self, remote: Remote, stream: BufferedRandom) -> None:
        """Append until the file has its size."""
        for attempt in range(ATTEMPTS):
            held = stream.seek(0, os.SEEK_END)
            if held > remote.size:
                stream.truncate(0)
            elif held == remote.size:
                return
            try:
                self._append(remote, stream)
            except (requests.RequestException, ServiceError) as error:
                if isinstance(error, Forbidden) or attempt + 1 == ATTEMPTS:
                    if isinstance(error, ServiceError):
                        raise
                    reason = " ".join(str(error).split())[:120]
                    raise ServiceError(f"the download of {remote.name} broke off ({reason}): run this again.") from None
                self._pause(min(30.0, 0.5 * 2**attempt))
        raise ServiceError(f"the download of {remote.name} never reached its {remote.size:,} bytes: run this again.")

    def _append(self, remote: Remote, stream: BufferedRandom) -> None:
        held = stream.seek(0, os.SEEK_END)
        with self._open(remote, held) as reply:
            if reply.status_code == 416 or (
                reply.status_code == 206 and not reply.headers.get("Content-Range", "").startswith(f"bytes {held}-")
            ):
                stream.truncate(0)
                return
            if reply.status_code == 200:
                held = 0
                stream.truncate(0)
            elif reply.status_code != 206:
                raise ServiceError(f"the storage answered {reply.status_code} for {remote.name}: run this again.")
            for block in reply.iter_content(BLOCK):
                held += len(block)
                if held > remote.size:
                    stream.truncate(0)
                    raise InputError(f"{remote.name} is over the {remote.size:,} bytes it should have: it was changed.")
                stream.write(block)
            stream.flush()

    def _open(self, remote: Remote, offset: int) -> requests.Response:
        ranged = {"Range": f"bytes={offset}-"} if offset else {}
        if remote.page and (shown := self._shown(remote, ranged)) is not None:
            return shown
        reply = self._session.get(
            remote.url, headers={**remote.headers, **ranged}, stream=True, timeout=TIMEOUT_S, allow_redirects=False
        )
        if reply.is_redirect:
            location = urljoin(remote.url, reply.headers["Location"])
            reply.close()
            return self._session.get(location, headers=ranged, stream=True, timeout=TIMEOUT_S)
        if reply.status_code in {401, 403, 404}:
            reply.close()
            line = f"GitHub gives no {remote.name}: {reply.status_code}; check the token's `contents: read`."
            raise Forbidden(line, reply.status_code)
        return reply

    def _shown(self, remote: Remote, ranged: Mapping[str, str]) -> requests.Response | None:
        """The file from its public address; None when it is not to be had there (a server that asks people to sign in)."""
        headers = {"User-Agent": "assay", "Accept-Encoding": "identity", **ranged}
        try:
            reply = self._session.get(remote.page, headers=headers, stream=True, timeout=TIMEOUT_S)
        except requests.RequestException:
            return None
        length = reply.headers.get("Content-Length")
        whole = reply.status_code == 200 and length in {None, str(remote.size)}
        if (whole or reply.status_code == 206) and not reply.headers.get("Content-Type", "").startswith("text/html"):
            return reply
        reply.close()
        return None


def _digest(stream: BufferedRandom) -> str:
    stream.seek(0)
    return hashlib.file_digest(stream, "sha256").hexdigest()
