"""A table of checks with a mistake is refused by the name of the check and the field."""

import pytest

from bls.routing.policy_file import SHIPPED, load_policy
from bls.safety.replies import REPLIES
from bls.safety.settings import (
    CHECK_NAMES,
    BadSetting,
    Check,
    Classifier,
    Hidden,
    Limits,
    Patterns,
    PersonalData,
    Repetition,
    Safety,
    Script,
    Words,
)
from engines.classifier.labels import HARD, LABELS

SAFETY = load_policy(SHIPPED).settings.safety


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Limits(max_characters=0), "Limits: max_characters is 0; it must be a number from 1 to 1e+07"),
        (lambda: Limits(max_messages=True), "Limits: max_messages is True"),
        (lambda: Repetition(repeated_share=1.5), "Repetition: repeated_share is 1.5"),
        (lambda: Repetition(min_characters="9"), "Repetition: min_characters is '9'"),
        (lambda: Words(on_failure="closd"), "Words: on_failure is 'closd'; it must be one of open, closed"),
        (lambda: Words(skip_roles=("system")), "Words: skip_roles is 'system'; it must be a tuple of roles"),
        (lambda: Words(on_hit={"drugs": "hide"}), "on_hit['drugs'] is 'hide'; it must be one of refuse, mask, route"),
        (lambda: Words(on_hit=["drugs"]), "on_hit is ['drugs']; it must be a dict"),
        (lambda: Patterns(on_hit={"*": "mask"}), "Patterns: on_hit['*'] is 'mask'; it must be one of refuse, route"),
        (lambda: Hidden(on_hit={"rot13": "refuse"}), "Hidden: on_hit is 'rot13'; it must be one of base64, hex"),
        (lambda: PersonalData(on_hit={"iban": "mask"}), "PersonalData: on_hit is 'iban'; it must be one of email"),
        (lambda: PersonalData(masks={"iban": "x"}), "PersonalData: masks is {'iban': 'x'}"),
        (lambda: Classifier(refuse_from={"hate": 2}), "Classifier: refuse_from['hate'] is 2"),
        (lambda: Classifier(route_from={"code": True}), "Classifier: route_from['code'] is True"),
        (lambda: Classifier(budget_ms=0), "Classifier: budget_ms is 0"),
        (lambda: Safety([Limits()]), "Safety: checks must be a tuple of Limits, Repetition, Words"),
        (lambda: Safety((Check(),)), "Safety: checks must be a tuple"),
        (lambda: Safety((Limits(), Limits())), "Safety: limits occurs twice"),
        (
            lambda: Safety((), trusted_tenants=("acme")),
            "Safety: trusted_tenants is 'acme'; it must be a tuple of names",
        ),
        (lambda: Safety((), trusted_tenants=("",)), "Safety: trusted_tenants is ('',)"),
        (lambda: Safety((), trusted_roles=["system"]), "Safety: trusted_roles is ['system']"),
        (lambda: Safety((), {"x": {"zh": "不"}}), "Safety: replies['x'] must be"),
        (lambda: Safety((), {"x": {"en": "{name}"}}), "Safety: replies['x'] is '{name}'"),
        (lambda: Safety((), {"x": {"en": "{"}}), "Safety: replies['x'] is '{'"),
    ],
)
def test_a_mistake_is_told_by_name(make, message):
    with pytest.raises(BadSetting) as caught:
        make()
    assert message in str(caught.value)


def test_every_check_has_a_place_in_the_shipped_table():
    assert {type(check) for check in SAFETY.checks} == set(CHECK_NAMES)


def test_what_costs_least_comes_first_and_the_classifier_last():
    names = [check.name for check in SAFETY.checks]
    assert (names[0], names[-1]) == ("limits", "classifier")


def test_labels_of_the_shipped_table_are_the_classifiers():
    (classifier,) = [check for check in SAFETY.checks if isinstance(check, Classifier)]
    assert set(classifier.refuse_from) | set(classifier.route_from) <= set(LABELS)
    assert set(classifier.route_from) == set(HARD)


def test_every_reply_is_there_in_both_languages():
    assert all(set(texts) == {"en", "zh"} and all(texts.values()) for texts in REPLIES.values())


def test_replies_are_found_by_the_first_name_that_has_one():
    safety = Safety((), {"default": {"en": "no"}, "words": {"en": "not {found}", "zh": "不"}})
    assert safety.reply(("word_x", "words"), False, "5", "4") == "not 5"
    assert safety.reply(("word_x", "words"), True) == "不"
    assert safety.reply(("other",), True) == "no"
    assert Safety((), {}).reply(("other",), False) == REPLIES["default"]["en"]


def test_a_check_is_known_by_its_name():
    assert (Script().name, PersonalData().name) == ("script", "personal_data")


def test_a_reply_of_ones_own_stands_beside_the_shipped_ones():
    own = Safety((Patterns(),), replies={"prompt_rivals": {"en": "Ask them."}, "patterns": {"en": "No."}})
    assert own.reply(("prompt_rivals", "patterns"), is_chinese=False) == "Ask them."
    assert own.reply(("prompt_leak", "patterns"), is_chinese=False) == "No."
    assert "limit is 9" in own.reply(("too_long", "limits"), is_chinese=False, limit="9")


def test_a_new_family_of_patterns_is_not_told_what_attacks_are_told():
    told = SAFETY.reply(("prompt_rivals", "patterns"), is_chinese=False)
    assert told == SAFETY.reply(("default",), is_chinese=False)
    assert told != SAFETY.reply(("prompt_leak", "patterns"), is_chinese=False)
