"""The pipeline's files of a tiny BERT with pooling, a linear layer, normalization and prompts: sentence_pipeline/.

pip install torch transformers sentence-transformers; an argument keeps the whole folder, with the model, there.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

HERE = Path(__file__).parent
KEPT = [
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "3_Normalize/config.json",
]


def main(folder):
    torch.manual_seed(3)
    vocabulary = folder / "vocab.txt"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", ":", "boats", "float", "stones", "sink"]
    vocabulary.write_text("\n".join(words) + "\n")
    tokenizer = BertTokenizerFast(str(vocabulary), model_max_length=20)
    config = BertConfig(vocab_size=len(words), hidden_size=6, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=8, max_position_embeddings=24)
    body = folder / "body"
    BertModel(config).save_pretrained(body)
    tokenizer.save_pretrained(body)
    model = SentenceTransformer(
        modules=[
            Transformer(str(body)),
            Pooling(6, "cls"),
            Dense(6, 4, activation_function=torch.nn.GELU()),
            Normalize(),
        ],
        prompts={"query": "query: ", "document": ""},
        default_prompt_name="query",
        similarity_fn_name="dot",
        truncate_dim=3,
        device="cpu",
    )
    saved = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "saved"
    model.save(str(saved), create_model_card=False)
    for name in KEPT:
        to = HERE / "sentence_pipeline" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(saved / name, to)


with tempfile.TemporaryDirectory() as folder:
    main(Path(folder))
