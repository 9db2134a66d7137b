#!/usr/bin/env python3
"""Writes encoder_tokenizers.json next to this script; README.md describes it.

It has tiny tokenizers of encoders, and for texts and pairs of texts the ids, types and decoded texts of Hugging Face's
tokenizers 0.23. Needs the packages tokenizers and sentencepiece.
"""

import itertools
import json
import pathlib
import tempfile

import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXTS = [
    "", " ", "The unaffable caf\u00e9, isn't it?", "\u4f60\u597d \u4e16\u754c abc\u4f60", "I\u0307STANBUL \u0130 na\u00efve  the\tthe",
    "a\u0301\u0316b \u212bngstr\u00f6m \ufb01ne\u0301 \u00bd", "x" * 101, "[CLS] the [MASK] <s> </s> <unk>", "the\x00 the\u200d\ufffdthe\u0085end",
    "\U0001f468\u200d\U0001f469 \u2581the \u2581 zzqzz", "\r\nthe\u3000the\u00a0end!?", "\u0301the", "the \u0e01\u0e33 \ud55c\uae00 \u1100\u1161",
]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "un", "##aff", "##able", "cafe", "caf\u00e9", "i", "is", "##n", "'", "t", "it", "?", ",",
          "\u4f60", "\u597d", "##\u4f60", "a", "##b", "abc", "##bc", "istanbul", "naive", "the\u0301", "end", "!", "x", "##x", "fine"]
SCORED = [("<s>", 0), ("<pad>", 0), ("</s>", 0), ("<unk>", 0), ("\u2581", -2), ("\u2581the", -2.5), ("the", -3), ("t", -5), ("h", -5.5), ("e", -4.5),
          ("\u2581un", -4), ("aff", -6), ("able", -5), ("a", -4), ("b", -6), ("c", -6), ("f", -6.5), ("i", -4), ("n", -4), ("s", -4), ("en", -5),
          ("end", -5.5), ("d", -6), ("\u4f60", -8), ("\u4f60\u597d", -7), ("x", -9), ("xx", -11), ("xxxx", -13), ("\u00e9", -8), ("z", -9), ("zz", -30)]
CONTROL = 7
RULES = {"\ufb01": "fi", "\u212b": "A", "\r": " ", "\n": " ", "\t": " ", "\u3000": " ", "a\u0301": "\u00e1", "\u00bd": "1/2", "\x00": ""}
LIMITS = [(7, "longest_first", "right"), (8, "longest_first", "left"), (9, "only_second", "right"), (9, "only_first", "left")]


def character_map():
    """The table that SentencePiece makes of RULES."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        points = lambda text: " ".join(f"{ord(c):X}" for c in text)
        (folder / "rules.tsv").write_text("".join(f"{points(a)}\t{points(b)}\n" for a, b in RULES.items() if a != "\x00"))
        (folder / "text").write_text("\n".join(f"the quick fox {i} jumps" for i in range(50)))
        sentencepiece.SentencePieceTrainer.train(input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=40, minloglevel=2,
                                                 hard_vocab_limit=False, normalization_rule_tsv=str(folder / "rules.tsv"))
        return dict(fields(dict(fields((folder / "m.model").read_bytes()))[3]))[2]


def fields(message):
    """The fields of a protocol buffer."""
    at = 0

    def number():
        nonlocal at
        value, shift, more = 0, 0, True
        while more:
            value, shift, more, at = value | (message[at] & 127) << shift, shift + 7, message[at] >= 128, at + 1
        return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            size = number() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            yield key >> 3, message[at : at + size]
            at += size


def word_piece(normalizer, pre_tokenizer, post_processor, cleanup=True):
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(PIECES[:5])
    return complete(tokenizer, normalizer, pre_tokenizer, post_processor, decoders.WordPiece(cleanup=cleanup))


def unigram(normalizer, pre_tokenizer, post_processor, byte_fallback=False):
    vocabulary = SCORED + [(f"<0x{byte:02X}>", -20) for byte in range(256) if byte_fallback]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=byte_fallback))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    return complete(tokenizer, normalizer, pre_tokenizer, post_processor, decoders.Sequence(steps) if byte_fallback else decoders.Metaspace())


def complete(tokenizer, normalizer, pre_tokenizer, post_processor, decoder):
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = post_processor
    tokenizer.decoder = decoder
    return tokenizer


def all_tokenizers():
    bert = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    roberta = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    ending = processors.TemplateProcessing("$A </s>", "$A </s> $B:1 </s>:1", [("</s>", 2)])
    meta = pre_tokenizers.Metaspace
    mapped, spaces = normalizers.Precompiled(character_map()), normalizers.Replace(Regex(" {2,}"), " ")
    words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta()])
    compatible = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()])
    bare = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Prepend("the ")])
    return {
        "bert": word_piece(normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), bert),
        "bert_cased": word_piece(normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer(), bert),
        "whitespace": word_piece(bare, pre_tokenizers.Whitespace(), bert, cleanup=False),
        "punctuation": word_piece(None, pre_tokenizers.Punctuation("merged_with_previous"), bert),
        "xlm_roberta": unigram(normalizers.Sequence([mapped, spaces]), words, roberta),
        "t5": unigram(mapped, meta(), ending),
        "bytes": unigram(compatible, meta("\u2581", "first"), ending, byte_fallback=True),
        "whole": unigram(None, meta("\u2581", "never", False), ending),
    }


def answer(tokenizer, first, second=None):
    encoded = tokenizer.encode(first, second)
    return [encoded.ids, encoded.type_ids, tokenizer.decode(encoded.ids, skip_special_tokens=False)]


def answers(tokenizer):
    found = {"json": json.loads(tokenizer.to_str()), "pairs": []}
    tokenizer.encode_special_tokens = False
    found["control"] = answer(tokenizer, TEXTS[CONTROL])
    tokenizer.encode_special_tokens = True
    found["single"] = [answer(tokenizer, text) for text in TEXTS]
    for i, (limit, strategy, direction) in itertools.product((0, 2, 3), LIMITS):
        text, other = TEXTS[i], i + 2
        tokenizer.enable_truncation(limit, strategy=strategy, direction=direction)
        try:
            ids, types, _ = answer(tokenizer, text, TEXTS[other])
        except Exception:  # the text to truncate is too short
            ids = types = None
        found["pairs"].append([i, other, limit, strategy, direction, ids, types])
    return found


def main():
    result = {"texts": TEXTS, "control": CONTROL, "tokenizers": {name: answers(tokenizer) for name, tokenizer in all_tokenizers().items()}}
    path = pathlib.Path(__file__).with_name("encoder_tokenizers.json")
    path.write_text(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
