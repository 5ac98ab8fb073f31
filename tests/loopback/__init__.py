"""A GitHub on 127.0.0.1 for tests: stateful, REST over HTTP, spoken to by unmodified clients.

with Loopback() as github:
    repo = github.repo("acme/widgets")
    head = repo.commit({"weights.txt": "1"})
    secret = github.token(job_token(contents="write"))
    Github(auth=Auth.Token(secret), base_url=github.url)
"""

from .description import description, install
from .faults import Fault
from .server import Entry, Loopback
from .state import FORK_TOKEN, Repository, Token, job_token

__all__ = ["FORK_TOKEN", "Entry", "Fault", "Loopback", "Repository", "Token", "description", "install", "job_token"]
