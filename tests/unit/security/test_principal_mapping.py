"""`ssl.principal.mapping.rules` (KIP-371)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.security.principal_mapping import PrincipalMapping

# The example of KIP-371.
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=JavaSoft,dc=com,dc=mycp", "DUKE@JAVASOFT"),
        ("OU=JavaSoft,CN=duke.x", "DUKE.X"),
        ("OU=JavaSoft", "OU=JavaSoft"),
    ],
)
def test_the_first_rule_that_matches_decides(name: str, mapped: str) -> None:
    assert PrincipalMapping(RULES).name_of(name) == mapped


@pytest.mark.parametrize(
    ("rules", "mapped"),
    [
        ("DEFAULT", "CN=alice,O=x"),
        ("RULE:^CN=(.*),O=(.*)$/$2-$1/", "x-alice"),
        ("RULE:^CN=(.*),O=.*$/$1$9/", "alice$9"),
        ("RULE:^CN=(.*),O=.*$/$12/", "alice2"),
        ("RULE:^CN=(?<who>.*),O=.*$/${who}/", "alice"),
        (r"RULE:^CN=(.*),O=.*$/\$1\/$1/", "$1/alice"),
        ("RULE:^CN=bob.*$/bob/ ,  DEFAULT", "CN=alice,O=x"),
        ("RULE:^CN=(.*),O=.*$/$1/U", "ALICE"),
        (",DEFAULT", "CN=alice,O=x"),
    ],
)
def test_replacements(rules: str, mapped: str) -> None:
    assert PrincipalMapping(rules).name_of("CN=alice,O=x") == mapped


@pytest.mark.parametrize("rules", ["RULE:^CN=bob$/bob/", "", "RULE:CN=alice/alice/"])
def test_without_a_rule_that_matches_the_whole_name_there_is_no_principal(rules: str) -> None:
    assert PrincipalMapping(rules).name_of("CN=alice,O=x") is None


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:^CN=(.*)$",
        "RULE:^CN=(.*)$/$1",
        "RULE:(/x/",
        "RULE:a/b/Lx",
        "RULE:a/${who}/",
        "RULE:a/b/ x",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PrincipalMapping(rules)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(rules: str) -> None:
    try:
        PrincipalMapping(rules).name_of("CN=alice")
    except ValueError:
        pass


@given(st.text(alphabet=st.characters(exclude_characters="\n"), max_size=40))
def test_a_quoted_name_maps_to_what_the_rule_says(name: str) -> None:
    rule = f"RULE:{re.escape(name).replace('/', chr(92) + '/')}/someone/"
    mapping = PrincipalMapping(rule)
    assert mapping.name_of(name) is not None
    assert mapping.name_of(name + "!") is None


@given(st.text(max_size=40))
def test_default_changes_nothing(name: str) -> None:
    assert PrincipalMapping().name_of(name) == name
