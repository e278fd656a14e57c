"""The published model of a run: a document and its arrays, for every device alike.

===========================  ==================================================================
``bias``, ``variance``       per item, its mean rating less the mean, and how uncertain that is
``popularity``               per item, about how many people rated it
``popularity-margin``        per item, how far noise may have raised that
``heads``                    positions of the items that have pairs, ascending
``encode``, ``decode``       rows of heads in 8 bits: what goes with a rating, and to what
``encode-unit``, ``-unit``   what 1 is in each of their columns
``stars``, ``stars-rest``    rows of heads that ratings are fitted to, and the variance of a rating
                             that they leave; none without stars
===========================  ==================================================================
"""

from collections.abc import Mapping

import numpy as np

from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.documents import Array
from hdpmf.common.protocol.messages import Similarity
from hdpmf.common.protocol.published import Model, file_name
from hdpmf.errors import ProtocolError


def publish_model(
    facts: ItemFacts, lists: ListModel, *, run: str, reports: tuple[int, ...]
) -> tuple[Model, dict[str, bytes]]:
    """Return the document of what came of a run, and the files of its arrays."""
    heads = np.arange(lists.n_items) if lists.heads is None else lists.heads
    arrays = {
        "bias": facts.bias,
        "variance": facts.variance,
        "popularity": facts.popularity,
        "heads": heads.astype(np.uint32),
        "encode": lists.encode.whole,
        "encode-unit": lists.encode.unit,
        "decode": lists.decode.whole,
        "decode-unit": lists.decode.unit,
    }
    if facts.popularity_margin is not None:
        arrays["popularity-margin"] = facts.popularity_margin
    if facts.similarity is not None:
        arrays["stars"], arrays["stars-rest"] = facts.similarity.columns, facts.similarity.rest
    named: dict[str, Array] = {}
    files: dict[str, bytes] = {}
    for name, array in arrays.items():
        named[name], data = Array.of(array)
        files[file_name("array", named[name].sha256)] = data
    model = Model(
        catalogue=facts.catalogue,
        run=run,
        reports=reports,
        mean=float(facts.mean),
        arrays=named,
    )
    return model, files


def read_model(model: Model, files: Mapping[str, bytes]) -> tuple[ItemFacts, ListModel]:
    """Return item facts and the model for lists; ProtocolError unless all parts fit each other."""
    arrays = {}
    for name, array in model.arrays.items():
        data = files.get(file_name("array", array.sha256))
        if data is None:
            raise ProtocolError(f"refused: the model's file of {name} has not come")
        arrays[name] = array.read(data)
    try:
        return _facts(model, arrays), _lists(arrays)
    except (KeyError, ValueError, TypeError) as error:
        raise ProtocolError(
            f"refused: the parts of the model do not fit each other ({type(error).__name__})"
        ) from None


def _facts(model: Model, arrays: Mapping[str, np.ndarray]) -> ItemFacts:
    similarity = None
    if "stars" in arrays:
        columns = arrays["stars"]
        items, rest = arrays["heads"].astype(np.int64), arrays["stars-rest"]
        similarity = Similarity(items=items, columns=columns, rest=rest, pull=0.0)
    return ItemFacts(
        catalogue=model.catalogue,
        mean=model.mean,
        bias=arrays["bias"],
        variance=arrays["variance"],
        popularity=arrays["popularity"],
        similarity=similarity,
        popularity_margin=arrays.get("popularity-margin"),
    )


def _lists(arrays: Mapping[str, np.ndarray]) -> ListModel:
    heads, items = arrays["heads"].astype(np.int64), len(arrays["bias"])
    parts = [
        Bytes(arrays[name], arrays[f"{name}-unit"].astype(np.float32))
        for name in ("encode", "decode")
    ]
    shapes = {part.whole.shape for part in parts} | {(len(heads), len(parts[0].unit))}
    kinds = {(part.whole.dtype, part.unit.shape) for part in parts}
    ascending = bool((np.diff(heads) > 0).all()) and bool((heads < items).all())
    if len(shapes) != 1 or len(kinds) != 1 or parts[0].whole.dtype != np.int8 or not ascending:
        raise ValueError
    return ListModel(
        form="linear",
        encode=parts[0],
        decode=parts[1],
        entries=Entries.none(len(heads)),
        output=np.zeros(len(heads), np.float32),
        heads=heads,
        n_items=items,
        about={"kind": "pairs", "heads": len(heads), "directions": len(parts[0].unit)},
    )
