"""The result of a run as a folder that anybody may read: nothing private is in it.

::

    model/model.json            method, view, epsilon and what it stands on, settings, the run's id
    model/catalogue.msgpack     the items
    model/numbers.msgpack       the final Round or the ItemFacts, as devices get them
    model/plan.msgpack          the Plan or the Survey that it belongs to
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hdpmf.errors import HdpmfError, ModelFileError, StorageError
from hdpmf.files import atomic_write
from hdpmf.protocol import CatalogueTable, ItemFacts, Plan, Round, Survey, decode, encode

FORMAT = 1
_PARTS = ("catalogue", "numbers", "plan")


@dataclass(frozen=True, slots=True, repr=False)
class PublicModel:
    """What the recommender knows at the end.

    Attributes:
        facts: Method, settings and statement, as plain values.
        catalogue: The items.
        numbers: The final factors or the item facts.
        plan: What they belong to.
    """

    facts: dict[str, Any]
    catalogue: CatalogueTable
    numbers: Round | ItemFacts
    plan: Plan | Survey

    def __repr__(self) -> str:
        return f"PublicModel({self.facts.get('method')}, {len(self.catalogue.ids)} items)"

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all. Where a folder is already, a killed process had come this far."""
        if folder.exists():
            PublicModel.load(folder)
            return
        parts = {name: encode(getattr(self, name)) for name in _PARTS}
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
        header = {"format": FORMAT, "hdpmf": version("hdpmf"), "sha256": sums}
        staging: Path | None = None
        try:
            staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            staging.chmod(0o755)
            for name, data in parts.items():
                atomic_write(staging / f"{name}.msgpack", data)
            atomic_write(staging / "model.json", json.dumps(header | self.facts, indent=1).encode())
            staging.rename(folder)
            staging = None
        except OSError as error:
            raise StorageError(f"could not save the model to {folder}: {error.strerror or error}") from error
        finally:
            if staging is not None:
                shutil.rmtree(staging, ignore_errors=True)

    @classmethod
    def load(cls, folder: Path) -> PublicModel:
        """Read what ``save`` wrote."""
        try:
            facts = json.loads((folder / "model.json").read_bytes())
            parts = {name: (folder / f"{name}.msgpack").read_bytes() for name in _PARTS}
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{folder} is not a model of a recommender ({type(error).__name__})") from error
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise ModelFileError(f"{folder} was written in another format than this version reads")
        sums = facts.get("sha256")
        if not isinstance(sums, dict) or any(sums.get(k) != hashlib.sha256(v).hexdigest() for k, v in parts.items()):
            raise ModelFileError(f"{folder} is damaged (a checksum differs)")
        try:
            catalogue, numbers, plan = (decode(parts[name]) for name in _PARTS)
        except HdpmfError as error:
            raise ModelFileError(f"{folder} is damaged: {error}") from error
        if not (
            isinstance(catalogue, CatalogueTable)
            and isinstance(numbers, Round | ItemFacts)
            and isinstance(plan, Plan | Survey)
        ):
            raise ModelFileError(f"{folder} does not hold the parts of a model")
        return cls(facts, catalogue, numbers, plan)
