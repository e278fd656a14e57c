"""What a method says about itself is what the accountant, the estimators and the command line
find.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hdpmf.common.methods import METHODS, VIEWS, Method, check, method_named, method_of
from hdpmf.common.methods.registry import Methods
from hdpmf.common.privacy.accounting import cost
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.models import make_model

STATUS = {"proved": "proved", "nominal": "nominal", "no guarantee": "none"}
OFFERED = [(name, view) for name in METHODS for view in METHODS[name].offered]


@pytest.mark.parametrize(("name", "view"), OFFERED)
def test_claims_are_what_the_accountant_computes(name, view):
    claim = METHODS[name].claim(view)
    value = cost(name, view, epsilon=0.8)
    presence = cost(name, view, epsilon=0.8, neighbours="presence")
    assert claim.status == STATUS[value.status]
    if name == "hdp-pairs" and claim.status == "proved":  # with a delta, and for a whole person
        person = cost(name, view, epsilon=0.8, unit="user", neighbours="presence", delta=1e-5)
        assert person.epsilon_at_delta == pytest.approx(0.8, rel=1e-3)
        for found, factor in ((value, claim.value), (presence, claim.presence)):
            assert 0 < found.epsilon_at_delta <= factor * 0.8
    elif claim.status == "proved":
        assert claim.value * 0.8 == pytest.approx(value.pure, rel=1e-3)
    else:
        assert claim.value is None
    if claim.presence is None:
        assert presence.status == "no guarantee"
    elif name != "hdp-pairs":
        assert claim.presence * 0.8 == pytest.approx(presence.pure, rel=1e-3)


def test_two_servers_are_offered_by_name():
    with_servers = {name for name in METHODS if "two-servers" in METHODS[name].offered}
    assert with_servers == {"hdp-sum", "hdp-pairs", "user-mean"}
    assert [name for name in METHODS if METHODS[name].views == ("two-servers",)] == ["hdp-pairs"]
    over_flower = {name for name in METHODS if METHODS[name].views == ("messages",)}
    assert over_flower == {"mf", "hdpmf", "hdpmf-w", "hdpmf-r", "pdpmf", "dpmf"}
    claim = METHODS["hdp-sum"].claim("two-servers")
    assert claim.status == "proved"
    assert claim.against == "the recommender and one of the two servers, with any number of devices"
    assert claim.needs.startswith("one of the two servers is honest")
    assert (claim.value, claim.presence) == (1.0, 0.75)
    for ask in (METHODS["hdpmf"].claim, lambda view: cost("hdp-bit", view)):
        with pytest.raises(
            ConfigError, match="is not offered under the view two-servers; it has messages, sums"
        ):
            ask("two-servers")


def test_a_view_that_there_is_not_is_an_error():
    with pytest.raises(
        ConfigError, match="there is no view 'sum'; choose from messages, sums, two-servers, final"
    ):
        METHODS["hdp-sum"].claim("sum")
    for view in ("sums-h-known", "sums-h-hidden"):
        assert METHODS["hdpmf"].claim(view) == METHODS["hdpmf"].claim("sums")
    assert (
        METHODS["hdp-sum"].claim("final")
        == METHODS["hdp-sum"].claim()
        == METHODS["hdp-sum"].claim("sums")
    )
    assert tuple(METHODS["hdp-sum"].offered) == VIEWS


@pytest.mark.parametrize("name", METHODS)
def test_estimators_have_exactly_the_options_of_their_method(name):
    method = METHODS[name]
    model = make_model(name)
    assert method_of(model) == method
    assert set(model.get_params()) == {*method.options, *method.fixed}
    assert {option: model.get_params()[option] for option in method.options} == {
        option: method.default(option) for option in method.options
    }
    assert model.privacy.status == method.claim().status


def test_an_option_that_a_method_lacks_is_an_error_that_names_those_it_has():
    with pytest.raises(
        ConfigError, match=r"hdpmf has no option 'n_factor'; its options are .*n_factors"
    ):
        make_model("hdpmf", n_factor=50)
    with pytest.raises(
        ConfigError, match=r"hdp-sum has no option --set learning_rate; its options are .*--epsilon"
    ):
        METHODS["hdp-sum"].require("learning_rate", "--set learning_rate")
    with pytest.raises(ConfigError, match="hdpmf-paid has solver = batch and no other"):
        make_model("hdpmf-paid", solver="sequential")
    with pytest.raises(ConfigError, match="user-mean has no option 'epochs'; it has no options"):
        make_model("user-mean", epochs=3)
    with pytest.raises(ConfigError, match="unknown method 'hdpsum'; did you mean 'hdp-sum'"):
        method_named("hdpsum")
    with pytest.raises(ConfigError, match="unknown method 'svd'; choose from mf"):
        method_named("svd")


def test_what_is_chosen_is_what_runs():
    assert make_model("hdpmf-paid").get_params()["epochs"] == 10
    assert make_model("hdpmf-paid", epochs=50).get_params()["epochs"] == 50
    assert make_model("hdpmf-w").learning_rate == 0.05
    assert make_model("hdpmf-w", solver="sequential").learning_rate == 0.005
    assert make_model("hdpmf-w", learning_rate=0.3).learning_rate == 0.3


@pytest.mark.parametrize(
    ("name", "changes", "error", "said"),
    [
        (
            "hdpmf",
            {"n_factors": 0},
            ConfigError,
            "n_factors must be a whole number from 1 to 512, not 0",
        ),
        ("hdpmf", {"n_factors": 2.0}, ConfigError, "n_factors must be a whole number"),
        (
            "hdpmf",
            {"learning_rate": float("nan")},
            ConfigError,
            "learning_rate must be a positive number, not nan",
        ),
        ("hdpmf", {"reg": -1}, ConfigError, "reg must be 0 or a positive number"),
        (
            "hdpmf",
            {"epsilon": 0},
            PrivacyError,
            "epsilon must be a positive number, not 0; a budget of 0",
        ),
        ("hdpmf", {"h": "all"}, ConfigError, "h must be one of auto, item, shared, not 'all'"),
        (
            "hdp-bit",
            {"patterns": 101},
            ConfigError,
            "patterns must be a whole number from 0 to 100, not 101",
        ),
        ("hdp-bit", {"n_threads": 0}, ConfigError, "n_threads must be a whole number from 1"),
    ],
)
def test_ranges(name, changes, error, said):
    with pytest.raises(error, match=said):
        check(make_model(name, **changes))


def test_a_name_stands_for_one_method():
    registry = Methods(Method, "method", "hdpmf.methods", (METHODS["mf"],))
    registry.add(METHODS["mf"])
    with pytest.raises(ConfigError, match="there is a method 'mf' already"):
        registry.add(replace(METHODS["mf"], label="Other"))
    with pytest.raises(ConfigError, match="only a Method"):
        registry.add("mf")
    with pytest.raises(ConfigError, match="fixes 'colour'"):
        replace(METHODS["mf"], fixed={"colour": 1})
