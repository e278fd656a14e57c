"""The model of the last finished run, as an agent keeps it: in the store, or in memory where devices are simulated."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from hdpmf.device.lists import lack_lists, with_lists, with_older_lists
from hdpmf.device.local_model import LocalModel, keep_model, kept_model
from hdpmf.device.store import DeviceStore


class LastModel:
    """The model of the last finished run.

    Args:
        store: The device's store.
        in_memory: Keep it here and not in the store.

    Attributes:
        held: What is kept here.
    """

    def __init__(self, store: DeviceStore, *, in_memory: bool) -> None:
        self._store, self._in_memory = store, in_memory
        self.held: LocalModel | None = None
        self._lists_came = b""  # the last run that lists came in, whether they were taken or refused

    def __repr__(self) -> str:
        return f"LastModel(in {'memory' if self._in_memory else 'the store'})"

    @property
    def now(self) -> LocalModel | None:
        """As it is now."""
        return self.held if self._in_memory else kept_model(self._store)

    @property
    def expects_lists(self) -> bool:
        """Whether a model for lists is yet to come: the facts here name one."""
        model = self.now
        return model is not None and model.run != self._lists_came.hex() and lack_lists(model)

    def keep(self, model: LocalModel) -> None:
        """Keep a newer one. Lists of before stay in use until its own come."""
        self._set(with_older_lists(model, self.now))

    def take_lists(self, run: bytes, body: bytes) -> None:
        """Keep a model for lists beside the facts that name it. Nothing is sent or paid, whatever it is."""
        self._lists_came = run
        with self._store.transaction():
            self._set(with_lists(self.now, run, body, self._store.policy))

    def suspend(self) -> LocalModel | None:
        """Return what memory has that the store has not. Public numbers are needed until lists have come for them."""
        if self.held is None or self.expects_lists:
            return self.held
        return msgspec.structs.replace(self.held, plan=None, numbers=b"", lists=b"")

    def resume(self, model: LocalModel | None) -> None:
        """Go on with what `suspend` returned."""
        self.held = model
        if model is not None and not model.numbers:
            self._lists_came = bytes.fromhex(model.run)

    def _set(self, model: LocalModel) -> None:
        if self._in_memory:
            self.held = msgspec.structs.replace(model, numbers=_one_copy(model.numbers), lists=_one_copy(model.lists))
        else:
            keep_model(self._store, model)


@lru_cache(maxsize=4)
def _one_copy(numbers: bytes) -> bytes:
    """The same object for equal bytes: thousands of simulated devices keep the same public numbers and lists."""
    return numbers
