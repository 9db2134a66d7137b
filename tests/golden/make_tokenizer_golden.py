#!/usr/bin/env python3
"""Writes bpe_small/ and tokenizer_golden.json next to this script; README.md describes their content.

Every case is valid UTF-8 and uses only code points assigned in Unicode 14, because later versions class more code
points as letters.
"""

import json
import pathlib
import random
import sys
import unicodedata

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
VOCABULARY = 600

ENGLISH = """\
It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.
Call me Ishmael. Some years ago - never mind how long precisely - having little or no money in my purse, and nothing
particular to interest me on shore, I thought I would sail about a little and see the watery part of the world.
We hold these truths to be self-evident, that all men are created equal, that they are endowed by their Creator with
certain unalienable Rights, that among these are Life, Liberty and the pursuit of Happiness.
'Twas brillig, and the slithy toves did gyre and gimble in the wabe: all mimsy were the borogoves. I'll say they're
here; we've seen it, he'd said, and it's what I'm told. Don't you think she'd've known?
In the year 1859, on the 24th of November, 1,250 copies were printed; 3.14159 and 2.71828 are numbers, 0x1F is too.
"""

CODE = """\
#include <cstdint>
template <class T, std::size_t N>
struct array {
    constexpr T& operator[](std::size_t i) noexcept { return data_[i]; }
    T data_[N];
};
int main(int argc, char** argv) {
\tfor (int i = 0; i < argc; ++i) {
\t\tif (argv[i] == nullptr) return -1;
\t}
    return static_cast<int>(sizeof(array<float, 16>) != 64);
}
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
{"key": [1, 2.5, null, true], "name": "value"}
"""

OTHER = """\
Ein Jäger aus Kurpfalz, der reitet durch den grünen Wald; größer, süß, Straße.
Longtemps, je me suis couché de bonne heure. Où êtes-vous, là-bas, à côté du café ?
En un lugar de la Mancha, de cuyo nombre no quiero acordarme, ¿quién sabe? ¡Señor!
Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.
Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος. 吾輩は猫である。名前はまだ無い。 道可道，非常道。名可名，非常名。
בראשית ברא אלהים את השמים ואת הארץ. 나 보기가 역겨워 가실 때에는
"""


def training_text():
    """The snippets above in shuffled lines, with made-up words from their letters to give merges more to count."""
    picker = random.Random(5)
    lines = (ENGLISH + CODE + OTHER).splitlines(keepends=True)
    syllables = ["ta", "ri", "mo", "sel", "en", "ing", "er", "tion", "al", "or", "st", "un", "qua"]
    for _ in range(300):
        words = ["".join(picker.choices(syllables, k=picker.randint(1, 3))) for _ in range(8)]
        lines.append(" ".join(words) + "\n")
    picker.shuffle(lines)
    return lines


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def code_point_cases():
    """Every character class with neighbors that a wrong class would split differently: a letter, a digit, a space."""
    picked = []
    for category in sorted({unicodedata.category(chr(c)) for c in range(sys.maxunicode + 1)} - {"Cs", "Cn"}):
        members = [c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) == category]
        step = max(1, len(members) // 24)
        picked += members[::step][:24] + [members[-1]]
    spaces = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)]
    picked += spaces + [0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0x180E, 0x200B, 0xFEFF, 0x1C, 0x1F]
    for code in sorted(set(picked)):
        character = chr(code)
        yield f"a{character}b 1{character}2 {character}{character} .{character}!"


def cases():
    yield ""
    yield from (chr(byte) for byte in range(128))
    yield from (chr(code) for code in range(128, 256))
    yield from (ENGLISH, CODE, OTHER)
    yield from (
        "Hello there       dear", "  leading", "trailing   ", " ", "  ", "\n", "\n\n  \n", "\r\n", "a\r\nb\r\n\r\nc",
        "\t\tx\t y", "a \tb", "tab\t", " \n x", "x \n", "x  \n  y", "a\u00a0b \u00a0 c", "a\u3000\u3000b", "a\u180eb \u180e c",
        "a\u200bb", "\ufeffBOM at start", "nul\0inside\0\0", "'s 'S 't 'T 're 'RE 've 'm 'M 'll 'LL 'd 'D",
        "I'll I'LL I'Ll we've WE'VE it's IT'S 'sx 'lls ''s '' ' s", "don\u2019t \u2018quoted\u2019",
        "\u00bd \u2460 \u0663 x\u00b2 10\u00bd \u2167 \u4e09 1\u0663\u00bd2", "3.14159,2e-10 0x1F 1_000 007", "x1y2z3 v1.2.3",
        "e\u0301 n\u0303o \u0928\u093f \u0e01\u0e34 a\u0308\u0323b", "\u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627 \u200fabc\u200e",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd\u2764\ufe0f",
        "\U00010330\U00010331 \U0001d11e \U00020000\U0002a6d6", "\ufffd \ufdfa \uffdc \ue000 \U000f0000 \U0010fffd",
        "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|> x", "<|endoftext", "!!!??...;:{}[]()<>#$%^&*",
        "a!b ?c !?d ! e", "https://example.org/a_b?c=d&e=%20#f", "camelCase snake_case SCREAMING_CASE kebab-case",
        "--------------------------------", "====  ====", "a" * 3000, " " * 3000, "\n" * 500, "ab" * 700, "1" * 500,
        "\u00e9" * 400, "tionstionstions" * 60, " a" * 200, "x" + " " * 50 + "y", "\t" * 40 + "return;\n" * 5,
    )  # fmt: skip
    yield from code_point_cases()
    picker = random.Random(7)
    pool = list("aeinorst  \n\t.,'0129_-(){}") + ["é", "ж", "中", "\u00a0", "🙂", "'s", "'ll", "ing", " the"]
    for _ in range(120):
        yield "".join(picker.choices(pool, k=picker.randint(1, 60)))


def main():
    assert unicodedata.unidata_version.startswith("14."), "run this with a Python whose unicodedata is version 14"
    tokenizer = train()
    assert tokenizer.get_vocab_size() == VOCABULARY
    folder = HERE / "bpe_small"
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    # vocab.json of a GPT-2 folder also contains the special token, so its id is known without tokenizer.json.
    tokenizer.model.save(str(folder))
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.json").write_text(json.dumps(dict(vocabulary), ensure_ascii=False), encoding="utf-8")

    written = []
    for text in dict.fromkeys(cases()):
        # The caller chooses how special tokens in text are treated: these are the ids with them recognized and as plain
        # text.
        case = {"hex": text.encode().hex(), "ids": plain_ids(tokenizer, text)}
        assert tokenizer.decode(case["ids"], skip_special_tokens=False) == text
        if "<|endoftext|>" in text:
            case["ids_with_special"] = tokenizer.encode(text, add_special_tokens=False).ids
        written.append(case)
    rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in written)
    path = HERE / "tokenizer_golden.json"
    path.write_text(f'{{"tokenizer":"bpe_small","cases":[\n{rows}\n]}}\n')
    print(len(written), "cases,", path.stat().st_size, "bytes")


def plain_ids(tokenizer, text):
    """Ids with `<|endoftext|>` as ordinary characters."""
    if not hasattr(plain_ids, "tokenizer"):
        spec = json.loads(tokenizer.to_str())
        spec["added_tokens"] = []
        plain_ids.tokenizer = Tokenizer.from_str(json.dumps(spec))
    return plain_ids.tokenizer.encode(text, add_special_tokens=False).ids


if __name__ == "__main__":
    main()
