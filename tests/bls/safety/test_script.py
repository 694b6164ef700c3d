import pytest

from bls.safety.script import is_chinese, script_shares


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("", {}),
        ("12 + 30 = ?", {}),
        ("１２！？😀", {}),
        ("Hello there", {"latin": 1.0}),
        ("Grüße aus Köln", {"latin": 1.0}),
        ("今天天气怎么样？", {"zh": 1.0}),
        ("今日はとても暑いですね", {"ja": 1.0}),
        ("カタカナ", {"ja": 1.0}),
        ("안녕하세요", {"ko": 1.0}),
        ("Привет, как дела?", {"ru": 1.0}),
        ("مرحبا بكم", {"ar": 1.0}),
        ("नमस्ते", {"hi": 1.0}),
        ("สวัสดี", {"th": 1.0}),
        ("שלום", {"he": 1.0}),
        ("Γειά σου", {"el": 1.0}),
        ("ＡＢＣ", {"latin": 1.0}),
        ("你好 hello", {"zh": 0.44, "latin": 0.56}),
        ("\ud800\U0010ffff", {}),
    ],
)
def test_shares_of_scripts(text, shares):
    assert script_shares(text) == shares


def test_small_shares_are_left_out():
    assert script_shares("用 Python 写一个函数" + "，计算两个日期之间的天数" * 10) == {"zh": 0.97}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好", True),
        ("用 Python 写函数", True),
        ("what does 你好 mean in Chinese?", False),
        ("hello", False),
        ("こんにちは", False),
    ],
)
def test_what_is_answered_in_chinese(text, expected):
    assert is_chinese(text) == expected
