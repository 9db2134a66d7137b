#!/usr/bin/env python3
"""Writes unicode_classes.inc beside itself: the classes of code points as Hugging Face's tokenizers has them.

They are asked of the library, since its parts go by different versions of Unicode (0.23.3: 16 for \\p{L} and \\p{N}, 17 for
Digits, 9 for NFC). PCRE2 of Debian 12 has Unicode 14, as the unicodedata of its Python: newer characters get a stand-in of
the same category and length. Needs Debian 12's Python and the packages tokenizers and unicodedata2.
"""

import pathlib
import sys
import unicodedata

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


def removed_by(normalizer):
    return {code for code in CODES if not normalizer.normalize_str(chr(code))}


def bert(**flags):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **flags})


def punctuation():
    split, words = pre_tokenizers.Punctuation(), pre_tokenizers.BertPreTokenizer()
    found = {code for code in CODES if len(split.pre_tokenize_str("a" + chr(code))) == 2}
    assert found == {code for code in CODES if len(words.pre_tokenize_str("a" + chr(code))) == 2}
    return found


def unknown_to_nfkc(unknown):
    forms = [(normalizers.NFKC(), "NFKC"), (normalizers.NFKD(), "NFKD")]
    return unknown | {code for code in CODES for form, name in forms
                      if form.normalize_str(chr(code)) != unicodedata2.normalize(name, chr(code))}


def lower_case():
    """Those whose lower case is not that of utf8proc, which has Unicode 14."""
    lower = normalizers.Lowercase()
    return {code: lower.normalize_str(chr(code)) for code in CODES if lower.normalize_str(chr(code)) != chr(code).lower()}


def stand_ins():
    """Characters that PCRE2 takes for something else than the library does, each with one that both take for the same."""
    categories = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
    found = {code: category for category in categories for code in in_pattern(rf"\p{{{category}}}")}
    known, newer = {}, {0x180E: 0x200B}  # PCRE2 has it in \s
    for code, category in sorted(found.items()):
        is_known = unicodedata.category(chr(code)) == category
        kind = category, len(chr(code).encode()), unicodedata2.name(chr(code), "").startswith("CJK UNIFIED")
        if is_known and code not in newer:
            known.setdefault(kind, code)
        elif not is_known:
            newer[code] = kind
    return {code: known[kind] if isinstance(kind, tuple) else kind for code, kind in sorted(newer.items())}


def written(entries):
    lines, line = [], ""
    for entry in entries:
        if len(line) + len(entry) > 140:
            lines.append(line)
            line = ""
        line += entry
    return "\n".join([*lines, line]) + "\n};\n"


def runs_of(classes):
    runs, last = [], None
    for code in range(sys.maxunicode + 1):
        bits = sum(1 << place for place, members in enumerate(classes) if code in members)
        if bits != last:
            runs.append(f"{code << 8 | bits:#x},")
        last = bits
    return runs


def main():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    newer = stand_ins()
    classes = [in_pattern(r"\p{L}"), in_pattern(r"\p{N}"), in_pattern(r"\s"), digits(), word_characters(), unknown_to_nfc(), newer]
    traits = [removed_by(bert(strip_accents=True)), removed_by(normalizers.StripAccents()), punctuation(),
              removed_by(bert(clean_text=True)), unknown_to_nfkc(classes[5])]
    runs, trait_runs = runs_of(classes), runs_of(traits)
    replaced = []
    for code, stand_in in newer.items():
        if replaced and replaced[-1][1:] == [code - 1, stand_in]:
            replaced[-1][1] = code
        else:
            replaced.append([code, code, stand_in])
    lowered = []
    for code, lower in sorted(lower_case().items()):
        assert len(lower) == 1, lower
        if lowered and [lowered[-1][1], lowered[-1][1] + lowered[-1][2]] == [code - 1, ord(lower) - 1]:
            lowered[-1][1] = code
        else:
            lowered.append([code, code, ord(lower) - code])
    path = pathlib.Path(__file__).with_suffix(".inc")
    path.write_text(
        "// Made by unicode_classes.py: where runs of code points of equal classes begin, << 8 | classes.\n"
        "constexpr std::uint32_t kClassRuns[] = {\n" + written(runs) +
        "// Where runs of code points of equal traits begin, << 8 | traits.\n"
        "constexpr std::uint32_t kTraitRuns[] = {\n" + written(trait_runs) +
        "// Runs of characters that utf8proc does not know, and the distance to their lower case.\n"
        "constexpr LowerCase kLowerCase[] = {\n" + written(f"{{{a:#x},{b:#x},{c}}}," for a, b, c in lowered) +
        "// Runs of characters that PCRE2 does not know, and what stands for each of them.\n"
        "constexpr StandIn kStandIns[] = {\n" + written(f"{{{a:#x},{b:#x},{c:#x}}}," for a, b, c in replaced))
    print([len(members) for members in classes], len(runs), "runs,", len(replaced), "stand-ins")
    print([len(members) for members in traits], len(trait_runs), "runs,", lowered)


if __name__ == "__main__":
    main()
