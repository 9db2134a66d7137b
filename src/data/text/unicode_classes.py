#!/usr/bin/env python3
"""Writes unicode_classes.inc beside itself: the classes of code points as Hugging Face's tokenizers has them.

They are asked of the library, since its parts go by different versions of Unicode (0.23.3: 16 for \\p{L} and \\p{N}, 17 for
Digits, 9 for NFC). Needs the packages tokenizers and unicodedata2.
"""

import pathlib
import sys

import unicodedata2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CODES = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]


def in_pattern(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return {code for code in CODES if not split.pre_tokenize_str(chr(code))}


def digits():
    split = pre_tokenizers.Digits(individual_digits=True)
    return {code for code in CODES if len(split.pre_tokenize_str("a" + chr(code))) == 2}


def word_characters():
    """Those beside which a token with single_word is not one."""
    tokenizer = Tokenizer(models.BPE(vocab={"\0": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("x", single_word=True, normalized=False)])
    return {code for code in CODES if chr(code) == "x" or not tokenizer.encode("x" + chr(code)).ids} - {0}


def unknown_to_nfc():
    """Those that a newer Unicode reorders or composes, and the library's NFC leaves where they are."""
    nfc = normalizers.NFC()

    def differs(text):
        return nfc.normalize_str(text) != unicodedata2.normalize("NFC", text)

    def parts(code):
        found = unicodedata2.decomposition(chr(code))
        return [] if not found or found.startswith("<") else [int(part, 16) for part in found.split()]

    codes = set()
    for code in CODES:
        mark = chr(code)
        if unicodedata2.combining(mark) and (differs("a" + mark + "\u0334\u0316\u0345") or differs("a\u0345\u0316\u0334" + mark)):
            codes.add(code)
        if parts(code) and differs(unicodedata2.normalize("NFD", mark)):
            codes.update([code, parts(code)[0]])
    assert min(codes) > 0x370, "what it begins with is as new as a character that the library does not compose"
    return codes


def main():
    classes = [in_pattern(r"\p{L}"), in_pattern(r"\p{N}"), in_pattern(r"\s"), digits(), word_characters(), unknown_to_nfc()]
    classes += [in_pattern(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"), in_pattern(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]")]
    runs, last = [], None
    for code in range(sys.maxunicode + 1):
        bits = sum(1 << place for place, members in enumerate(classes) if code in members)
        if bits != last:
            runs.append(f"{code << 8 | bits:#x},")
        last = bits
    lines, line = [], ""
    for run in runs:
        if len(line) + len(run) > 140:
            lines.append(line)
            line = ""
        line += run
    note = "// Made by unicode_classes.py: where runs of code points of equal classes begin, << 8 | classes.\n"
    path = pathlib.Path(__file__).with_suffix(".inc")
    path.write_text(note + "\n".join([*lines, line]) + "\n")
    print([len(members) for members in classes], len(runs), "runs,", sorted(map(hex, classes[5]))[:12], len(classes[5]))


if __name__ == "__main__":
    main()
