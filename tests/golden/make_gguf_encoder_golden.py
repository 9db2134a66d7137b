"""A tiny BERT with mean pooling as llama.cpp's converter writes it, and its embeddings: gguf_encoder/.

usage: make_gguf_encoder_golden.py LLAMA_CPP     a checkout of ggml-org/llama.cpp

pip install torch transformers sentence-transformers gguf
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

HERE = Path(__file__).parent
TEXTS = ["Boats float.", "stones  sinking", "a Boat", "", "unknown boats 浮"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "a", "boat", "##s", "float", "stone", "sink", "##ing", "浮"]


def convert(llama_cpp, folder, output):
    """Runs the converter, which refuses tokenizers other than those of published models."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import convert_hf_to_gguf as program
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "default"
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(output), "--outtype", "f32"]
    program.main()


def main(scratch):
    torch.manual_seed(5)
    vocabulary = scratch / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS) + "\n")
    tokenizer = BertTokenizerFast(str(vocabulary), model_max_length=16)
    config = BertConfig(vocab_size=len(WORDS), hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=6,
                        max_position_embeddings=16, layer_norm_eps=1e-7, initializer_range=0.5)
    BertModel(config).save_pretrained(scratch / "body")
    tokenizer.save_pretrained(scratch / "body")
    model = SentenceTransformer(modules=[Transformer(str(scratch / "body")), Pooling(4, "mean")], device="cpu")
    model.save(str(scratch / "saved"), create_model_card=False)
    to = HERE / "gguf_encoder"
    to.mkdir(exist_ok=True)
    convert(Path(sys.argv[1]).resolve(), scratch / "saved", to / "model.gguf")
    rows = [{"text": text, "embedding": model.encode(text, normalize_embeddings=False).tolist()} for text in TEXTS]
    (to / "expected.json").write_text(json.dumps(rows, ensure_ascii=False) + "\n")


with tempfile.TemporaryDirectory() as name:
    main(Path(name))
