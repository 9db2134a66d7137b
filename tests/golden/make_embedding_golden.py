"""A tiny EmbeddingGemma folder and its embeddings: embedding_gemma/.

pip install torch transformers sentence-transformers. The model is a Gemma 3 with bidirectional attention, mean pooling
and two linear layers. embeddings.txt has a line of token ids and a line with the embedding for each text; the last text
is longer than the window.
"""

import shutil
import tempfile
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import Gemma3TextConfig, Gemma3TextModel, PreTrainedTokenizerFast

HERE = Path(__file__).parent
WORDS = "<pad> <eos> <bos> <unk> query : boats float stones sink in deep water today".split()
TEXTS = ["boats float", "query : stones", "stones sink in deep water today : boats float in water"]


def main(folder):
    torch.manual_seed(5)
    words = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>",
        model_max_length=24)
    config = Gemma3TextConfig(
        vocab_size=len(WORDS), hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, max_position_embeddings=24, sliding_window=5, query_pre_attn_scalar=4,
        layer_types=["sliding_attention", "full_attention"], use_bidirectional_attention=True, initializer_range=0.5)
    Gemma3TextModel(config).save_pretrained(folder / "body")
    tokenizer.save_pretrained(folder / "body")
    model = SentenceTransformer(
        modules=[
            Transformer(str(folder / "body")),
            Pooling(8, "mean"),
            Dense(8, 12, bias=False, activation_function=torch.nn.Identity()),
            Dense(12, 6, bias=False, activation_function=torch.nn.Identity()),
            Normalize(),
        ],
        prompts={"query": "query : ", "document": ""},
        device="cpu",
    )
    saved, to = folder / "saved", HERE / "embedding_gemma"
    model.save(str(saved), create_model_card=False)
    shutil.rmtree(to, ignore_errors=True)
    for file in ["config.json", "model.safetensors", "modules.json", "config_sentence_transformers.json",
                 "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json",
                 "2_Dense/config.json", "2_Dense/model.safetensors", "3_Dense/config.json", "3_Dense/model.safetensors",
                 "4_Normalize/config.json"]:
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        if (saved / file).exists():
            shutil.copyfile(saved / file, to / file)
    loaded = SentenceTransformer(str(saved), device="cpu")
    with open(to / "embeddings.txt", "w") as out:
        for text in TEXTS:
            print(*loaded.tokenizer(text)["input_ids"], file=out)
            print(*(f"{value:.8g}" for value in loaded.encode(text).tolist()), file=out)


with tempfile.TemporaryDirectory() as folder:
    main(Path(folder))
