#!/usr/bin/env python3
"""Writes tokenizers/ and tokenizer_pipelines.json next to this script; README.md describes their content.

Each tokenizer.json is a tiny BPE with the pipeline of a common model. The ids and texts come from
tokenizers.Tokenizer.from_file. `fuzz PROGRAM COUNT` instead compares a program with the library on random texts:
given a file of these, it answers each line "text in hex|ids" with "ids|ids with control tokens|their text in hex|the
given ids' text".
"""

import json
import pathlib
import random
import subprocess
import sys

from make_tokenizer_golden import CODE, ENGLISH, OTHER
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import bytes_to_unicode

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "tokenizers"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"\p{N}" + REST
SPACE = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACE
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(behind):
    before = r"[^\r\n\p{L}\p{N}]?"
    return f"{before}[{UPPER}]*[{LOWER}]+{behind}|{before}[{UPPER}]+[{LOWER}]*{behind}|"


TEKKEN = cased("") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACE
GPT4O = cased("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACE
BLANK = "\u2581"
MISSING = (4, 6, 19, 20, 22, 29, 192, 193, 245, 0xA9, 0xE4)  # those of SmolLM2 and StarCoder, and two that occur in texts
NUMBERS = "1234 5678 1999 2024 11111 0.5 "


def trained(pre_tokenizer, normalizer=None, size=420, byte_tokens=False, alphabet=True):
    """The model's part of a tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] if byte_tokens else []
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
        limit_alphabet=256 if alphabet else 90,
        show_progress=False,
    )
    tokenizer.train_from_iterator((ENGLISH + CODE + OTHER + NUMBERS * 3).splitlines(keepends=True), trainer)
    return json.loads(tokenizer.to_str())["model"]


def added(token, content, **flags):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}
    return {"id": token, "content": content, **flags}


def spec(model, pre_tokenizer, decoder, normalizer=None, post_processor=None, tokens=()):
    """`tokens` are names, or names with flags. Their ids follow those of the vocabulary."""
    next_id, entries = len(model["vocab"]), []
    for token in tokens:
        content, flags = (token, {}) if isinstance(token, str) else token
        known = model["vocab"].get(content)
        entries.append(added(next_id if known is None else known, content, **flags))
        next_id += known is None
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": entries,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }


def template(start, ids, end=()):
    names = [*start, None, *end]
    piece = [{"SpecialToken": {"id": n, "type_id": 0}} if n else {"Sequence": {"id": "A", "type_id": 0}} for n in names]
    tokens = {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in zip([*start, *end], ids)}
    pair = piece + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": piece, "pair": pair, "special_tokens": tokens}


def byte_level(regex=True, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def metaspace(scheme, splits=False):
    return {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": scheme, "split": splits}


def of_pattern(pattern):
    words = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    return spec(trained(words), sequence("pretokenizers", split(pattern), byte_level(regex=False)), byte_level(), None, None, ["<|im_start|>"])


def without_bytes(model, renumber=True):
    """A model without tokens for some bytes. With `renumber`, its ids have no gaps."""
    symbols = {bytes_to_unicode()[byte] for byte in MISSING}
    kept = {token: place for token, place in model["vocab"].items() if not symbols & set(token)}
    merges = [merge for merge in model["merges"] if not symbols & set("".join(merge))]
    if renumber:
        kept = {token: place for place, token in enumerate(kept)}
    return {**model, "vocab": kept, "merges": merges}


def tokenizers():
    """Each pipeline by name."""
    words = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    llama3 = trained(
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    )
    # A vocabulary entry that no merge produces: only ignore_merges finds it.
    llama3_model = {**llama3, "ignore_merges": True, "vocab": {**llama3["vocab"], "\u0120qqq": len(llama3["vocab"])}}
    pieces = trained(
        pre_tokenizers.Metaspace(BLANK, "always"), normalizers.Replace("\n", "\n"), 640, byte_tokens=True, alphabet=False
    )
    pieces = {**pieces, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    partial = {token: place for place, token in enumerate(t for t in pieces["vocab"] if t != "<0xF0>")}
    free = [f"<|reserved_{i}|>" for i in range(3)]
    to_text = sequence("decoders", replace(BLANK, " "), {"type": "ByteFallback"}, {"type": "Fuse"})
    llama_text = sequence("decoders", *to_text["decoders"], {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    llama_start = template(["<s>"], [1])
    edges = [
        ("<mask>", {"lstrip": True}),
        ("<r>", {"rstrip": True}),
        ("word", {"single_word": True, "special": False}),
        ("words", {"special": False}),
        ("\n\n", {"special": False}),
        ("\n\n\n", {"special": False}),
        ("caf\u00e9 x", {"normalized": True, "special": False}),
        ("the cat", {"normalized": True, "special": False, "single_word": True, "lstrip": True, "rstrip": True}),
        ("\u00e9", {"special": False}),
        "<|im_start|>",
    ]
    nfc = {"type": "NFC"}
    legacy = sequence("normalizers", {"type": "Prepend", "prepend": BLANK}, replace(" ", BLANK))
    qwen_words = sequence("pretokenizers", split(QWEN2), byte_level(regex=False))
    return {
        "gpt2_prefix": spec(words, byte_level(prefix=True), byte_level(), None, byte_level(), ["<|endoftext|>"]),
        "llama3": spec(
            llama3_model,
            sequence("pretokenizers", split(LLAMA3), byte_level(regex=False)),
            byte_level(),
            None,
            sequence("processors", byte_level(), template(["<|begin_of_text|>"], [len(llama3_model["vocab"])])),
            ["<|begin_of_text|>", "<|end_of_text|>", *free],
        ),
        "qwen2": spec(
            words, qwen_words, byte_level(), nfc, byte_level(),
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>", ("<tool_call>", {"special": False})],
        ),
        "smollm2": spec(
            words, sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level()), byte_level(),
            None, None, ["<|endoftext|>", "<|im_start|>"],
        ),
        "neox": spec(
            words, {key: value for key, value in byte_level().items() if key != "use_regex"}, byte_level(), nfc, byte_level(),
            ["<|endoftext|>", "<|padding|>", *[(" " * n, {"normalized": True, "special": False}) for n in range(24, 1, -1)]],
        ),
        "edges": spec(words, qwen_words, byte_level(), nfc, None, edges),
        "llama2_legacy": spec(pieces, None, llama_text, legacy, llama_start, ["<unk>", "<s>", "</s>"]),
        "llama2_metaspace": spec(pieces, metaspace("first"), llama_text, None, llama_start, ["<unk>", "<s>", "</s>", *edges]),
        "metaspace_always": spec(
            {**pieces, "byte_fallback": False}, metaspace("always", True), metaspace("always"), None,
            template(["<s>"], [1, 2], ["</s>"]), [("<unk>", {"normalized": True}), "<s>", "</s>"],
        ),
        "metaspace_never": spec(
            {**pieces, "fuse_unk": False, "vocab": partial, "merges": pieces["merges"]},
            sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, metaspace("never", True)),
            metaspace("never"), nfc, None, ["<unk>", "<s>", "</s>"],
        ),
        "gemma": spec(
            pieces, split(" ", "MergedWithPrevious", kind="String"), to_text, replace(" ", BLANK), llama_start,
            ["<unk>", "<s>", "</s>", "<start_of_turn>", *[("\n" * n, {"special": False}) for n in (2, 3, 4)],
             (BLANK * 2, {"special": False}), ("<table>", {"special": False})],
        ),
        "splits": spec(
            {**pieces, "ignore_merges": True},
            sequence("pretokenizers", split("--", "Removed", kind="String"), split("a", "MergedWithNext", kind="String"),
                     split("e", "Contiguous", kind="String"), split("o", "MergedWithPrevious", True, "String"),
                     split(" ", "Isolated", kind="String"), metaspace("first")),
            to_text, None, None, ["<unk>", "<s>", "</s>"],
        ),
        "qwen35": of_pattern(QWEN35),
        "mistral_nemo": of_pattern(TEKKEN),
        "gpt4o": of_pattern(GPT4O),
        "missing_bytes": spec(without_bytes(words), byte_level(), byte_level(), None, None, ["<|endoftext|>"]),
        "missing_bytes_unk": spec(
            {**without_bytes({**words, "vocab": {**words["vocab"], "<unk>": len(words["vocab"])}}), "unk_token": "<unk>"},
            byte_level(), byte_level(), None, None, ["<unk>", "<|endoftext|>"],
        ),
        "holes": holes(words),
        "no_decoder": spec(pieces, metaspace("first"), None, None, llama_start, ["<unk>", "<s>", "</s>"]),
    }  # fmt: skip


def holes(words):
    """Ids without tokens, pairs that two merges join, a token that no bytes produce, and ids in the file that differ
    from the library's."""
    model = without_bytes(words, renumber=False)
    model["vocab"] |= {"<unk>": 900, "\u4e2d a": 901, "": 905}
    model["merges"] += model["merges"][3:40:3]
    model |= {"unk_token": "<unk>", "fuse_unk": True}
    pipeline = spec(model, byte_level(), byte_level(), None, None, ["<|endoftext|>", "<|im_start|>", "<unk>"])
    pipeline["added_tokens"][1]["id"] = 1000
    pipeline["added_tokens"].append(pipeline["added_tokens"][0])  # a second time
    return pipeline


HOSTILE = [
    "", " ", "  ", "\n", "\r\n", "a", "'\u017f 's 'S x'\u017fx I'LL 'Ll 'rE 'vE '\u212a", "1234567 12 1 \u0663\u0663\u0663\u0663\u00bd 1a23",
    "a\r\n\r\nb\r\r\n c \r\n  d", "!!!\r\n\n x ...\n\n\n", "x \t\n\t y\u00a0\u00a0z\u2028\u2028w\u3000\u3000", " \u00a0 a", "\u0378\u0378 \U0003fffd a\u0378b",
    "\u1c89\u1c8a \U000105c0 \U00011de0 \U00016ff4", "e\u0301 a\u0323\u0307 a\u0307\u0323 \u1100\u1161\u11a8 \u212b\u2126 \ufb01 \u0344 \u0958 \U0001d15e",
    "a\u0898\u0316 a\u1715\u0334 \U00011935\U00011930 \U000105d2\u0307", "\ufeffx\u200b\u200d", "nul\0s", "\U0001f469\u200d\U0001f467 \U0001f600\U0001f600",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>", "<s>a</s> <s>  b</s><unk>x", "<tool_call> </tool_call>", " <mask> <mask>x <r>  y<r>",
    "word words wordword sword _word word_ (word) word", "the cat  the cat thecat xthe cat", "cafe\u0301 x caf\u00e9 x", "\n\n\n\n\n\n\n \n\n", BLANK, BLANK * 5,
    "a" + BLANK + " b " + BLANK, "<start_of_turn>x <table>", "a--b----c e aee eea oo o", "<0x41><0x0A>", " qqq qqq qqqq", "<|begin_of_text|><|reserved_1|>",
    "a" * 700, " " * 300, "=" * 300 + "\n" + "ab" * 300, "\U0001f600" * 40, "\u4e2d\u6587" * 60 + "\u3002\n", "hello  world   x", "The year 2024, isn't it? We'll see; they'VE",
]  # fmt: skip
POOL = ["a", "b", "e", "o", "the", " the", "in", "ing", "'s", "'S", "'\u017f", "'ll", "'RE", "'", "1", "23", "4567", "\u0663", "\u00bd", " ", " ", "  ", "\n",
        "\n\n", "\r\n", "\r", "\t", "\u00a0", "\u2028", "\u3000", "\u0085", "-", "--", "...", "!", "(", "_", "\u00e9", "e\u0301", "\u0323", "\u0307", "\u0334",
        "\u1100", "\u1161", "\u11a8", "\uac00", "\u4e2d", "\u65e5", "\u0436", "\u05d0", "\U0001f600", "\U0001d400", "\u0378", "\u1c89", "\U00011de0",
        "\u0898", "\U00011935", "\U00011930", BLANK, BLANK * 2, "<s>", "</s>", "<unk>", "<mask>", "<r>", "word", "words", "the cat", "caf\u00e9 x", "cafe\u0301 x",
        "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "<table>", "<0x41>", "<", ">", "|", "\0", "\ufffd", "\ufeff", "qqq", "x", "A"]  # fmt: skip


MORE_TEXTS = [
    "camelCaseWORDS XMLHttpRequest ABCdef \u01c5x A\u01c5b \u00aabc\u00aaD AB\u00aaCD \u02b0a A\u02b0A aAaA Aa1Bb22cC333 \u00c9t\u00c9 \u0416\u0436",
    "//a/b /\n/ !/\n/x ...//\r\n/ */ https://a.b/c?d=e/ \n/\n //\n\nx", "\u0301\u0301a A\u0301B e\u0301E \u0301 !\u0301! \n\u0301x 1\u0301 \u0301\u0301",
    "\x04\x06a\x13\x14\x16\x1d\u00e9 \u4e2d\u00e4 \u00c0x \x04", "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u064e\u0651\u0629",
    "McDonald'S iPhone's IT'S it's'll 's'S we'VEx DON'T \u0130'm", "\u4e2d a \u4e2d a<unk><|im_start|>\u00e9",
]  # fmt: skip
MORE_POOL = ["A", "AB", "aB", "\u0416", "\u01c5", "\u00aa", "\u02b0", "\u0301", "\u093f", "\u0940", "\u0e32", "/", "//", "\x04", "\x06", "\u00c0", "\u4e2d a"]


def random_text(picker, pool=POOL):
    if picker.random() < 0.15:
        ranges = [(0, 0x300), (0x300, 0x3000), (0x3000, 0xD800), (0xE000, 0x110000)]
        return "".join(chr(picker.randrange(*picker.choice(ranges))) for _ in range(picker.randint(1, 30)))
    some = picker.sample(pool, picker.randint(2, 25))
    return "".join(picker.choices(some, k=picker.randint(1, 40)))


def answers(tokenizer, text):
    """Ids as text, ids with special tokens, and the former with the template's tokens."""
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    whole = tokenizer.encode(text, add_special_tokens=True).ids
    tokenizer.encode_special_tokens = False
    return plain, tokenizer.encode(text, add_special_tokens=False).ids, whole


def random_ids(tokenizer, picker):
    return [picker.randrange(tokenizer.get_vocab_size()) for _ in range(picker.randint(0, 12))]


def decoded(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False)


def write():
    FOLDER.mkdir(exist_ok=True)
    texts = HOSTILE + [random_text(random.Random(seed)) for seed in range(30)] + MORE_TEXTS
    golden = {"texts": [text.encode().hex() for text in texts], "tokenizers": {}}
    for name, content in tokenizers().items():
        path = FOLDER / f"{name}.json"
        if not path.exists():  # training breaks ties among equally frequent letters randomly
            path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        tokenizer = Tokenizer.from_file(str(path))
        found = [answers(tokenizer, text) for text in texts]
        picker = random.Random(3)
        some_ids = [random_ids(tokenizer, picker) for _ in range(20)]
        golden["tokenizers"][name] = {
            "ids": [plain for plain, _, _ in found],
            "ids_with_control": {place: control for place, (plain, control, _) in enumerate(found) if control != plain},
            "ids_of_document": found[1][2],
            "decoded": [decoded(tokenizer, plain).encode().hex() for plain, _, _ in found],
            "random_ids": some_ids,
            "random_decoded": [decoded(tokenizer, ids).encode().hex() for ids in some_ids],
        }
    rows = ",\n".join(f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in golden["tokenizers"].items())
    head = json.dumps(golden["texts"], separators=(",", ":"))
    path = HERE / "tokenizer_pipelines.json"
    path.write_text(f'{{"texts":{head},\n"tokenizers":{{\n{rows}\n}}}}\n')
    print(len(texts), "texts,", len(golden["tokenizers"]), "tokenizers,", path.stat().st_size, "bytes")


def fuzz(program, count):
    wrong = 0
    for path in sorted(FOLDER.glob("*.json")):
        tokenizer = Tokenizer.from_file(str(path))
        picker = random.Random(path.stem + str(count))
        texts = [random_text(picker, POOL + MORE_POOL * 3) for _ in range(count)]
        some_ids = [random_ids(tokenizer, picker) for _ in range(count)]
        lines = [f"{text.encode().hex()}|{' '.join(map(str, ids))}\n" for text, ids in zip(texts, some_ids)]
        output = subprocess.run([program, str(path)], input="".join(lines), stdout=subprocess.PIPE, text=True, check=True).stdout
        for text, ids, line in zip(texts, some_ids, output.splitlines(), strict=True):
            plain, control, _ = answers(tokenizer, text)
            wanted = [plain, control, decoded(tokenizer, plain), decoded(tokenizer, ids)]
            parts = line.split("|")
            got = [[*map(int, part.split())] for part in parts[:2]] + [bytes.fromhex(part).decode(errors="replace") for part in parts[2:]]
            if got != wanted:
                wrong += 1
                place = next(i for i in range(4) if got[i] != wanted[i])
                if wrong < 10:
                    print(path.stem, ascii(text), ids, "answer", place, "\n  got ", got[place], "\n  want", wanted[place])
        print(path.stem, count, "texts", flush=True)
    print(wrong, "wrong")


if __name__ == "__main__":
    fuzz(sys.argv[2], int(sys.argv[3])) if sys.argv[1:2] == ["fuzz"] else write()
