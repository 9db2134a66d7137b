"""Vocabulary that Hugging Face's tokenizers train for WordPiece: word_piece_training.json.

pip install tokenizers

tokenizers numbers the continuing characters in the order of a hash map, which also breaks ties between equally
frequent pairs. The counts of the words are therefore random, and the script checks that ten trainings give the same
tokens.
"""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZE = 340


def train(lines):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZE, min_frequency=2, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return sorted(tokenizer.get_vocab())


def main():
    draw = random.Random(4)
    syllables = ["la", "ber", "Tin", "ó", "wer", "st", "ün", "ка", "12", "ing", "e", "po", "r", "zza"]
    lines = []
    for _ in range(300):
        word = "".join(draw.choices(syllables, k=draw.randint(1, 4)))
        word += draw.choice(["", "", "", ",", "-x", " 世界", "'s"])
        lines.append([word, draw.randint(2, 4000)])
    texts = [" ".join([word] * count) for word, count in lines]
    found = {json.dumps(train(draw.sample(texts, len(texts)))) for _ in range(10)}
    assert len(found) == 1, "ties decide"
    vocabulary = json.loads(found.pop())
    assert len(vocabulary) <= SIZE
    golden = {"size": len(vocabulary), "words": lines, "vocabulary": vocabulary}
    (HERE / "word_piece_training.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
