#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/safetensors.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

// Variants of BART folders other than those of transformers 5.
namespace hybrid_trainer::testing {
namespace {

/// A small version of facebook/bart-large-cnn's config.
constexpr const char* kOldConfig = R"({
  "_num_labels": 3, "activation_dropout": 0.0, "activation_function": "gelu",
  "add_bias_logits": false, "add_final_layer_norm": false,
  "architectures": ["BartForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 0,
  "classif_dropout": 0.0, "classifier_dropout": 0.0, "d_model": 16, "decoder_attention_heads": 4,
  "decoder_ffn_dim": 32, "decoder_layerdrop": 0.0, "decoder_layers": 2,
  "decoder_start_token_id": 2, "dropout": 0.1, "early_stopping": true,
  "encoder_attention_heads": 4, "encoder_ffn_dim": 32, "encoder_layerdrop": 0.0,
  "encoder_layers": 2, "eos_token_id": 2, "force_bos_token_to_be_generated": true,
  "forced_bos_token_id": 0, "forced_eos_token_id": 2, "gradient_checkpointing": false,
  "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "init_std": 0.02,
  "is_encoder_decoder": true, "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
  "length_penalty": 2.0, "max_length": 142, "max_position_embeddings": 20, "min_length": 56,
  "model_type": "bart", "no_repeat_ngram_size": 3, "normalize_before": false,
  "normalize_embedding": true, "num_beams": 4, "num_hidden_layers": 2, "output_past": true,
  "pad_token_id": 1, "prefix": " ", "replacing_rate": 0, "scale_embedding": false,
  "static_position_embeddings": false, "student_decoder_layers": null,
  "student_encoder_layers": null, "task_specific_params": {"summarization": {"num_beams": 4}},
  "torch_dtype": "float32", "use_cache": true, "vocab_size": 61})";

class BartFolder : public ::testing::Test {
 protected:
  BartFolder() {
    send_warnings_to(&said_);
    set_config(kOldConfig);
  }
  ~BartFolder() override { send_warnings_to(&std::cerr); }
  void set_config(const std::string& text) { write_text(folder_ / "config.json", text); }
  static std::string with(const std::string& key, const std::string& value) {
    std::string text = kOldConfig;
    const std::size_t at = text.find("\"" + key + "\": ");
    if (at == text.npos) return text.replace(1, 0, concat("\"", key, "\": ", value, ", "));
    const std::size_t begin = at + key.size() + 4;
    return text.replace(begin, text.find_first_of(",}", begin) - begin, value);
  }
  /// Writes the golden folder's weights with other names, without some (empty name), and `more`.
  void write_weights(const std::function<std::string(const std::string&)>& rename,
                     const std::vector<NamedTensor>& more = {}) {
    const SafetensorsFile file(concat(HT_TEST_DATA_DIR, "/bart_a/model.safetensors"));
    std::vector<NamedTensor> tensors(more);
    for (const SafetensorsEntry& entry : file.entries())
      if (const std::string name = rename(entry.name); !name.empty())
        tensors.push_back({name, file.load(entry.name, MemoryKind::kData, stream_)});
    write_safetensors(folder_ / "model.safetensors", tensors);
  }
  std::unique_ptr<LanguageModel> opened() {
    auto model = make_model(read_hugging_face_model_config(folder_.path(), 0), 1, stream_);
    read_hugging_face_weights(folder_.path(), *model, stream_);
    return model;
  }
  template <class Call>
  std::string refusal(const Call& call) {
    try {
      call();
    } catch (const DataError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  Tensor table(float added) const {
    const SafetensorsFile file(concat(HT_TEST_DATA_DIR, "/bart_a/model.safetensors"));
    const Tensor values = file.load("model.shared.weight", MemoryKind::kData, stream_);
    values.data<float>()[5] += added;
    return values;
  }
  const Stream stream_ = test_stream();
  TemporaryFolder folder_;
  std::ostringstream said_;  // warnings
};

TEST_F(BartFolder, ReadsPublishedKeysWithoutWarning) {
  const ModelConfig config = read_hugging_face_model_config(folder_.path(), 0);
  EXPECT_EQ(said_.str(), "");
  EXPECT_EQ(config.embedding_scale, 1);
  EXPECT_EQ(config.encoder.context, 20);
  const GenerationKeys keys = read_generation_keys({folder_.path()});
  EXPECT_EQ(keys.start, 2);
  EXPECT_NE(token_ids_in(folder_.path()).find("\"num_beams\":4"), std::string::npos);
  EXPECT_EQ(keys.rules.first, 0);
  EXPECT_EQ(keys.beams, 4);
  EXPECT_EQ(keys.most, 142);
  EXPECT_EQ(keys.search_end, EarlyStopping::kEnough);
  write_text(folder_ / "generation_config.json", R"({"num_beams": 2, "early_stopping": "never"})");
  const GenerationKeys apart = read_generation_keys({folder_.path()});
  EXPECT_EQ(apart.beams, 2);
  EXPECT_EQ(apart.search_end, EarlyStopping::kCertain);
  EXPECT_EQ(apart.rules.no_repeat_ngram, 0) << "config.json no longer applies";
  EXPECT_EQ(apart.start, 2) << "except for the start token";
}

TEST_F(BartFolder, RejectsUnsupportedKeysByName) {
  for (const auto& [key, value] : {std::pair("normalize_before", "true"),
                                   {"activation_function", "\"relu\""},
                                   {"add_final_layer_norm", "true"},
                                   {"normalize_embedding", "false"},
                                   {"static_position_embeddings", "true"},
                                   {"extra_pos_embeddings", "1"},
                                   {"tie_word_embeddings", "false"}}) {
    set_config(with(key, value));
    const std::string said = refusal([&] { read_hugging_face_model_config(folder_.path(), 0); });
    EXPECT_NE(said.find(key), std::string::npos) << said;
  }
  set_config(with("model_type", "\"mbart\""));
  const std::string said = refusal([&] { read_hugging_face_model_config(folder_.path(), 0); });
  EXPECT_NE(said.find("got \"mbart\""), std::string::npos) << said;
}

TEST_F(BartFolder, RoundTripKeepsEmbeddingScale) {
  set_config(with("scale_embedding", "true"));
  EXPECT_EQ(read_hugging_face_model_config(folder_.path(), 0).embedding_scale, 4);
  ModelConfig config = read_hugging_face_model_config(folder_.path(), 0);
  const auto model = make_model(config, 1, stream_);
  export_hugging_face(*model, nullptr, folder_ / "out", stream_);
  EXPECT_EQ(read_hugging_face_model_config(folder_ / "out", 0).embedding_scale, 4);
  config.embedding_scale = 3;
  const auto other = make_model(config, 1, stream_);
  const std::string said =
      refusal([&] { export_hugging_face(*other, nullptr, folder_ / "other", stream_); });
  EXPECT_NE(said.find("scale_embedding"), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));
}

/// facebook/bart-base is a BartModel: no prefix, no logits bias, and three copies of the table.
TEST_F(BartFolder, WithoutPrefixAndBiasHasZeroBias) {
  write_weights(
      [](const std::string& name) {
        return name.starts_with("model.") ? name.substr(6) : std::string();
      },
      {{"encoder.embed_tokens.weight", table(0)}, {"decoder.embed_tokens.weight", table(0)}});
  const auto model = opened();
  int biases = 0;
  model->visit_parameters([&](Parameter& parameter) {
    if (parameter.name() != "lm_head.bias") return;
    ++biases;
    EXPECT_EQ(values_of(parameter.master_in_place()), std::vector<double>(64));
  });
  EXPECT_EQ(biases, 1);
}

TEST_F(BartFolder, RejectsTableThatDiffersFromShared) {
  const auto same = [](const std::string& name) { return name; };
  write_weights(same, {{"model.decoder.embed_tokens.weight", table(1)}});
  const std::string said = refusal([&] { opened(); });
  EXPECT_NE(said.find("model.decoder.embed_tokens.weight differs"), std::string::npos) << said;
  write_weights(same, {{"lm_head.weight", table(0)}});
  EXPECT_NO_THROW(opened());
}

TEST_F(BartFolder, RejectsOtherMissingWeights) {
  write_weights([](const std::string& name) {
    return name.find("layernorm_embedding.bias") == name.npos ? name : std::string();
  });
  const std::string said = refusal([&] { opened(); });
  EXPECT_NE(said.find("layernorm_embedding.bias"), std::string::npos) << said;
}

}  // namespace
}  // namespace hybrid_trainer::testing
