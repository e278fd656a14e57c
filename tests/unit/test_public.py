"""The public names, and what importing the package costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import hdpmf
from hdpmf import errors

PUBLIC = [
    "DPMF",
    "HDPMF",
    "MF",
    "PDPMF",
    "BiasedMF",
    "Estimator",
    "GlobalMean",
    "Group",
    "HDPBit",
    "HDPPairs",
    "HDPSum",
    "HdpmfError",
    "ItemFilter",
    "ItemTable",
    "PrivacySpec",
    "PrivacyWeights",
    "RatingScale",
    "Ratings",
    "UserMean",
    "add_method",
    "compare",
    "cross_validate",
    "grid_search",
    "load_dataset",
    "load_model",
    "load_split",
    "make_model",
    "option",
    "read_split",
    "synthetic_world",
]


def test_the_public_names_are_these():
    assert hdpmf.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(hdpmf, name) is not None
    assert dir(hdpmf) == sorted(PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = hdpmf.nonsense


def test_importing_loads_nothing_heavy():
    heavy = [
        "numba",
        "numpy",
        "polars",
        "narwhals",
        "scipy",
        "typer",
        "rich",
        "safetensors",
        "pooch",
    ]
    code = f"import sys, hdpmf; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_error_is_in_the_tree_and_in_its_picture():
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert all(issubclass(one, errors.HdpmfError) for one in classes)
    assert all(one.__name__ in errors.__doc__ for one in classes)
    codes = {one.__name__: one.exit_code for one in classes}
    assert all(0 < code < 128 for code in codes.values())


def test_the_tree_on_the_page_about_the_architecture_has_every_package():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "architecture.md").read_text()
    tree = page.partition("```text\n")[2].partition("```")[0]
    source = root / "src" / "hdpmf"
    found = [
        path.parent for pattern in ("*", "*/*") for path in source.glob(f"{pattern}/__init__.py")
    ]
    packages = [path for path in found if path.parent.name != "cli"]  # its nouns are the commands
    assert [path for path in packages if f"{path.name}/" not in tree] == []
