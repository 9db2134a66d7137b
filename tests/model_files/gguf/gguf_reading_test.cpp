#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/model_family.h"
#include "memory/quantized_weight.h"
#include "src/core/messages.h"
#include "src/data/chat/chat_template.h"
#include "src/gguf/gguf_file.h"
#include "src/gguf/gguf_writer.h"
#include "src/model_files/gguf/gguf_export.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// GGUF files in place of folders; scripts/peers/compare_gguf_reading.py compares llama.cpp's files.
namespace hybrid_trainer::testing {
namespace {

ModelConfig small_model(const std::string& family) {
  ModelConfig model{.family = family, .layers = 2, .heads = 4, .width = 32, .context = 64};
  model.vocabulary = 604;
  if (family == "gpt2") return model;
  model.kv_heads = 2;
  model.head_size = 12;
  model.intermediate_size = 40;
  if (family == "lfm2") model.layers = 3;
  if (family.starts_with("gemma")) {
    model.tied_head = true;
    model.window = 8;
    model.window_layers = "wa";
    model.query_scalar = 12;
    if (family == "gemma3") model.window_rope_theta = 1e4;
    if (family == "gemma2") model.attention_cap = 50, model.logit_cap = 30;
  }
  return resolved_model_config(model);
}

class GgufReading : public ::testing::Test {
 protected:
  GgufReading() { send_warnings_to(&said_); }
  ~GgufReading() override { send_warnings_to(&std::cerr); }
  /// Writes a file of this model.
  std::filesystem::path written(const ModelConfig& config) {
    const auto model = make_model(config, 1, stream_);
    const auto path = folder_ / concat("model", ++files_, ".gguf");
    export_gguf(*model, {*tokenizer_, R"({"bos_token_id":1,"eos_token_id":0})"}, "f32", path,
                stream_);
    return path;
  }
  /// Writes a file with these values and a token table.
  std::filesystem::path file_of(const std::vector<GgufPair>& values) {
    const auto path = folder_ / concat("values", ++files_, ".gguf");
    write_gguf(path, values, {{.name = "token_embd.weight", .shape = {4, 32}}}, [&](std::size_t) {
      return host_tensor({4, 32});
    });
    return path;
  }
  std::string refusal(const std::vector<GgufPair>& values) {
    const auto path = file_of(values);
    return message_of<DataError>([&] { read_hugging_face_model_config(path, 0); });
  }
  /// The values of a small Llama, followed by `values`.
  static std::vector<GgufPair> llama_with(std::vector<GgufPair> values) {
    for (const auto& [key, count] : {std::pair("block_count", 1),
                                     {"context_length", 32},
                                     {"embedding_length", 8},
                                     {"feed_forward_length", 16},
                                     {"attention.head_count", 2}})
      values.push_back(gguf_count(concat("llama.", key), count));
    values.push_back(gguf_number("llama.attention.layer_norm_rms_epsilon", 1e-5));
    values.push_back(gguf_text("general.architecture", "llama"));
    return values;
  }
  ModelConfig model_with(std::vector<GgufPair> values) {
    return read_hugging_face_model_config(file_of(llama_with(std::move(values))), 0);
  }
  Tensor host_tensor(const Shape& shape) const {
    return Tensor::zeros(shape, DType::kF32, MemoryKind::kWorkspace, stream_);
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder folder_;
  std::ostringstream said_;
  int files_ = 0;
  const std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(concat(HT_TEST_DATA_DIR, "/bpe_small"));
};

class GgufRoundTrip : public GgufReading, public ::testing::WithParamInterface<const char*> {};

TEST_P(GgufRoundTrip, RestoresModelConfig) {
  ModelConfig config = small_model(GetParam());
  const auto path = written(config);
  if (config.family == "mistral") {  // GGUF has one architecture for both
    config.family = "llama";
    config.window_layers.clear();
  }
  const ModelConfig read = read_hugging_face_model_config(path, 0);
  const auto wanted = texts_of_keys(config), found = texts_of_keys(read);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool is_kept = wanted[i].first != "initializer_range" && wanted[i].first != "dropout";
    EXPECT_TRUE(!is_kept || found[i] == wanted[i]) << wanted[i].first << ": " << found[i].second;
  }
}

TEST_P(GgufRoundTrip, RestoresWrittenWeights) {
  const ModelConfig config = small_model(GetParam());
  if (config.family == "mistral") GTEST_SKIP() << "mistral files are read as Llama models";
  const auto path = written(config);
  const auto model = make_model(config, 1, stream_), other = make_model(config, 2, stream_);
  read_hugging_face_weights(path, *other, stream_);
  std::map<std::string, Tensor> wanted;
  model->visit_parameters(
      [&](Parameter& parameter) { wanted[parameter.name()] = parameter.master_in_place(); });
  other->visit_parameters([&](Parameter& parameter) {
    EXPECT_LT(relative_error(values_of(parameter.master_in_place()),
                             values_of(wanted.at(parameter.name()))),
              1e-6)
        << parameter.name();
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GgufRoundTrip,
                         ::testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2",
                                           "gemma3", "lfm2", "ministral3"),
                         [](const auto& info) { return std::string(info.param); });

/// Source of the keys: llama.cpp, conversion/mistral.py.
TEST_F(GgufReading, RestoresGrowthOfQueries) {
  ModelConfig config = small_model("ministral3");
  config.rope_scaling = {.type = "yarn",
                         .factor = 16,
                         .original_context = 32,
                         .mscale = 1,
                         .mscale_all_dim = 1,
                         .query_growth = 0.1};
  const auto path = written(config);
  const GgufFile file(path);
  EXPECT_EQ(file.text("general.architecture"), "mistral3");
  EXPECT_FLOAT_EQ(static_cast<float>(*file.number("mistral3.attention.temperature_scale")), 0.1F);
  EXPECT_EQ(file.number("mistral3.rope.scaling.yarn_log_multiplier"), 1);
  const ModelConfig read = read_hugging_face_model_config(path, 0);
  EXPECT_EQ(read.rope_scaling.query_growth, 0.1);
  EXPECT_EQ(read.rope_scaling.mscale, 1);
  EXPECT_EQ(read.rope_scaling.mscale_all_dim, 1);
  EXPECT_EQ(read.rope_scaling.original_context, 32);
  config.rope_scaling.mscale_all_dim = 0.5;
  EXPECT_THROW(written(config), DataError);
  ModelConfig llama = small_model("llama");
  llama.rope_scaling.query_growth = 0.1;
  EXPECT_THROW(written(llama), DataError);
}

TEST_F(GgufReading, RestoresLlama3RopeScaling) {
  ModelConfig config = small_model("llama");
  config.rope_theta = 5e5;
  config.rope_scaling = {.type = "llama3",
                         .factor = 8,
                         .original_context = 32,
                         .low_frequency = 1,
                         .high_frequency = 4};
  const ModelConfig read = read_hugging_face_model_config(written(config), 0);
  EXPECT_EQ(read.rope_scaling.type, "llama3");
  EXPECT_EQ(read.rope_scaling.factor, 8);
  EXPECT_EQ(read.rope_scaling.original_context, 32);
}

TEST_F(GgufReading, TokenizerGivesSameTokens) {
  const auto path = written(small_model("llama"));
  const auto read = load_tokenizer(path);
  ASSERT_TRUE(contains_tokenizer(path));
  for (const char* text : {"The cat sat on the mat.", "  two  blanks\n\nand 1234 lines",
                           "na\xC3\xAFve \xE2\x82\xAC 5 \xF0\x9F\x98\x80", "<|endoftext|>"}) {
    EXPECT_EQ(read->encode(text), tokenizer_->encode(text)) << text;
    EXPECT_EQ(read->decode(read->encode(text)), text);
  }
  EXPECT_EQ(read->end_of_text(), 0);
  EXPECT_EQ(end_token_ids_in(path), (std::vector<std::int32_t>{0, 599}))
      << "eos_token_id and <|endoftext|>, at which llama.cpp also stops";
}

TEST_F(GgufReading, ScoredTokenizerMergesBestPairFirst) {
  const auto path = folder_ / "scores.gguf";
  const std::vector<std::string> tokens{"<unk>",
                                        "<s>",
                                        "</s>",
                                        "\xE2\x96\x81",
                                        "a",
                                        "b",
                                        "c",
                                        "ab",
                                        "bc",
                                        "abc",
                                        "\xE2\x96\x81"
                                        "a"};
  std::vector<double> scores(tokens.size(), 0);
  for (std::size_t id = 7; id < tokens.size(); ++id) scores[id] = -static_cast<double>(id);
  const auto write = [&](std::vector<double> of_tokens) {
    std::filesystem::remove(path);
    write_gguf(
        path,
        {gguf_text("tokenizer.ggml.model", "llama"), gguf_texts("tokenizer.ggml.tokens", tokens),
         gguf_numbers("tokenizer.ggml.scores", std::move(of_tokens)),
         gguf_integers("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}),
         gguf_count("tokenizer.ggml.unknown_token_id", 0),
         gguf_count("tokenizer.ggml.bos_token_id", 1), gguf_count("tokenizer.ggml.eos_token_id", 2),
         gguf_flag("tokenizer.ggml.add_space_prefix", false),
         gguf_text("tokenizer.chat_template", "{{ messages[0].content }}")},
        {}, [&](std::size_t) { return Tensor(); });
    return load_tokenizer(path);
  };
  const auto tokenizer = write(scores);
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(tokenizer->encode("abc"), Ids{9});
  EXPECT_EQ(tokenizer->encode("abab"), (Ids{7, 7}));
  EXPECT_EQ(tokenizer->encode("b abc"), (Ids{5, 3, 9})) << "ab comes before \xE2\x96\x81"
                                                           "a";
  EXPECT_EQ(tokenizer->template_start(), Ids{1});
  EXPECT_EQ(write(std::vector<double>(tokens.size(), -1000))->encode("b abc"), (Ids{5, 3, 9}))
      << "equal scores, as written by some converters";
  const ChatFiles chat = read_chat_files(GgufFile(path));
  ASSERT_TRUE(chat.chat_template);
  EXPECT_EQ(chat.special_token("eos_token"), "</s>");
}

TEST_F(GgufReading, RejectsUnsupportedOrIncompleteFiles) {
  const auto with = [](const std::string& architecture) {
    return std::vector<GgufPair>{gguf_text("general.architecture", architecture)};
  };
  EXPECT_TRUE(
      contains(refusal(with("nomic-bert")),
               "architecture \"nomic-bert\", but only these are supported in GGUF files: gpt2"));
  std::vector<GgufPair> part = with("llama");
  part.push_back(gguf_count("split.count", 3));
  EXPECT_TRUE(contains(refusal(part), "is one of 3 files of a model; join them first"));
  std::vector<GgufPair> adapter = with("llama");
  adapter.push_back(gguf_text("general.type", "adapter"));
  EXPECT_TRUE(contains(refusal(adapter), "\"adapter\""));
  std::vector<GgufPair> some = with("llama");
  EXPECT_TRUE(contains(refusal(some), "llama.attention.head_count is missing"));
  some.push_back(gguf_count("llama.attention.head_count", 2));
  some.push_back(gguf_count("llama.embedding_length", 8));
  EXPECT_TRUE(contains(refusal(some), "llama.attention.layer_norm_rms_epsilon is missing"));
  std::vector<GgufPair> mixture = with("qwen2");
  mixture.push_back(gguf_count("qwen2.expert_count", 8));
  EXPECT_TRUE(contains(refusal(mixture), "a mixture of 8 experts"));
}

TEST_F(GgufReading, ReadsOrRejectsKeysOfMixtures) {
  const std::vector<GgufPair> experts{gguf_count("llama.expert_count", 8),
                                      gguf_count("llama.expert_used_count", 2)};
  const ModelConfig model = model_with(experts);
  EXPECT_EQ(model.family, "mixtral");
  EXPECT_EQ(model.experts.count, 8);
  EXPECT_EQ(model.experts.chosen, 2);
  EXPECT_EQ(model.experts.intermediate_size, 16);
  for (const GgufPair& pair : {gguf_count("llama.expert_group_count", 4),
                               gguf_count("llama.expert_shared_feed_forward_length", 8),
                               gguf_count("llama.attention.sliding_window", 4)}) {
    std::vector<GgufPair> values = experts;
    values.push_back(pair);
    const std::string key = pair.first.substr(std::string("llama.").size());
    EXPECT_TRUE(contains(refusal(llama_with(values)), key)) << key;
  }
}

TEST_F(GgufReading, HonorsOrRejectsKeysThatAffectResults) {
  for (const GgufPair& pair :
       {gguf_flag("llama.attention.causal", false), gguf_number("llama.logit_scale", 2),
        gguf_number("llama.rope.scaling.attn_factor", 2),
        gguf_number("llama.rope.scaling.yarn_beta_fast", 16),
        gguf_number("llama.attention.clamp_kqv", 8), gguf_number("llama.attention.scale", 0.5),
        gguf_flag("llama.use_parallel_residual", true),
        gguf_text("llama.rope.scaling.type", "longrope")})
    EXPECT_TRUE(contains(refusal(llama_with({pair})), pair.first)) << pair.first;
  const ModelConfig plain = model_with(
      {gguf_flag("llama.attention.causal", true), gguf_number("llama.rope.scaling.attn_factor", 1),
       gguf_count("llama.expert_count", 0), gguf_text("llama.rope.scaling.type", "none"),
       gguf_number("llama.rope.scaling.factor", 4)});
  EXPECT_EQ(plain.rope_scaling.type, "default");
  EXPECT_EQ(said_.str(), "");
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const ModelConfig linear = model_with({gguf_number(key, 4)});
    EXPECT_EQ(linear.rope_scaling.type, "linear") << key << ", without a type";
    EXPECT_EQ(linear.rope_scaling.factor, 4);
  }
  const ModelConfig yarn = model_with({gguf_text("llama.rope.scaling.type", "yarn"),
                                       gguf_number("llama.rope.scaling.factor", 4),
                                       gguf_number("llama.rope.scaling.yarn_beta_fast", 32)});
  EXPECT_EQ(yarn.rope_scaling.original_context, 32);
  model_with({gguf_number("llama.color", 4)});
  EXPECT_TRUE(contains(said_.str(), "ignored unknown keys: \"llama.color\""));
}

TEST_F(GgufReading, RejectsBytePairEncodingWithoutMerges) {
  const auto path = folder_ / "merges.gguf";
  write_gguf(
      path,
      {gguf_text("tokenizer.ggml.model", "gpt2"), gguf_text("tokenizer.ggml.pre", "gpt-2"),
       gguf_texts("tokenizer.ggml.tokens", {"a"}), gguf_integers("tokenizer.ggml.token_type", {1})},
      {}, [&](std::size_t) { return Tensor(); });
  EXPECT_TRUE(contains(message_of<DataError>([&] { load_tokenizer(path); }),
                       "tokenizer.ggml.merges is missing"));
}

TEST_F(GgufReading, RejectsUnknownPreTokenizer) {
  const auto path = folder_ / "words.gguf";
  write_gguf(
      path,
      {gguf_text("tokenizer.ggml.model", "gpt2"), gguf_text("tokenizer.ggml.pre", "viking"),
       gguf_texts("tokenizer.ggml.tokens", {"a"}), gguf_integers("tokenizer.ggml.token_type", {1})},
      {}, [&](std::size_t) { return Tensor(); });
  EXPECT_TRUE(contains(message_of<DataError>([&] { load_tokenizer(path); }), "\"viking\""));
}

/// A Llama in blocks of 32, except its norms.
class QuantizedGguf : public GgufReading {
 protected:
  QuantizedGguf() {
    config_ = {.family = "llama", .layers = 2, .heads = 4, .width = 64, .context = 64};
    config_.vocabulary = 604;
    config_.kv_heads = 2;
    config_.intermediate_size = 96;
    const auto model = make_model(config_, 1, stream_);
    export_gguf(*model, {*tokenizer_}, "q8_0", path_, stream_);
  }
  ModelConfig config_;
  const std::filesystem::path path_ = folder_ / "blocks.gguf";
};

TEST_F(QuantizedGguf, WeightsMatchDequantizedValues) {
  const auto model = make_model(resolved_model_config(config_), 2, stream_);
  int in_blocks = 0;
  visit_gguf_weights(
      GgufFile(path_), *model, model->config(),
      [&](Parameter& parameter, const FolderWeight& weight) {
        ASSERT_EQ(weight.is_quantized(), parameter.role() != Role::kVector) << parameter.name();
        if (!weight.is_quantized()) return;
        const Tensor wanted = weight.values();
        parameter.set_storage(
            std::make_unique<QuantizedWeight>(parameter.shape(), weight.quantized(stream_)));
        EXPECT_EQ(values_of(parameter.acquire_master(stream_).tensor()), values_of(wanted))
            << parameter.name();
        ++in_blocks;
      });
  EXPECT_GT(in_blocks, 6);
}

TEST_F(QuantizedGguf, DequantizesQuantizedVectors) {
  std::string bytes = read_file(path_, 1 << 24);
  for (const std::string& name :
       {std::string("blk.0.attn_norm.weight"), std::string("output_norm.weight")}) {
    const std::size_t type = bytes.find(name) + name.size() + 4 + 8;  // after dimensions and length
    ASSERT_EQ(bytes[type], 0) << "f32";
    bytes[type] = 8;  // q8_0, which is smaller
  }
  std::ofstream(path_, std::ios::binary) << bytes;
  const TrainedRun held = load_hugging_face_folder(path_, "file", stream_);
  const Tensor tokens = random_tokens({1, 12}, 600, 3, stream_);
  for (const double logit :
       values_of(held.model().logits(tokens, Pass{.training = false}, stream_)))
    ASSERT_TRUE(std::isfinite(logit));
}

TEST_F(QuantizedGguf, DetectsMostlyQuantizedFile) {
  EXPECT_TRUE(is_mostly_quantized(GgufFile(path_)));
  EXPECT_FALSE(is_mostly_quantized(GgufFile(written(small_model("llama")))));
}

TEST_F(QuantizedGguf, LogitsAreCloseToDequantized) {
  const TrainedRun exact = load_hugging_face_folder(path_, "fp32", stream_),
                   held = load_hugging_face_folder(path_, "file", stream_);
  const Tensor tokens = random_tokens({1, 12}, 600, 3, stream_);
  const Pass pass{.training = false};
  const auto wanted = values_of(exact.model().logits(tokens, pass, stream_)),
             found = values_of(held.model().logits(tokens, pass, stream_));
  EXPECT_LT(relative_error(found, wanted), 0.03);
  EXPECT_NE(found, wanted) << "the inputs of products are rounded to 8 bits";
}

TEST_F(QuantizedGguf, FileFormRejectsHuggingFaceFolder) {
  const auto model = make_model(config_, 1, stream_);
  export_hugging_face(*model, nullptr, folder_ / "plain", stream_);
  EXPECT_TRUE(contains(
      message_of<UsageError>([&] { load_hugging_face_folder(folder_ / "plain", "file", stream_); }),
      "is not a GGUF file"));
}

TEST_F(GgufReading, RejectsWeightsOfOtherLayerCount) {
  const auto path = written(small_model("qwen2"));
  ModelConfig smaller = small_model("qwen2");
  smaller.layers = 1;
  const auto model = make_model(smaller, 1, stream_);
  EXPECT_TRUE(contains(
      message_of<DataError>([&] { read_hugging_face_weights(path, *model, stream_); }), "layers"));
}

}  // namespace
}  // namespace hybrid_trainer::testing
