#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>
#include <set>
#include <sstream>

#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/decoder.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/foreign_files.h"
#include "src/files/json.h"
#include "src/gguf/gguf_writer.h"
#include "src/model_files/hugging_face/config_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

// Reading of config.json in both versions of transformers, with and without optional keys.
namespace hybrid_trainer::testing {
namespace {

class FamilyKeys : public ::testing::Test {
 protected:
  FamilyKeys() { send_warnings_to(&said_); }
  ~FamilyKeys() override { send_warnings_to(&std::cerr); }
  /// Reads a config with the required sizes and `more` as JSON.
  ModelConfig read(const std::string& type, const std::string& more) {
    const std::string text =
        concat(R"({"model_type": ")", type,
               R"(", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 44,
                  "num_hidden_layers": 4, "num_attention_heads": 4)",
               more.empty() ? "" : ", ", more, "}");
    write_text(folder_ / "config.json", text);
    return read_hugging_face_model_config(folder_ / "", 0);
  }
  std::string refusal(const std::string& type, const std::string& more) {
    try {
      read(type, more);
    } catch (const DataError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  void expect_refused(const std::string& type, const std::string& more, const std::string& words) {
    EXPECT_NE(refusal(type, more).find(words), std::string::npos)
        << words << " in: " << refusal(type, more);
  }
  TemporaryFolder folder_;
  std::ostringstream said_;  // warnings
};

/// Lists of layers must not be allocated before the file's sizes have been checked.
TEST_F(FamilyKeys, ChecksSizesBeforeAllocatingLists) {
  for (const char* type : {"llama",
                           "qwen2",
                           "qwen3",
                           "mistral",
                           "mixtral",
                           "gemma2",
                           "gemma3_text",
                           "qwen2_moe",
                           "qwen3_moe",
                           "gpt_oss",
                           "granitemoehybrid",
                           "bamba",
                           "qwen3_next",
                           "whisper",
                           "bart",
                           "vit",
                           "mamba2",
                           "granite",
                           "olmo2",
                           "olmo3",
                           "glm4",
                           "smollm3",
                           "phi3",
                           "exaone4",
                           "qwen3_5_moe_text",
                           "lfm2",
                           "lfm2_moe"}) {
    for (const char* size : {"1001", "2147483647", "1099511627776"}) {
      std::string config = concat(R"({"model_type": ")", type, R"(", "vocab_size": 61)");
      for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads",
                              "intermediate_size", "num_experts", "num_local_experts", "d_model",
                              "encoder_layers", "decoder_layers", "num_key_value_heads"})
        config += concat(", \"", key, "\": ", size);
      write_text(folder_ / "config.json", config + "}");
      EXPECT_THROW(read_hugging_face_model_config(folder_ / "", 0), DataError) << type << size;
    }
  }
  expect_refused("llama", R"("head_dim": 4294967296)", "want a whole number from 1 to 2147483647");
}

TEST_F(FamilyKeys, ChecksGgufLayersBeforeAllocatingLists) {
  for (const char* name : {"gemma2", "gemma3", "llama"}) {
    const std::filesystem::path file = folder_ / concat(name, ".gguf");
    const auto key = [&](const char* rest) { return concat(name, ".", rest); };
    write_gguf(file,
               {gguf_text("general.architecture", name), gguf_count(key("block_count"), 30'000'000),
                gguf_count(key("attention.head_count"), 1), gguf_count(key("embedding_length"), 8),
                gguf_count(key("context_length"), 8), gguf_count(key("feed_forward_length"), 8),
                gguf_number(key("attention.layer_norm_rms_epsilon"), 1e-6)},
               {{.name = "token_embd.weight", .shape = {4, 8}}}, [](std::size_t) {
                 const Stream host(MemoryPool::create("host"));
                 return Tensor::zeros({4, 8}, DType::kF32, MemoryKind::kData, host);
               });
    const std::string message =
        message_of<DataError>([&] { read_hugging_face_model_config(file, 0); });
    EXPECT_NE(message.find("30000000"), message.npos) << message;
    EXPECT_NE(message.find("1000"), message.npos) << message;
  }
}

TEST_F(FamilyKeys, MissingKeysUseModelTypeDefaults) {
  const ModelConfig llama = read("llama", "");
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.head_size, 8);
  EXPECT_EQ(llama.context, 2048);
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
  EXPECT_EQ(llama.rope_theta, 1e4);
  EXPECT_FALSE(llama.tied_head);
  const ModelConfig mistral = read("mistral", R"("num_key_value_heads": 2)");
  EXPECT_EQ(mistral.window, 4096);
  EXPECT_EQ(mistral.context, 131072);
  expect_refused("mistral", "", "kv_heads");  // 8 of them by default, for 4 heads
  EXPECT_EQ(read("mistral", R"("num_key_value_heads": 2, "sliding_window": null)").window, 0);
  const ModelConfig qwen2 = read("qwen2", R"("num_key_value_heads": 2, "sliding_window": 9)");
  EXPECT_EQ(qwen2.window, 0);  // not used by default
  EXPECT_EQ(read("qwen3", R"("num_key_value_heads": 2)").head_size, 128);
  const ModelConfig gemma2 = read("gemma2", "");
  EXPECT_EQ(gemma2.head_size, 256);
  EXPECT_EQ(gemma2.kv_heads, 4);
  EXPECT_EQ(gemma2.query_scalar, 256);
  EXPECT_EQ(gemma2.attention_cap, 50);
  EXPECT_EQ(gemma2.logit_cap, 30);
  EXPECT_EQ(gemma2.window, 4096);
  EXPECT_EQ(gemma2.window_layers, "wa");
  EXPECT_TRUE(gemma2.tied_head);
  EXPECT_EQ(read("gemma2", R"("attn_logit_softcapping": null)").attention_cap, 0);
  const ModelConfig gemma3 = read("gemma3_text", "");
  EXPECT_EQ(gemma3.rope_theta, 1e6);
  EXPECT_EQ(gemma3.window_rope_theta, 1e4);
  EXPECT_EQ(gemma3.window_layers, "w");  // only every sixth layer has none
  EXPECT_EQ(gemma3.attention_cap, 0);
}

/// transformers treats an attention_factor of 0 as a factor.
TEST_F(FamilyKeys, DoesNotWriteUnsetYarnKeys) {
  const std::string yarn = R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0)";
  const auto written = [&](const std::string& more) {
    return typed_pretty_json(hugging_face_config(
        read("llama", yarn + more + "}"), find_family("llama").hugging_face, {}, DType::kF32));
  };
  const std::string without = written(""),
                    with = written(
                        R"(, "attention_factor": 1.5, "mscale": 0.5, "mscale_all_dim": 0.25)");
  for (const char* key : {"\"attention_factor\"", "\"mscale\"", "\"mscale_all_dim\""}) {
    EXPECT_EQ(without.find(key), without.npos) << key;
    EXPECT_NE(with.find(key), with.npos) << key;
  }
}

TEST_F(FamilyKeys, Version4AndVersion5KeysAreEquivalent) {
  const auto same = [&](const char* type, const std::string& four, const std::string& five) {
    EXPECT_EQ(config_json(read(type, four)), config_json(read(type, five))) << four;
  };
  same("llama", R"("rope_theta": 500.0, "torch_dtype": "bfloat16")",
       R"("rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "dtype": "bfloat16")");
  same("llama",
       R"("rope_theta": 500.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32})",
       R"("rope_parameters": {"rope_theta": 500.0, "rope_type": "llama3", "factor": 8.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32})");
  same("llama", R"("rope_scaling": {"type": "linear", "factor": 2.0})",
       R"("rope_parameters": {"rope_type": "linear", "factor": 2.0})");
  const std::string linear =
      R"("rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0})";
  same("llama", linear, linear + R"(, "rope_scaling": {})");
  same("llama", R"("rope_scaling": {"type": "linear", "factor": 4.0})",
       linear + R"(, "rope_scaling": {"type": "linear", "factor": 4.0})");  // takes precedence
  same("gemma3_text", R"("rope_theta": 7.0, "rope_local_base_freq": 5.0,
                         "sliding_window_pattern": 2,
                         "rope_scaling": {"rope_type": "linear", "factor": 8.0})",
       R"("rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 7.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5.0}},
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                          "full_attention"])");
  same("qwen2", R"("num_key_value_heads": 2, "use_sliding_window": true, "max_window_layers": 1)",
       R"("num_key_value_heads": 2, "use_sliding_window": true, "layer_types": ["full_attention",
          "sliding_attention", "sliding_attention", "sliding_attention"])");
}

TEST_F(FamilyKeys, DynamicScalingExtendsContext) {
  const ModelConfig config = read("llama", R"("max_position_embeddings": 32,
                       "rope_scaling": {"type": "dynamic", "factor": 2.0})");
  EXPECT_EQ(config.rope_scaling.original_context, 32);
  EXPECT_EQ(config.context, 64);
}

TEST_F(FamilyKeys, AcceptsHarmlessPublishedKeys) {
  write_text(folder_ / "config.json", R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 1,
      "n_head": 4, "n_positions": 16, "vocab_size": 61, "n_special": 0,
      "predict_special_tokens": true, "_num_labels": 1})");  // as gpt2-medium's and distilgpt2's
  EXPECT_NO_THROW(read_hugging_face_model_config(folder_ / "", 0));
  read("llama", R"("max_sequence_length": 2048)");  // of Llama 1
  read("gemma2", R"("_attn_implementation": "eager")");
  read("llama", R"("_model_name_or_path": "Smollm2", "unk_token_id": 0)");  // from a GGUF file
  read("llama", R"("attention_dropout": 0.1, "pretraining_tp": 2, "torchscript": true)");
  read("llama", R"("model_name": "unsloth", "pruned_heads": {}, "use_bfloat16": false)");
  EXPECT_EQ(said_.str(), "");
}

/// Programs differ in whether they follow architectures or model_type.
TEST_F(FamilyKeys, RefusesClassOfOtherFamily) {
  for (const char* type :
       {"phi3", "smollm3", "olmo2", "olmo3", "granite", "ministral3", "mistral", "glm4", "exaone4",
        "lfm2", "lfm2_moe", "gemma4_text", "qwen3_next", "qwen3_5_moe_text"})
    expect_refused(type, R"("architectures": ["LlamaForCausalLM"])",
                   R"(architectures: got ["LlamaForCausalLM"], want )");
  expect_refused("llama", R"("architectures": ["LlamaModel", "MistralModel"])",
                 R"(want ["LlamaForCausalLM"], which fits model_type)");
  for (const char* name : {"LlamaModel", "LlamaForSequenceClassification", "LLaMAForCausalLM"})
    read("llama", concat(R"("architectures": [")", name, R"("])"));
}

TEST_F(FamilyKeys, RefusesModelsWithoutText) {
  for (const char* type : {"mistral3", "gemma4", "qwen3_5", "qwen3_5_moe"})
    expect_refused(type, R"("vision_config": {"hidden_size": 8})", "text_config: is missing");
  for (const char* type : {"gemma4_vision", "pixtral", "qwen3_5_moe_vision"})
    expect_refused(type, "", concat("unsupported model: model_type: got \"", type, "\""));
}

/// Dumps of each family's configuration class with its defaults, from two versions of transformers.
TEST_F(FamilyKeys, AcceptsConfigClassDumpsWithoutWarning) {
  const std::string file = concat(HT_TEST_DATA_DIR, "/config_classes.json");
  const auto versions = boost::json::parse(with_named_floats(read_file(file, 1 << 20)));
  ASSERT_EQ(versions.as_object().size(), 2u);
  for (const auto& [version, classes] : versions.as_object()) {
    for (const auto& [type, config] : classes.as_object()) {
      if (type == "generation_config") continue;
      write_text(folder_ / "config.json", boost::json::serialize(config));
      EXPECT_NO_THROW(read_hugging_face_model_config(folder_ / "", 0)) << version << " " << type;
      EXPECT_EQ(said_.str(), "") << version << " " << type;
    }
    const auto& generation = classes.at("generation_config").as_object();
    EXPECT_TRUE(sort_unread_keys(generation, ForeignFile::kGenerationConfig, {}).unknown.empty());
  }
}

/// In each family, an export keeps all values of the base's config.json that training keeps.
TEST_F(FamilyKeys, ExportKeepsUnchangedValuesOfBase) {
  const auto is_training_key = [](const std::string& key) {
    return key.find("dropout") != key.npos || key.find("pdrop") != key.npos ||
           key.ends_with("layerdrop") || key == "init_std" || key == "initializer_range";
  };
  const std::set<std::string> own{"architectures", "model_type", "dtype", "torch_dtype"};
  const std::string file = concat(HT_TEST_DATA_DIR, "/config_classes.json");
  const auto versions = boost::json::parse(with_named_floats(read_file(file, 1 << 20)));
  for (const auto& [version, classes] : versions.as_object()) {
    for (const auto& [type, config] : classes.as_object()) {
      if (type == "generation_config" || config.as_object().contains("text_config"))
        continue;  // part of another model
      boost::json::object base = config.as_object();
      base["a_key_of_others"] = "kept";
      base["auto_map"] = boost::json::object{{"AutoConfig", "code.Config"}};
      for (auto& [key, value] : base)
        if (is_training_key(std::string(key)) && value.is_number()) value = 0.375;
      ModelConfig model = read_hugging_face_config(base, "base", model_families()).model;
      const HuggingFaceLayout& layout = find_family(model.family, model_families()).hugging_face;
      const auto written = [&](const ModelConfig& one) {
        return hugging_face_config(one, layout, {}, DType::kF32);
      };
      const auto over_base = [&] {
        return config_over_base(written(model), base, "base", written, model_families());
      };
      const boost::json::object same = over_base();
      for (const auto& [key, value] : base)
        if (!own.contains(std::string(key)) && !key.ends_with("_token_id") && key != "auto_map") {
          EXPECT_EQ(same.at(key), value) << version << " " << type << " " << std::string_view(key);
        }
      EXPECT_FALSE(same.contains("auto_map"));
      ++model.layers;
      ++model.vocabulary;
      if (type == "vit") model.labels.push_back({"more"});
      if (type == "lfm2_moe") model.experts.layers += 'e';
      const boost::json::object changed = over_base();
      EXPECT_EQ(changed.at("a_key_of_others"), "kept");
      EXPECT_NE(changed, same) << type;
      for (const auto& [key, value] : base)
        if (is_training_key(std::string(key))) {
          EXPECT_EQ(changed.at(key), value)
              << version << " " << type << " " << std::string_view(key);
        }
    }
  }
}

TEST_F(FamilyKeys, IgnoresUnknownKeysWithOneWarning) {
  const std::string without = config_json(read("llama", ""));
  EXPECT_EQ(config_json(read("llama", R"("some_new_key": 1, "sliding_window": 4,
      "rope_scaling": {"rope_type": "default", "more": 1}, "num_local_experts": 8)")),
            without);
  const std::string said = said_.str();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  for (const char* key : {R"("some_new_key")", R"("sliding_window")", R"("rope_scaling.more")",
                          R"("num_local_experts")"})
    EXPECT_NE(said.find(key), std::string::npos) << key << " in " << said;
}

TEST_F(FamilyKeys, ReportsUnknownGenerationKeysOnce) {
  write_text(folder_ / "generation_config.json",
             R"({"eos_token_id": [1, 2], "temperature": 0.6, "colour": 1})");
  read("llama", "");
  read("llama", "");
  EXPECT_TRUE(said_.str().ends_with("generation_config.json: ignored unknown keys: \"colour\"\n"))
      << said_.str();
  EXPECT_EQ(said_.str().find('\n'), said_.str().size() - 1);
}

TEST_F(FamilyKeys, NullEqualsMissingKey) {
  EXPECT_EQ(config_json(read("llama", R"("some_new_key": null, "is_causal": null,
      "hidden_act": null, "head_dim": null, "rope_scaling": {"rope_type": null, "type": "linear",
      "factor": 2.0}, "rope_parameters": null)")),
            config_json(read("llama", R"("rope_scaling": {"type": "linear", "factor": 2.0})")));
  EXPECT_EQ(said_.str(), "");
}

TEST_F(FamilyKeys, NullKeyValueHeadsEqualQueryHeads) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "mixtral"})
    EXPECT_EQ(read(type, R"("num_key_value_heads": null)").kv_heads, 4) << type;
}

TEST_F(FamilyKeys, ContextCanBeSetForRotaryModels) {
  const ModelConfig folder = read("llama", R"("max_position_embeddings": 64)");
  ModelConfig asked = folder;
  asked.context = 256;
  asked.rope_scaling.type = "yarn";
  asked.rope_scaling.factor = 4;
  EXPECT_EQ(with_training_of(folder, asked).context, 64) << "changes only if a key was set";
  const ModelConfig longer =
      with_training_of(folder, asked, {"model.context", "model.rope_scaling.type"});
  EXPECT_EQ(longer.context, 256);
  EXPECT_EQ(longer.rope_scaling.factor, 4);
  EXPECT_EQ(longer.rope_scaling.original_context, 64);
  ModelConfig table = asked;
  table.family = "gpt2";
  const std::string problem =
      message_of<ConfigError>([&] { with_training_of(table, asked, {"model.context"}); });
  EXPECT_NE(problem.find("model.context"), std::string::npos) << problem;
  const Stream stream(MemoryPool::create("device"));
  const std::string golden = concat(HT_TEST_DATA_DIR, "/llama_a");
  ModelConfig config = read_hugging_face_model_config(golden, 0);
  config.context *= 4;
  config.rope_scaling = longer.rope_scaling;
  EXPECT_NO_THROW(read_hugging_face_weights(golden, *make_model(config, 1, stream), stream));
}

TEST_F(FamilyKeys, GraniteHasFourFactors) {
  const ModelConfig none = read("granite", "");
  EXPECT_EQ(none.query_scalar, 1) << "scores are not scaled";
  EXPECT_EQ(none.embedding_scale, 1);
  const ModelConfig config = read("granite", R"("attention_multiplier": 0.125,
      "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0)");
  EXPECT_EQ(config.query_scalar, 64);
  EXPECT_EQ(config.embedding_scale, 12);
  EXPECT_EQ(config.residual_scale, 0.22);
  EXPECT_EQ(config.logit_scale, 0.125);
}

TEST_F(FamilyKeys, Olmo3ScalesAnglesOfLayersWithoutWindow) {
  const ModelConfig config = read("olmo3", "");
  EXPECT_EQ(config.window, 4096);
  EXPECT_EQ(config.window_layers, "wwwa");
  EXPECT_EQ(config.rope_theta, 5e5);
  EXPECT_EQ(config.window_rope_theta, 5e5);
  const std::string yarn = R"("rope_type": "yarn", "factor": 8.0,
      "original_max_position_embeddings": 64)";
  EXPECT_EQ(config_json(read("olmo3", concat(R"("rope_scaling": {)", yarn, "}"))),
            config_json(read("olmo3", concat(R"("rope_parameters": {"full_attention": {)", yarn,
                                             R"(, "rope_theta": 500000},
                "sliding_attention": {"rope_type": "default"}})"))));
  EXPECT_EQ(read("olmo3", R"("layer_types": ["full_attention", "full_attention", "full_attention",
                             "full_attention"])")
                .window_layers,
            "a");
  expect_refused("olmo3", R"("rope_theta": 10000.0)", "rope_theta: got 10000, want 500000");
  expect_refused("olmo3", concat(R"("rope_parameters": {)", yarn, "}"), "sliding_attention");
}

TEST_F(FamilyKeys, SmolLm3LayersWithoutRotation) {
  const auto layers = [&](const std::string& more) { return read("smollm3", more).window_layers; };
  EXPECT_EQ(layers(""), "aaan");
  EXPECT_EQ(layers(R"("no_rope_layer_interval": 2, "sliding_window": 9)"), "an");
  EXPECT_EQ(layers(R"("no_rope_layers": [0, 0, 1, 1, 1])"), "nnaa");
  const std::string window = R"("use_sliding_window": true, "sliding_window": 9)";
  EXPECT_EQ(layers(window), "aaav");
  EXPECT_EQ(read("smollm3", window).window, 9);
  EXPECT_EQ(layers(window + R"(, "layer_types": ["sliding_attention", "full_attention",
                                "full_attention", "full_attention"])"),
            "waan");
  expect_refused("smollm3", R"("no_rope_layers": [1, 0])", "a list of 4 numbers, 0 or 1");
  expect_refused("smollm3", R"("no_rope_layers": [1, 0, 2, 1])", "no_rope_layers[2]: got 2");
  expect_refused("smollm3", R"("sliding_window": 9, "layer_types": ["full_attention",
                 "full_attention", "full_attention", "sliding_attention"])",
                 "use_sliding_window");
}

TEST_F(FamilyKeys, Exaone4RotatesGlobalLayersOnlyWithoutWindow) {
  const std::string heads = R"("num_key_value_heads": 2)",
                    full = R"(, "layer_types": ["full_attention", "full_attention",
                              "full_attention", "full_attention"])";
  EXPECT_EQ(read("exaone4", heads).window_layers, "wwwn");
  EXPECT_EQ(read("exaone4", heads + R"(, "sliding_window_pattern": 2)").window_layers, "wn");
  EXPECT_EQ(read("exaone4", heads + R"(, "sliding_window_pattern": "LLLG")" + full).window_layers,
            "n");
  EXPECT_EQ(read("exaone4", heads + R"(, "sliding_window": null)" + full).window_layers, "a");
  EXPECT_EQ(said_.str(), "");
  expect_refused("exaone4", heads + R"(, "sliding_window_pattern": "LLLG")",
                 "sliding_window_pattern");
  expect_refused("exaone4", heads + R"(, "sliding_window": null, "layer_types": [
                 "full_attention", "sliding_attention", "full_attention", "full_attention"])",
                 "sliding_window is null");
  ModelConfig mixed = read("exaone4", heads);
  mixed.window_layers = "wa";
  const auto& layout = find_family("exaone4").hugging_face;
  EXPECT_THROW(hugging_face_config(mixed, layout, {}, DType::kF32), DataError);
}

TEST_F(FamilyKeys, Phi3ReadsLongrope) {
  const std::string lists = R"("short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0])",
                    sizes = R"("partial_rotary_factor": 0.5, "max_position_embeddings": 64,
                               "original_max_position_embeddings": 16, )";
  const ModelConfig config =
      read("phi3", concat(sizes, R"("rope_scaling": {"type": "longrope", )", lists, "}"));
  EXPECT_EQ(config.rotary_share, 0.5);
  EXPECT_EQ(config.rope_scaling.original_context, 16);
  EXPECT_EQ(config.rope_scaling.factor, 4);
  EXPECT_EQ(config.rope_scaling.short_factors, (std::vector<double>{1, 1.5}));
  EXPECT_NEAR(config.rope_scaling.amplitude(), std::sqrt(1.5), 1e-12);
  for (const char* other :
       {R"("rope_scaling": {"type": "su", )",
        R"("rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, )"})
    EXPECT_EQ(config_json(read("phi3", concat(sizes, other, lists, "}"))), config_json(config));
  const auto written =
      hugging_face_config(config, find_family("phi3").hugging_face, {}, DType::kF32);
  EXPECT_EQ(written.at("rope_scaling").as_object().size(), 3u) << "as version 4 requires";
  EXPECT_EQ(written.at("original_max_position_embeddings"), 16);
  EXPECT_EQ(said_.str(), "");
  expect_refused("phi3", R"("rope_scaling": {"type": "longrope", "short_factor": [1.0],
                 "long_factor": [2.0, 1.0, 1.0, 1.0]})",
                 "short_factor: got [1], want a list of 4 numbers above 0");
  expect_refused("phi3", R"("rope_scaling": {"rope_type": "linear", "factor": 2.0})",
                 "rope_type: got linear, want default or longrope");
  expect_refused("phi3", R"("attention_bias": true)", "attention_bias");
}

TEST_F(FamilyKeys, Glm4RotatesHalfOfEachHead) {
  EXPECT_EQ(read("glm4", "").rotary_share, 0.5);
  EXPECT_EQ(read("glm4", R"("rope_parameters": {"partial_rotary_factor": 0.25})").rotary_share,
            0.25);
  EXPECT_TRUE(read("glm4", "").attention_bias);
  expect_refused("glm4", R"("head_dim": 6)", "rotary_share");
}

TEST_F(FamilyKeys, UnknownRotaryLettersAreRefused) {
  std::vector<std::string> problems;
  ModelConfig model = read("qwen3", R"("num_key_value_heads": 2)");
  model.window_layers = "an";
  collect_model_problems(model, problems);
  EXPECT_EQ(problems.size(), 1u);
}

TEST_F(FamilyKeys, MixtureWindowLayersMatchTransformers) {
  const std::string sizes = R"("num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "sliding_window": 16,
      "max_window_layers": 2, "use_sliding_window": )";
  EXPECT_EQ(read("qwen3_moe", sizes + "false").window, 0);
  const ModelConfig all = read("qwen3_moe", sizes + "true");  // max_window_layers is ignored
  EXPECT_EQ(all.window, 16);
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_TRUE(all.window_layers.empty() || kind_of_layer(all.window_layers, i) == 'w') << i;
  EXPECT_EQ(read("qwen2_moe", sizes + "true").window_layers, "waaa");
  EXPECT_EQ(read("qwen2_moe", sizes + "false").window, 0);
}

TEST_F(FamilyKeys, MistralHasWindowsInAllLayersOrNone) {
  const auto keys = [](const char* window, const std::string& first) {
    return concat(R"("num_key_value_heads": 2, "sliding_window": )", window,
                  R"(, "layer_types": [")", first,
                  R"(", "sliding_attention", "sliding_attention", "sliding_attention"])");
  };
  EXPECT_EQ(read("mistral", keys("16", "sliding_attention")).window, 16);
  EXPECT_EQ(read("mistral", keys("null", "full_attention")).window, 0);
  expect_refused("mistral", keys("16", "full_attention"), "layer_types: got");
}

TEST_F(FamilyKeys, SharedExpertIsOptionalAndTopKIsBounded) {
  const std::string sizes = R"("num_key_value_heads": 2, "num_experts": 4,
      "moe_intermediate_size": 8, "shared_expert_intermediate_size": 0, "num_experts_per_tok": )";
  EXPECT_EQ(read("qwen2_moe", sizes + "2").experts.shared_width, 0);
  expect_refused("qwen2_moe", sizes + "5",
                 "num_experts_per_tok: got 5, want at most num_experts, 4");
}

TEST_F(FamilyKeys, RejectsUnsupportedKeysByName) {
  for (const char* key :
       {R"("partial_rotary_factor": 0.5)", R"("is_causal": false)", R"("rope_interleaved": true)",
        R"("pruned_heads": {"0": [1]})", R"("is_encoder_decoder": true)",
        R"("per_layer_config": {"1": {"rms_norm_eps": 0.3}})"}) {
    const std::string text(key);
    expect_refused("llama", text, text.substr(1, text.find('"', 1) - 1) + ": got");
  }
  expect_refused("llama", R"("quantization_config": {"quant_method": "bitsandbytes"})",
                 "want bitsandbytes (load_in_4bit or load_in_8bit)");
  expect_refused("llama",
                 R"("quantization_config": {"quant_method": "gptq", "load_in_4bit": true})",
                 "quantization_config.quant_method: got \"gptq\", want \"bitsandbytes\"");
  EXPECT_NO_THROW(read("llama", R"("quantization_config": null, "pretraining_tp": 1,
                                    "eos_token_id": [1, 2], "attention_dropout": 0.0)"));
  expect_refused("gemma2", R"("use_bidirectional_attention": true)",
                 "use_bidirectional_attention: got true, want false");
  expect_refused("llama", R"("rope_scaling": {"rope_type": "longrope", "factor": 2.0})",
                 "rope_scaling.short_factor: got null, want a list of 4 numbers above 0");
  expect_refused("llama", R"("rope_scaling": {"rope_type": "proportional", "factor": 2.0})",
                 "rope_scaling.rope_type: got \"proportional\", want default, linear");
  expect_refused("llama", R"("rope_scaling": {"rope_type": "linear"})",
                 "rope_scaling.factor is missing");
  expect_refused("llama", R"("hidden_act": "gelu")", "hidden_act: got \"gelu\", want \"silu\"");
  expect_refused("gemma2", R"("layer_types": ["full_attention"])", "layer_types: got");
  expect_refused("deepseek_v3", "", "model_type: got \"deepseek_v3\"");
}

}  // namespace
}  // namespace hybrid_trainer::testing
