from bls.words import pinyin


def test_every_mixture_of_characters_and_pinyin():
    assert pinyin.variants("法轮功", entire=True) == {
        "fa轮功", "法lun功", "法轮gong", "falun功", "fa lun功", "fa轮gong", "法lungong", "法lun gong",
        "falungong", "fa lun gong", "f a l u n g o n g",
    }  # fmt: skip


def test_not_all_in_pinyin_unless_asked_for():
    assert {"falungong", "fa lun gong"}.isdisjoint(pinyin.variants("法轮功", entire=False))


def test_every_reading_counts():
    assert {"yinhang", "yinxing"} <= pinyin.variants("银行", entire=True)


def test_u_with_two_dots_is_written_v_or_u():
    assert {"nvren", "nuren"} <= pinyin.variants("女人", entire=True)


def test_latin_letters_of_the_word_stay():
    assert pinyin.variants("t恤", entire=False) == set()
    assert "txu" in pinyin.variants("t恤", entire=True)


def test_a_long_word_gets_only_the_likely_spellings():
    long = "重重重重重重重重重重"
    found = pinyin.variants(long, entire=True)
    assert len(found) <= 2 * pinyin.MAX_VARIANTS
    assert any(spelling.isascii() for spelling in found)
