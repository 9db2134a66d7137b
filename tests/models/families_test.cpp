// Differences between families: their weights, and the meaning of keys that a file omits.
#include <gtest/gtest.h>

#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/models/hugging_face/config_reader.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

using Names = std::set<std::string>;

ModelConfig small(const std::string& family) {
  ModelConfig config{.family = family,
                     .layers = 1,
                     .heads = 4,
                     .width = 32,
                     .context = 16,
                     .vocabulary = 40,
                     .kv_heads = 2,
                     .head_size = 8,
                     .intermediate_size = 48};
  config.tied_head = family.starts_with("gemma");
  return config;
}

/// Names and shapes in a transformers folder; those of the layer without "layers.0.".
Names tensors_of(const ModelConfig& config) {
  const Stream stream = test_stream();
  const ModelFamily& family = find_family(config.family);
  const auto model = family.make(config, 1, stream);
  Names names;
  model->visit_parameters([&](const Parameter& parameter) {
    for (const FileTensor& tensor : parameter.in_files()) {
      const std::string_view layer = "layers.0.";
      names.insert(
          concat(tensor.name.starts_with(layer) ? tensor.name.substr(layer.size()) : tensor.name,
                 " ", tensor.shape.text()));
    }
  });
  return names;
}

const Names kLlama{"embed_tokens.weight (40, 32)",
                   "input_layernorm.weight (32)",
                   "lm_head.weight (40, 32)",
                   "mlp.down_proj.weight (32, 48)",
                   "mlp.gate_proj.weight (48, 32)",
                   "mlp.up_proj.weight (48, 32)",
                   "norm.weight (32)",
                   "post_attention_layernorm.weight (32)",
                   "self_attn.k_proj.weight (16, 32)",
                   "self_attn.o_proj.weight (32, 32)",
                   "self_attn.q_proj.weight (32, 32)",
                   "self_attn.v_proj.weight (16, 32)"};
const Names kBiases{"self_attn.k_proj.bias (16)", "self_attn.q_proj.bias (32)",
                    "self_attn.v_proj.bias (16)"};
const Names kNorms{"self_attn.k_norm.weight (8)", "self_attn.q_norm.weight (8)"};
const Names kSandwich{"post_feedforward_layernorm.weight (32)",
                      "pre_feedforward_layernorm.weight (32)"};
const Names kHead{"lm_head.weight (40, 32)"};

Names with(Names names, const Names& more) {
  names.insert(more.begin(), more.end());
  return names;
}

Names without(Names names, const Names& fewer) {
  for (const std::string& name : fewer) names.erase(name);
  return names;
}

TEST(Families, WeightsMatchTransformers) {
  EXPECT_EQ(tensors_of(small("llama")), kLlama);
  EXPECT_EQ(tensors_of(small("mistral")), kLlama);
  EXPECT_EQ(tensors_of(small("ministral3")), kLlama);
  EXPECT_EQ(tensors_of(small("qwen2")), with(kLlama, kBiases));
  EXPECT_EQ(tensors_of(small("qwen3")), with(kLlama, kNorms));
  const Names gemma2 = with(without(kLlama, kHead), kSandwich);
  EXPECT_EQ(tensors_of(small("gemma2")), gemma2);
  EXPECT_EQ(tensors_of(small("gemma3")), with(gemma2, kNorms));
  const Names gemma4 = with(with(gemma2, kNorms), {"layer_scalar (1)"});
  EXPECT_EQ(tensors_of(small("gemma4")), gemma4);
  ModelConfig inputs = small("gemma4");
  inputs.gemma4.input_width = 6;
  EXPECT_EQ(
      tensors_of(inputs),
      with(gemma4,
           {"embed_tokens_per_layer.weight (40, 6)", "per_layer_input_gate.weight (6, 32)",
            "per_layer_model_projection.weight (6, 32)", "per_layer_projection.weight (32, 6)",
            "per_layer_projection_norm.weight (6)", "post_per_layer_input_norm.weight (32)"}));
}

/// Layers of Gemma 4 with keys and values of an earlier layer, or with one map for both.
TEST(Families, SharedKeysNeedNoWeights) {
  ModelConfig config = small("gemma4");
  config.layers = 2;
  config.window_layers = "a";
  config.gemma4.shared_layers = 1;
  config.gemma4.has_wide_shared_layers = true;
  const Names shared = tensors_of(config);
  for (const char* name : {"k_proj.weight (16, 32)", "v_proj.weight (16, 32)", "k_norm.weight (8)"})
    EXPECT_FALSE(shared.contains(concat("layers.1.self_attn.", name))) << name;
  EXPECT_TRUE(shared.contains("layers.1.mlp.up_proj.weight (96, 32)"));
  config.gemma4.keys_are_values = true;
  config.gemma4.head_size = 4;
  config.gemma4.kv_heads = 1;
  const Names alike = tensors_of(config);
  EXPECT_TRUE(alike.contains("self_attn.k_proj.weight (4, 32)"));
  EXPECT_FALSE(alike.contains("self_attn.v_proj.weight (4, 32)"));
  EXPECT_TRUE(alike.contains("layers.1.self_attn.q_proj.weight (16, 32)"));
}

TEST(Families, BiasesFollowConfig) {
  ModelConfig config = small("llama");
  config.attention_bias = true;
  const Names attention = with(with(kLlama, kBiases), {"self_attn.o_proj.bias (32)"});
  EXPECT_EQ(tensors_of(config), attention);
  config.mlp_bias = true;
  EXPECT_EQ(tensors_of(config),
            with(attention,
                 {"mlp.down_proj.bias (32)", "mlp.gate_proj.bias (48)", "mlp.up_proj.bias (48)"}));
  config.tied_head = true;
  EXPECT_EQ(tensors_of(config).count("lm_head.weight (40, 32)"), 0u);
}

/// Default of each key that a file may omit.
std::map<std::string, double> missing_of(const std::string& family) {
  const HuggingFaceLayout& layout = find_family(family).hugging_face;
  const boost::json::object none;
  ConfigReader reader(none);
  ConfigKeys read(reader);
  ModelConfig model;
  layout.keys(read, model);
  boost::json::object config;
  ConfigKeys written(config);
  layout.keys(written, model);
  std::map<std::string, double> missing;
  for (const auto& [key, value] : config) {
    if (reader.problems().find(concat("\n", key, " is missing")) != std::string::npos) continue;
    if (value.is_number()) missing[key] = value.to_number<double>();
    if (value.is_bool()) missing[key] = value.get_bool() ? 1 : 0;
    if (value.is_null()) missing[key] = 0;
  }
  return missing;
}

/// The defaults equal those of transformers' configuration classes.
TEST(Families, MissingKeysUseTransformersDefaults) {
  std::map<std::string, double> wanted{{"max_position_embeddings", 2048},
                                       {"num_key_value_heads", 0},  // as many as heads
                                       {"rms_norm_eps", 1e-6},
                                       {"tie_word_embeddings", 0},
                                       {"head_dim", 0},  // hidden_size / heads
                                       {"rope_theta", 1e4}};
  const auto expect = [&](const std::string& family, std::map<std::string, double> more) {
    more.insert(wanted.begin(), wanted.end());
    const auto got = missing_of(family);
    for (const auto& [key, value] : more) {
      ASSERT_TRUE(got.contains(key)) << family << " " << key;
      EXPECT_EQ(got.at(key), value) << family << " " << key;
    }
  };
  expect("llama", {{"attention_bias", 0}, {"mlp_bias", 0}});
  expect("mistral", {{"max_position_embeddings", 131072}, {"num_key_value_heads", 8}});
  expect("ministral3", {{"max_position_embeddings", 262144},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"rms_norm_eps", 1e-5},
                        {"sliding_window", 0}});
  expect("qwen2", {{"max_position_embeddings", 32768}, {"num_key_value_heads", 32}});
  expect("qwen3", {{"max_position_embeddings", 32768},
                   {"num_key_value_heads", 32},
                   {"head_dim", 128},
                   {"attention_bias", 0}});
  const std::map<std::string, double> gemma{{"num_key_value_heads", 4},
                                            {"head_dim", 256},
                                            {"tie_word_embeddings", 1},
                                            {"attention_bias", 0},
                                            {"query_pre_attn_scalar", 256}};
  auto gemma2 = gemma, gemma3 = gemma;
  gemma2.insert({{"max_position_embeddings", 8192},
                 {"attn_logit_softcapping", 50},
                 {"final_logit_softcapping", 30}});
  gemma3.insert({{"max_position_embeddings", 131072},
                 {"rope_theta", 1e6},
                 {"attn_logit_softcapping", 0},
                 {"final_logit_softcapping", 0}});
  expect("gemma2", gemma2);
  expect("gemma3", gemma3);
}

TEST(Families, WindowLayersDependOnFamily) {
  const auto windows = [](const char* family) {
    return resolved_model_config(small(family)).window_layers;
  };
  EXPECT_EQ(windows("llama"), "");
  EXPECT_EQ(windows("mistral"), "w");
  EXPECT_EQ(windows("qwen2"), "w");
  EXPECT_EQ(windows("qwen3"), "w");
  EXPECT_EQ(windows("gemma2"), "wa");
  EXPECT_EQ(windows("gemma3"), "wwwwwa");
  EXPECT_EQ(windows("gemma4"), "a") << "the only layer is also the last one";
}

TEST(Families, ResolveZerosFromOtherSizes) {
  ModelConfig config{.family = "llama", .heads = 4, .width = 192};
  config = resolved_model_config(config);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_size, 48);
  EXPECT_EQ(config.intermediate_size, 512);  // 8/3 of 192
  config.width = 193;
  config.intermediate_size = 0;
  EXPECT_EQ(resolved_model_config(config).intermediate_size, 576) << "rounded up to 64";
  ModelConfig gemma{.family = "gemma2", .heads = 4, .width = 64};
  gemma = resolved_model_config(gemma);
  EXPECT_EQ(gemma.query_scalar, 16);
  EXPECT_EQ(gemma.window_layers, "wa");
  EXPECT_EQ(gemma.window_rope_theta, 0);
  ModelConfig gemma3{.family = "gemma3", .heads = 4, .width = 64};
  EXPECT_EQ(resolved_model_config(gemma3).window_rope_theta, 1e4);
}

/// 32 tokens; 7,680 weights in a layer's matrices, 1,280 in the table; 12·keys·32 for attention.
TEST(Families, StepFlopsCountVisibleKeys) {
  const auto flops = [](const char* family, std::int64_t layers, std::int64_t window) {
    ModelConfig config = small(family);
    config.layers = layers;
    config.window = window;
    const Stream stream = test_stream();
    return make_model(config, 1, stream)->flops_of({2, 16}, 32);
  };
  const double weights = 6 * (7680 + 1280), all = 12 * 8 * 32, few = 12 * 3.5 * 32;
  EXPECT_DOUBLE_EQ(flops("llama", 1, 0), 32 * (weights + all));
  EXPECT_DOUBLE_EQ(flops("mistral", 1, 0), 32 * (weights + all));
  EXPECT_DOUBLE_EQ(flops("mistral", 1, 16), 32 * (weights + all));
  EXPECT_DOUBLE_EQ(flops("mistral", 1, 4), 32 * (weights + few))
      << "4 keys, fewer for the first tokens";
  EXPECT_DOUBLE_EQ(flops("gemma2", 2, 4), 32 * (weights + 6 * 7680 + few + all));
}

/// 40 tokens; of the head, 1,280 weights in the table and 1,024 in its dense layer; 12,288 in a
/// layer's matrices; 12·16·32 for attention to all tokens.
TEST(Families, StepFlopsCountHeadOfMaskedTokens) {
  const ModelConfig config{.family = "bert",
                           .layers = 1,
                           .heads = 2,
                           .width = 32,
                           .context = 20,
                           .vocabulary = 40,
                           .bidirectional = true};
  const Stream stream = test_stream();
  const auto model = make_model(resolved_model_config(config), 1, stream);
  const auto flops = [&](const BatchForm& form) {
    return model->step_flops(model->empty_batch(form, stream));
  };
  const double layer = 6 * 12288 + 12 * 20 * 32, head = 6 * (1280 + 1024);
  BatchForm form{.examples = 2, .sequence_length = 20};
  EXPECT_DOUBLE_EQ(flops(form), 40 * (layer + head)) << "a target for each token";
  form.texts = {.numbers = 3};
  EXPECT_DOUBLE_EQ(flops(form), 40 * layer + 2 * 3 * head) << "three masked tokens per sequence";
}

TEST(Families, PadVocabulariesToWholeTiles) {
  for (const auto& [vocabulary, padded] : std::map<std::int64_t, std::int64_t>{
           {1, 16}, {16, 16}, {17, 32}, {511, 512}, {512, 512}, {513, 576}, {50257, 50304}})
    EXPECT_EQ(padded_vocabulary(vocabulary), padded) << vocabulary;
}

std::size_t problems_of(const ModelConfig& config) {
  std::vector<std::string> problems;
  find_family(config.family).collect_problems(config, problems);
  return problems.size();
}

TEST(Families, ReportIncompatibleSizes) {
  EXPECT_EQ(problems_of(small("llama")), 0u);
  ModelConfig config = small("llama");
  config.head_size = 0;
  config.width = 34;
  EXPECT_EQ(problems_of(config), 1u) << "4 heads of 34 channels";
  config = small("llama");
  config.kv_heads = 3;
  EXPECT_EQ(problems_of(config), 1u);
  config = small("llama");
  config.head_size = 7;
  EXPECT_EQ(problems_of(config), 1u);
  config.head_size = 2;
  EXPECT_EQ(problems_of(config), 0u);
  config.rope_scaling.type = "dynamic";
  EXPECT_EQ(problems_of(config), 1u);
  config.head_size = 4;
  EXPECT_EQ(problems_of(config), 0u);
  config.rope_scaling = {.type = "llama3", .low_frequency = 4, .high_frequency = 4};
  EXPECT_EQ(problems_of(config), 1u);
  config.rope_scaling.low_frequency = 1;
  EXPECT_EQ(problems_of(config), 0u);
  ModelConfig mistral = small("mistral");
  mistral.layers = 2;
  mistral.window_layers = "wa";
  EXPECT_EQ(problems_of(mistral), 1u);
  ModelConfig gemma = small("gemma2");
  gemma.layers = 2;
  gemma.window_layers = "wb";
  EXPECT_EQ(problems_of(gemma), 1u);
  gemma.window_layers = "aw";
  EXPECT_EQ(problems_of(gemma), 0u);
  ModelConfig gemma4 = small("gemma4");
  gemma4.layers = 2;
  gemma4.window_layers = "wa";
  EXPECT_EQ(problems_of(gemma4), 0u);
  gemma4.gemma4.input_width = 4;
  gemma4.gemma4.input_rows = 39;
  EXPECT_EQ(problems_of(gemma4), 1u) << "40 tokens";
}

TEST(Families, PresetsMatchPublishedParameterCounts) {
  const Stream nowhere(MemoryPool::create("nowhere", {}, simulated_memory({})));
  std::map<std::string, std::int64_t> sizes;
  for (const ModelFamily& family : model_families()) {
    for (const ModelPreset& preset : family.presets) {
      ModelConfig config = preset.model;
      config.vocabulary = preset.vocabulary;
      sizes[preset.name] = make_network(config, 1, nowhere)->parameter_count();
    }
  }
  const std::map<std::string, std::int64_t> wanted{
      {"gpt2-124m", 124'439'808},    {"gpt2-350m", 354'823'168},   {"gpt2-774m", 774'030'080},
      {"gpt2-1558m", 1'557'611'200}, {"llama-1b", 1'235'814'400},  {"qwen3-0.6b", 596'049'920},
      {"whisper-tiny", 37'760'640},  {"whisper-base", 72'593'920}, {"whisper-small", 241'734'912},
      {"vit-base", 85'800'194},      {"bart-base", 139'420'416},   {"bart-large", 406'291'456},
      {"bert-base", 109'514'298},    {"olmo2-1b", 1'484'916'736}};
  for (const auto& [name, size] : wanted) EXPECT_EQ(sizes[name], size) << name;
}

/// transformers' Conv1D and gpt_oss's experts store the inputs first.
TEST(Families, TransposeOnlyExpectedWeightsInFiles) {
  for (const ModelFamily& family : model_families()) {
    if (!family.is_language_model && family.hugging_face.model_type.empty())
      continue;  // has no files
    ModelConfig config = small(family.name);
    if (family.name == "gpt2") config.kv_heads = config.head_size = config.intermediate_size = 0;
    if (family.resolved) config = family.resolved(config);
    Names transposed;
    family.make(config, 1, test_stream())->visit_parameters([&](const Parameter& parameter) {
      for (const FileTensor& tensor : parameter.in_files())
        if (tensor.transposed) transposed.insert(concat(tensor.name, " ", tensor.shape.text()));
    });
    std::map<std::string, Names> wanted{
        {"gpt2",
         {"h.0.attn.c_attn.weight (32, 96)", "h.0.attn.c_proj.weight (32, 32)",
          "h.0.mlp.c_fc.weight (32, 128)", "h.0.mlp.c_proj.weight (128, 32)"}},
        {"gpt_oss",
         {"layers.0.mlp.experts.gate_up_proj (32, 64)", "layers.0.mlp.experts.down_proj (32, 32)"}},
        {"bart", {"final_logits_bias (1, 40)"}}};  // a row there, a column here
    EXPECT_EQ(transposed, wanted[family.name]) << family.name;
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
