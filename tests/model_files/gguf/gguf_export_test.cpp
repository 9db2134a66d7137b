#include "src/model_files/gguf/gguf_export.h"
#include "src/model_files/hugging_face/generation_config.h"

#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/messages.h"
#include "src/data/text/tokenizer_files.h"
#include "src/data/text/tokenizer_steps.h"
#include "src/files/config_fields.h"
#include "src/gguf/gguf_special_tokens.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/gguf/gguf_values.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// scripts/peers/compare_gguf.py compares llama.cpp's results for such files.
namespace hybrid_trainer::testing {
namespace {

ModelConfig small(const std::string& family) {
  ModelConfig model{.family = family, .layers = 2, .heads = 4, .width = 32, .context = 64};
  model.vocabulary = 604;
  if (family == "gpt2") return model;
  model.kv_heads = 2;
  model.head_size = 12;
  model.intermediate_size = 40;
  if (family == "gemma2" || family == "gemma3") {
    model.tied_head = true;
    model.window = 8;
    model.window_layers = "wa";
    model.query_scalar = 12;
    if (family == "gemma3") model.window_rope_theta = 1e4;
    if (family == "gemma2") model.attention_cap = 50, model.logit_cap = 30;
  }
  if (family == "granite") {
    model.query_scalar = 16, model.embedding_scale = 1.5;
    model.residual_scale = 0.5, model.logit_scale = 0.25;
  }
  if (family == "glm4") model.rotary_share = 0.5, model.attention_bias = true;
  if (family == "phi3") {
    model.rotary_share = 0.5;
    model.rope_scaling = {.type = "longrope",
                          .factor = 4,
                          .original_context = 16,
                          .attention_factor = 1.25,
                          .short_factors = {1, 1.5},
                          .long_factors = {2, 3}};
  }
  if (family == "olmo2" || family == "olmo3" || family == "phi3" || family == "exaone4" ||
      family == "qwen2_moe" || family == "olmoe")
    model.head_size = 8;
  if (family == "exaone4") model.window_layers = "a";
  if (family == "olmo3") model.window = 8, model.window_layers = "wa", model.rope_theta = 5e5;
  if (family == "olmoe") model.kv_heads = 4;
  if (const GgufLayout& layout = find_family(family).gguf; layout.experts) {
    model.experts = {.count = 3, .chosen = 2, .intermediate_size = 16};
    if (!find_family(family).has("intermediate_size")) model.intermediate_size = 0;
    if (!layout.experts->shared_size_key.empty()) model.experts.shared_width = 24;
    model.experts.rule = layout.experts->rule;
  }
  if (family == "granitemoe") model.query_scalar = 16, model.logit_scale = 0.25;
  if (family == "gpt_oss") {
    model.attention_bias = true;
    model.window = 8, model.window_layers = "wa";
  }
  if (family == "lfm2_moe") {
    model.layers = 4, model.mixers = "sa", model.state_space.taps = 3;
    model.experts.layers = "feee", model.experts.selection_bias = true;
  }
  if (find_family(family).gguf.delta_rule) {
    model.head_size = 16;
    model.rotary_share = 0.25;
    model.mixers = "da";
    model.state_space = {.heads = 4, .head_size = 8, .groups = 2, .state_size = 8, .taps = 4};
  }
  if (family == "gemma4") {
    model.tied_head = true;
    model.window = 8, model.window_layers = "wa";
    model.rotary_share = 0.5;
    model.gemma4 = {.head_size = 16, .kv_heads = 1, .keys_are_values = true, .input_width = 4};
  }
  return resolved_model_config(model);
}

class GgufModel : public ::testing::Test {
 protected:
  GgufModel() { send_warnings_to(&said_); }
  ~GgufModel() override { send_warnings_to(&std::cerr); }
  std::unique_ptr<LanguageModel> made(const ModelConfig& config, std::uint64_t seed) {
    auto model = make_model(config, seed, stream_);
    model->visit_parameters([&](Parameter& parameter) {
      const Tensor values = parameter.master_in_place();
      if (parameter.role() == Role::kVector)
        for (std::int64_t i = 0; i < values.elements(); ++i)
          values.data<float>()[i] += 0.01f * static_cast<float>(i % 13);
    });
    return model;
  }
  void write(LanguageModel& model, const std::string& type, const std::string& name) {
    export_gguf(model, {*tokenizer_}, type, folder_ / name, stream_);
  }
  std::string refusal(const ModelConfig& config) {
    const auto model = made(config, 1);
    return message_of<DataError>([&] { write(*model, "f32", "refused.gguf"); });
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder folder_;
  std::ostringstream said_;
  const std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(concat(HT_TEST_DATA_DIR, "/bpe_small"));
};

class GgufFamily : public GgufModel, public ::testing::WithParamInterface<const char*> {};

TEST_P(GgufFamily, RoundTripsWeightsAndIsDeterministic) {
  const ModelConfig config = small(GetParam());
  const auto model = made(config, 1), other = made(config, 2);
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(folder_ / name);
  write(*model, "f32", "a/model.gguf");
  write(*model, "f32", "b/model.gguf");
  EXPECT_EQ(read_text(folder_ / "a/model.gguf"), read_text(folder_ / "b/model.gguf"));
  std::map<std::string, Tensor> wanted;
  model->visit_parameters(
      [&](Parameter& parameter) { wanted[parameter.name()] = parameter.master_in_place(); });
  std::size_t read = 0;
  visit_gguf_weights(GgufFile(folder_ / "a/model.gguf"), *other, other->config(),
                     [&](Parameter& parameter, const FolderWeight& weight) {
                       EXPECT_LT(relative_error(values_of(weight.values()),
                                                values_of(wanted.at(parameter.name()))),
                                 1e-6)  // 1 was added to some weights and subtracted
                           << parameter.name();
                       ++read;
                     });
  EXPECT_EQ(read, wanted.size());
}

TEST_P(GgufFamily, ExportsWeightsInEachType) {
  const auto model = made(small(GetParam()), 1);
  std::size_t last = SIZE_MAX;
  for (const char* type : {"f32", "bf16", "q8_0", "q4_0"}) {
    write(*model, type, concat(type, ".gguf"));
    const GgufFile file(folder_ / concat(type, ".gguf"));
    const GgufTensor& table = file.tensor("token_embd.weight");
    EXPECT_EQ(std::string(name_of(table.type)), std::string(type) == "q4_0" ? "q8_0" : type);
    const bool is_lfm = std::string(GetParam()) == "lfm2_moe";
    EXPECT_EQ(file.tensor(is_lfm ? "token_embd_norm.weight" : "output_norm.weight").type,
              GgufType::kF32);
    const std::size_t bytes = std::filesystem::file_size(folder_ / concat(type, ".gguf"));
    EXPECT_LT(bytes, last);
    last = bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GgufFamily,
                         ::testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2",
                                           "gemma3", "granite", "olmo2", "glm4", "smollm3", "phi3",
                                           "exaone4", "ministral3", "mixtral", "qwen2_moe",
                                           "qwen3_moe", "olmoe", "granitemoe", "gpt_oss",
                                           "lfm2_moe", "olmo3", "gemma4", "qwen3_next", "qwen3_5",
                                           "qwen3_5_moe"),
                         [](const auto& info) { return std::string(info.param); });

class GgufConfig : public GgufModel, public ::testing::WithParamInterface<const char*> {};

TEST_P(GgufConfig, SurvivesRoundTrip) {
  ModelConfig config = small(GetParam());
  config.layers = 4;
  write(*made(config, 1), "f32", "model.gguf");
  EXPECT_EQ(config_json(read_hugging_face_model_config(folder_ / "model.gguf", 0)),
            config_json(config));
  EXPECT_EQ(said_.str(), "");
}

INSTANTIATE_TEST_SUITE_P(Families, GgufConfig,
                         ::testing::Values("granite", "olmo2", "glm4", "smollm3", "phi3", "exaone4",
                                           "mixtral", "qwen2_moe", "qwen3_moe", "olmoe",
                                           "granitemoe", "gpt_oss", "lfm2_moe", "olmo3", "gemma4",
                                           "qwen3_next", "qwen3_5", "qwen3_5_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(GgufModel, InterleavesLlamaQueryRows) {
  const auto model = made(small("llama"), 1);
  Tensor queries;
  model->visit_parameters([&](Parameter& parameter) {
    if (parameter.name() == "h.0.attn.c_attn.weight") queries = parameter.master_in_place();
  });
  ASSERT_TRUE(queries);
  const std::string in_folder = "layers.0.self_attn.q_proj.weight";
  write(*model, "f32", "model.gguf");
  const GgufTensor tensor = GgufFile(folder_ / "model.gguf").tensor("blk.0.attn_q.weight");
  const std::string text = read_text(folder_ / "model.gguf");
  const auto row = [&](std::int64_t i) {
    std::vector<float> values(32);
    std::memcpy(values.data(), text.data() + tensor.offset + static_cast<std::size_t>(i) * 128,
                128);
    return values;
  };
  for (std::int64_t head = 0; head < 4; ++head)
    for (std::int64_t j = 0; j < 6; ++j)
      for (const std::int64_t half : {0, 1}) {
        const float* const here = queries.data<float>() + (head * 12 + half * 6 + j) * 32;
        EXPECT_EQ(row(head * 12 + 2 * j + half), std::vector<float>(here, here + 32)) << j;
      }
}

TEST_F(GgufModel, StacksExperts) {
  for (const char* family : {"qwen2_moe", "gpt_oss"}) {
    const auto model = made(small(family), 1);
    write(*model, "q8_0", concat(family, ".gguf"));
    const GgufFile file(folder_ / concat(family, ".gguf"));
    EXPECT_EQ(file.tensor("blk.0.ffn_gate_exps.weight").shape, (Shape{3, 16, 32})) << family;
    EXPECT_EQ(file.tensor("blk.0.ffn_down_exps.weight").shape, (Shape{3, 32, 16})) << family;
    EXPECT_EQ(file.tensor("blk.1.ffn_up_exps.weight").type, GgufType::kQ8_0) << family;
    EXPECT_EQ(file.tensor("blk.0.ffn_gate_inp.weight").type, GgufType::kF32) << family;
    const Tensor gates = file.values_of(file.tensor("blk.0.ffn_gate_exps.weight").element(2));
    model->visit_parameters([&](Parameter& parameter) {
      if (parameter.name() != "h.0.mlp.experts.2.c_fc.weight") return;
      const Tensor wanted = parameter.master_in_place().rows(0, 16);
      EXPECT_LT(relative_error(values_of(gates), values_of(wanted)), 0.01);
    });
  }
  const GgufFile file(folder_ / "gpt_oss.gguf");
  EXPECT_EQ(file.tensor("blk.0.ffn_up_exps.bias").shape, (Shape{3, 16}));
  EXPECT_EQ(file.tensor("blk.0.ffn_up_exps.bias").type, GgufType::kF32);
}

TEST_F(GgufModel, RejectsMixturesUnsupportedByLlamaCpp) {
  ModelConfig rule = small("qwen3_moe");
  rule.experts.rule = kSoftmaxRule;
  EXPECT_TRUE(contains(refusal(rule), "model.experts.rule=softmax"));
  ModelConfig layers = small("qwen2_moe");
  layers.experts.layers = "fe";
  EXPECT_TRUE(contains(refusal(layers), "has experts in all layers"));
  ModelConfig dense = small("lfm2_moe");
  dense.experts.layers = "fefe";
  EXPECT_TRUE(contains(refusal(dense), "has experts in all layers after the first"));
  ModelConfig limit = small("gpt_oss");
  limit.experts.gate_limit = 5;
  EXPECT_TRUE(contains(refusal(limit), "model.experts.gate_limit"));
  ModelConfig clamped = small("olmoe");
  clamped.query_key_value_limit = 4;
  EXPECT_TRUE(contains(refusal(clamped), "model.query_key_value_limit"));
}

TEST_F(GgufModel, SortsValueHeadsByPlace) {
  const auto model = made(small("qwen3_5"), 1);
  write(*model, "f32", "model.gguf");
  const GgufFile file(folder_ / "model.gguf");
  const Tensor gates = file.values_of(file.tensor("blk.0.attn_gate.weight"));
  const Tensor rates = file.values_of(file.tensor("blk.0.ssm_a"));
  model->visit_parameters([&](Parameter& parameter) {
    const Tensor values = parameter.master_in_place();
    if (parameter.name() == "h.0.mix.A_log") {
      for (std::int64_t i = 0; i < 4; ++i)  // 2 heads of each of 2 key heads
        EXPECT_FLOAT_EQ(rates.data<float>()[i % 2 * 2 + i / 2], -std::exp(values.data<float>()[i]));
    } else if (parameter.name() == "h.0.mix.c_in.weight") {
      EXPECT_EQ(values_of(gates.rows(8, 16)), values_of(values.rows(64 + 16, 64 + 24)));
    }
  });
}

TEST_F(GgufModel, TokenizerHasTokenForEachRow) {
  const auto model = made(small("llama"), 1);
  write(*model, "f16", "model.gguf");
  const GgufFile file(folder_ / "model.gguf");
  const auto& values = file.values();
  const auto tokens =
      std::get<std::vector<std::string>>(values.at("tokenizer.ggml.tokens").content);
  EXPECT_EQ(tokens.size(), 604u);
  EXPECT_EQ(tokens.back(), "[PAD603]");
  EXPECT_EQ(std::get<std::string>(values.at("tokenizer.ggml.pre").content), "gpt-2");
  EXPECT_EQ(
      std::get<std::vector<std::int64_t>>(values.at("tokenizer.ggml.token_type").content).back(),
      5);
}

TEST_F(GgufModel, WarnsAboutSpacesThatLlamaCppAdds) {
  ModelConfig config = small("mistral");
  config.vocabulary = 660;
  const auto model = made(config, 1);
  const auto written = [&](const char* name) {
    const auto tokenizer = load_tokenizer(concat(HT_TEST_DATA_DIR, "/tokenizers/", name, ".json"));
    const std::filesystem::path path = folder_ / concat(name, ".gguf");
    export_gguf(*model, {*tokenizer}, "f32", path, stream_);
    const auto read = load_tokenizer(GgufFile(path));
    EXPECT_EQ(read->encode("a b"), tokenizer->encode("a b")) << name;
    return read->encode(" a") == tokenizer->encode(" a");
  };
  EXPECT_TRUE(written("llama2_legacy"));
  EXPECT_EQ(said_.str(), "");
  EXPECT_FALSE(written("llama2_metaspace"));
  EXPECT_TRUE(contains(said_.str(), "adds a space before all texts")) << said_.str();
}

TEST_F(GgufModel, WritesAllEndTokens) {
  const auto model = made(small("llama"), 1);
  const auto written = [&](const std::string& ids, const std::string& name) {
    export_gguf(*model, {*tokenizer_, concat(R"({"eos_token_id":)", ids, "}")}, "f32",
                folder_ / name, stream_);
    return GgufFile(folder_ / name);
  };
  const GgufFile one = written("0", "one.gguf"), two = written("[0, 5]", "two.gguf");
  EXPECT_EQ(one.count("tokenizer.ggml.eos_token_id"), 0);
  EXPECT_EQ(one.find("tokenizer.ggml.eot_token_id"), nullptr);
  EXPECT_EQ(two.count("tokenizer.ggml.eos_token_id"), 0);
  EXPECT_EQ(two.count("tokenizer.ggml.eot_token_id"), 5);
  EXPECT_EQ(said_.str(), "");
  const GgufFile more = written("[0, 5, 6, 7, 599]", "more.gguf");
  EXPECT_EQ(more.count("tokenizer.ggml.eom_token_id"), 6);
  EXPECT_EQ(more.counts("tokenizer.ggml.eos_token_ids"),
            (std::vector<std::int64_t>{0, 5, 6, 7, 599}));
  EXPECT_EQ(read_gguf_special_tokens(more).ends, (std::vector<std::int64_t>{0, 5, 6, 7, 599}));
  const std::string left(tokenizer_->token_bytes(7));
  EXPECT_TRUE(contains(said_.str(), concat("will continue after ", left))) << said_.str();
}

TEST_F(GgufModel, ReportsWrittenTypes) {
  const auto types = [&](std::int64_t width, const std::string& name) {
    ModelConfig config = small("llama");
    config.width = width;
    return export_gguf(*made(config, 1),
                       {*tokenizer_,
                        "",
                        {{"general.license", "mit"}},
                        {{"general.sampling.temp", 0.6}, {"general.sampling.top_k", 5}}},
                       "q8_0", folder_ / name, stream_);
  };
  const GgufTypes some = types(32, "some.gguf"), none = types(24, "none.gguf");
  EXPECT_EQ(some.at("f16"), 4) << "the products over 40 and 48 columns in both layers";
  EXPECT_GT(some.at("q8_0"), 0);
  EXPECT_FALSE(none.contains("q8_0"));
  EXPECT_EQ(GgufFile(folder_ / "some.gguf").count("general.file_type"), 7);
  EXPECT_EQ(GgufFile(folder_ / "none.gguf").count("general.file_type"), 1);
  EXPECT_EQ(GgufFile(folder_ / "none.gguf").text("general.license"), "mit");
  const GenerationKeys keys = read_generation_keys({folder_ / "none.gguf"});
  EXPECT_EQ(keys.temperature, 0.6);
  EXPECT_EQ(keys.top_k, 5);
  EXPECT_TRUE(keys.draws.value_or(false));
  std::int64_t tensors = 0;
  for (const auto& [type, count] : some) tensors += count;
  EXPECT_EQ(tensors, std::ssize(GgufFile(folder_ / "some.gguf").tensors()));
}

TEST_F(GgufModel, RejectsSettingsUnsupportedByLlamaCpp) {
  ModelConfig scalar = small("gemma2");
  scalar.query_scalar = 100;
  EXPECT_TRUE(contains(refusal(scalar), "model.query_scalar=100"));
  ModelConfig uncapped = small("gemma2");
  uncapped.logit_cap = 0;
  EXPECT_TRUE(contains(refusal(uncapped), "logit_cap"));
  ModelConfig dynamic = small("llama");
  dynamic.rope_scaling = {.type = "dynamic", .factor = 2};
  EXPECT_TRUE(contains(refusal(dynamic), "dynamic"));
  ModelConfig pattern = small("llama");
  pattern.attention_pattern.local_blocks = 1;
  EXPECT_TRUE(contains(refusal(pattern), "attention_pattern"));
  ModelConfig biased = small("qwen3");
  biased.attention_bias = true;
  EXPECT_TRUE(contains(refusal(biased), "attention_bias"));
  ModelConfig layers = small("smollm3");
  layers.window_layers = "na";
  EXPECT_TRUE(contains(refusal(layers), "rotates all but every fourth layer"));
  ModelConfig hybrid = small("exaone4");
  hybrid.window = 8, hybrid.window_layers = "wn";
  EXPECT_TRUE(contains(refusal(hybrid), "if and only if it has 64 layers"));
  ModelConfig base = small("olmo3");
  base.window_rope_theta = 1e4;
  EXPECT_TRUE(contains(refusal(base), "model.window_rope_theta is 10000"));
  EXPECT_TRUE(contains(message_of<DataError>([] { gguf_architecture({.family = "bamba"}); }),
                       "cannot be written as GGUF"));
  ModelConfig short_table = small("llama");
  short_table.vocabulary = 30;
  EXPECT_TRUE(contains(refusal(short_table), "model's token table has 30 rows"));
  const auto model = make_model(small("llama"), 1, stream_);
  EXPECT_TRUE(contains(message_of<DataError>([&] {
                         export_gguf(*model, {*make_byte_tokenizer()}, "f32",
                                     folder_ / "bytes.gguf", stream_);
                       }),
                       "a tokenizer of bytes"));
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { write(*model, "q3_k", "wrong.gguf"); }), "q3_k"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "bytes.gguf"));
}

TEST_F(GgufModel, WarnsAboutWindowUnknownToLlamaCpp) {
  ModelConfig config = small("mistral");
  config.window = 16;
  write(*made(config, 1), "f32", "model.gguf");
  EXPECT_TRUE(contains(said_.str(), "llama.cpp does not support a window"));
}

}  // namespace
}  // namespace hybrid_trainer::testing
