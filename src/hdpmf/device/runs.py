"""The run under way, as the agent keeps it, and what was answered: so that a killed device goes on where it was."""

from __future__ import annotations

from hdpmf.device.database import Database
from hdpmf.device.vault import Vault


class Runs:
    """States and replies, by run."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    def save(self, run: bytes, data: bytes) -> None:
        """Keep the state of a run."""
        with self._database.transaction():
            self._database.execute("DELETE FROM states WHERE run = ?", (run,))
            sealed = self._vault.seal(data, state_place(run))
            self._database.execute("INSERT INTO states (run, sealed) VALUES (?, ?)", (run, sealed))

    def load(self, run: bytes) -> bytes | None:
        """The state of a run."""
        rows = self._database.execute("SELECT sealed FROM states WHERE run = ?", (run,))
        return self._vault.open(rows[0][0], state_place(run)) if rows else None

    def drop(self, run: bytes) -> None:
        """Forget a run and what was answered in it."""
        with self._database.transaction():
            self._database.execute("DELETE FROM states WHERE run = ?", (run,))
            self._database.execute("DELETE FROM replies WHERE run = ?", (run,))

    def put_reply(self, run: bytes, number: int, request: bytes, reply: bytes) -> None:
        """Keep the answer to a request before it is sent. Answers of earlier jobs of the run are over and go."""
        with self._database.transaction():
            self._database.execute("DELETE FROM replies WHERE run = ? AND number < ?", (run, number))
            self._database.execute(
                "INSERT INTO replies VALUES (?, ?, ?, ?)",
                (run, number, request, self._vault.seal(reply, reply_place(run, number, request))),
            )

    def reply_to(self, run: bytes, number: int, request: bytes) -> bytes | None:
        """The answer that was given to exactly this request, so that a replay gets no new draw."""
        rows = self._database.execute(
            "SELECT sealed FROM replies WHERE run = ? AND number = ? AND request = ?", (run, number, request)
        )
        return self._vault.open(rows[0][0], reply_place(run, number, request)) if rows else None

    def keep(self, run: bytes, name: bytes, data: bytes) -> None:
        """Keep something of a run beside its state, in place of what had this name."""
        with self._database.transaction():
            self.let_go(run, name)
            sealed = self._vault.seal(data, reply_place(run, 0, name))
            self._database.execute("INSERT INTO replies VALUES (?, ?, ?, ?)", (run, 0, name, sealed))

    def kept(self, run: bytes, name: bytes) -> bytes | None:
        """What was kept under this name."""
        return self.reply_to(run, 0, name)

    def let_go(self, run: bytes, name: bytes) -> None:
        """Forget what was kept under this name."""
        self._database.execute("DELETE FROM replies WHERE run = ? AND number = 0 AND request = ?", (run, name))

    def clear(self) -> None:
        """Forget all runs."""
        with self._database.transaction():
            self._database.execute("DELETE FROM states")
            self._database.execute("DELETE FROM replies")


def state_place(run: bytes) -> bytes:
    """What the state of a run is sealed for."""
    return b"states" + run


def reply_place(run: bytes, number: int, request: bytes) -> bytes:
    """What a reply is sealed for."""
    return b"replies" + run + number.to_bytes(8, "big") + request
