#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "src/core/machine.h"
#include "src/files/config_fields.h"
#include "src/observability/jsonl_sink.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// Everything in which two configs' runs can differ: weights, phases, memory, checkpoints, errors.
std::string fingerprint(const HybridTrainerConfig& config, const std::filesystem::path& data,
                        const std::filesystem::path& run) {
  std::ostringstream text;
  try {
    train_tiny(config, data, run);
  } catch (const Error& error) {
    return concat("error ", error.what());
  }
  text << "threads " << threads() << "\n";
  for_each_record(run / "metrics.jsonl", [&](const StepRecord& record) {
    text << record.step << ' ' << name_of(record.phase) << ' ' << record.loss << ' '
         << record.learning_rate << ' ' << record.tokens << ' '
         << record.validation_loss.has_value() << ' ' << record.confidence.value_or(-1) << ' '
         << record.host_memory.live_total << ' ' << record.device_memory.peak_total << ' '
         << record.memory_risk << ' ' << record.cost << ' ' << record.event << '\n';
    for (std::size_t live : record.device_memory.live) text << live << ' ';
  });
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints"))
    text << entry.path().filename();
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    files.insert(entry.path().filename().string());
  for (const std::string& name : files) text << name << ' ';
  text << newest_checkpoint_digest(run);
  return text.str();
}

/// For each field, a value that differs from tiny_config's, and settings with which it matters.
const std::map<std::string, std::vector<std::pair<std::string, std::string>>>& flips() {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  static const std::map<std::string, Settings> table{
      {"model.layers", {{"model.layers", "2"}}},
      {"model.heads", {{"model.heads", "4"}}},
      {"model.width", {{"model.width", "32"}}},
      {"model.context", {{"model.context", "32"}}},
      {"model.vocabulary", {{"model.vocabulary", "64"}}},
      {"model.dropout", {{"model.dropout", "0.2"}}},
      {"model.initializer_range", {{"model.initializer_range", "0.05"}}},
      {"model.kv_heads", {{"model.kv_heads", "1"}}},
      {"model.head_size", {{"model.head_size", "4"}}},
      {"model.intermediate_size", {{"model.intermediate_size", "48"}}},
      {"model.norm_epsilon", {{"model.norm_epsilon", "0.1"}}},
      {"model.rope_theta", {{"model.rope_theta", "100"}}},
      {"model.rope_scaling.type",
       {{"model.rope_scaling.type", "linear"}, {"model.rope_scaling.factor", "2"}}},
      {"model.rope_scaling.factor", {{"model.rope_scaling.factor", "3"}}},
      {"model.rope_scaling.original_context", {{"model.rope_scaling.original_context", "4"}}},
      {"model.rope_scaling.low_frequency", {{"model.rope_scaling.low_frequency", "0.1"}}},
      {"model.rope_scaling.high_frequency", {{"model.rope_scaling.high_frequency", "9"}}},
      {"model.rope_scaling.beta_fast", {{"model.rope_scaling.beta_fast", "32"}}},
      {"model.rope_scaling.beta_slow", {{"model.rope_scaling.beta_slow", "0.1"}}},
      {"model.rope_scaling.attention_factor", {{"model.rope_scaling.attention_factor", "3"}}},
      {"model.rope_scaling.mscale", {{"model.rope_scaling.mscale", "9"}}},
      {"model.rope_scaling.mscale_all_dim", {{"model.rope_scaling.mscale_all_dim", "9"}}},
      {"model.rope_scaling.truncate", {{"model.rope_scaling.truncate", "false"}}},
      {"model.tied_head", {{"model.tied_head", "true"}}},
      {"model.attention_bias", {{"model.attention_bias", "true"}}},
      {"model.mlp_bias", {{"model.mlp_bias", "true"}}},
      {"model.window", {{"model.window", "2"}}},
      {"model.window_layers", {{"model.window_layers", "aw"}}},
      {"model.window_rope_theta", {{"model.window_rope_theta", "100"}}},
      {"model.attention_pattern.block", {{"model.attention_pattern.block", "2"}}},
      {"model.attention_pattern.local_blocks", {{"model.attention_pattern.local_blocks", "2"}}},
      {"model.attention_pattern.global_blocks", {{"model.attention_pattern.global_blocks", "3"}}},
      {"model.attention_pattern.random_blocks", {{"model.attention_pattern.random_blocks", "3"}}},
      {"model.query_scalar", {{"model.query_scalar", "100"}}},
      {"model.attention_cap", {{"model.attention_cap", "0.1"}}},
      {"model.logit_cap", {{"model.logit_cap", "0.1"}}},
      {"model.mixers", {{"model.mixers", "am"}}},
      {"model.bidirectional", {{"model.bidirectional", "true"}, {"objective", "masked"}}},
      {"objective", {{"objective", "masked"}, {"model.bidirectional", "true"}}},
      {"mask_share", {{"mask_share", "0.5"}}},
      {"mask_token", {{"mask_token", "3"}}},
      {"model.token_types", {{"model.token_types", "2"}}},
      {"model.semiseparable.rank", {{"model.semiseparable.rank", "2"}}},
      {"model.semiseparable.potentials", {{"model.semiseparable.potentials", "2"}}},
      {"model.state_space.heads", {{"model.state_space.heads", "2"}}},
      {"model.state_space.head_size", {{"model.state_space.head_size", "4"}}},
      {"model.state_space.groups", {{"model.state_space.groups", "2"}}},
      {"model.state_space.state_size", {{"model.state_space.state_size", "4"}}},
      {"model.state_space.taps", {{"model.state_space.taps", "2"}}},
      {"model.state_space.biases", {{"model.state_space.biases", "true"}}},
      {"model.state_space.convolution_bias", {{"model.state_space.convolution_bias", "false"}}},
      {"model.state_space.least_step", {{"model.state_space.least_step", "0.5"}}},
      {"model.state_space.most_step", {{"model.state_space.most_step", "0.01"}}},
      {"model.rotary_share", {{"model.rotary_share", "0"}}},
      {"model.embedding_scale", {{"model.embedding_scale", "12"}}},
      {"model.residual_scale", {{"model.residual_scale", "0.3"}}},
      {"model.logit_scale", {{"model.logit_scale", "0.3"}}},
      {"lora.rank", {{"lora.rank", "2"}}},
      {"lora.expert_rank", {{"lora.expert_rank", "3"}}},
      {"model.experts.count", {{"model.experts.count", "5"}}},
      {"model.experts.chosen", {{"model.experts.chosen", "1"}}},
      {"model.experts.intermediate_size", {{"model.experts.intermediate_size", "24"}}},
      {"model.experts.rule", {{"model.experts.rule", "softmax_of_chosen"}}},
      {"model.experts.layers", {{"model.experts.layers", "f"}}},
      {"model.experts.shared_width", {{"model.experts.shared_width", "16"}}},
      {"model.experts.gate_limit", {{"model.experts.gate_limit", "0.01"}}},
      {"model.experts.balance_loss", {{"model.experts.balance_loss", "0.3"}}},
      {"model.experts.bias_rate", {{"model.experts.bias_rate", "0.1"}}},
      {"model.experts.z_loss", {{"model.experts.z_loss", "0.3"}}},
      {"model.query_key_value_limit", {{"model.query_key_value_limit", "0.01"}}},
      {"lora.alpha", {{"lora.alpha", "8"}}},
      {"lora.dropout", {{"lora.dropout", "0.2"}}},
      {"lora.targets", {{"lora.targets", "c_attn,mlp.c_proj"}}},
      {"lora.variant", {{"lora.variant", "rslora"}}},
      {"lora.base", {{"lora.base", "bf16"}}},
      {"data.batch_size", {{"data.batch_size", "8"}}},
      {"data.sequence_length", {{"data.sequence_length", "8"}}},
      {"data.shuffle", {{"data.shuffle", "false"}}},
      {"data.carry_state", {{"data.carry_state", "true"}}},
      {"training.steps", {{"training.steps", "30"}}},
      {"training.seed", {{"training.seed", "1"}}},
      {"training.evaluate_every_steps", {{"training.evaluate_every_steps", "10"}}},
      {"training.patience", {{"training.patience", "1"}}},
      {"training.min_improvement", {{"training.min_improvement", "100"}}},
      {"training.threads", {{"training.threads", "1"}}},
      {"training.average_weights", {{"training.average_weights", "8"}}},
      {"training.label_smoothing", {{"training.label_smoothing", "0.1"}}},
      {"optimizer.name", {{"optimizer.name", "muon"}}},
      {"optimizer.learning_rate", {{"optimizer.learning_rate", "1e-3"}}},
      {"optimizer.betas", {{"optimizer.betas", "[0.8,0.9]"}}},
      {"optimizer.epsilon", {{"optimizer.epsilon", "1e-4"}}},
      {"optimizer.momentum", {{"optimizer.momentum", "0.5"}}},
      {"optimizer.weight_decay", {{"optimizer.weight_decay", "0"}}},
      {"optimizer.clip_norm", {{"optimizer.clip_norm", "0.01"}}},
      {"optimizer.state_bits", {{"optimizer.state_bits", "8"}}},
      {"optimizer.paged", {{"optimizer.paged", "true"}}},
      {"optimizer.slow_momentum", {{"optimizer.slow_momentum", "0.5"}}},
      {"optimizer.slow_momentum_steps", {{"optimizer.slow_momentum_steps", "10"}}},
      {"optimizer.orthogonalization_period", {{"optimizer.orthogonalization_period", "3"}}},
      {"optimizer.orthogonalization_blocks", {{"optimizer.orthogonalization_blocks", "4"}}},
      {"optimizer.groups", {{"optimizer.groups", R"([{"match": "vector", "name": "sgd"}])"}}},
      {"schedule.name", {{"schedule.name", "constant"}}},
      {"schedule.warmup_steps", {{"schedule.warmup_steps", "8"}}},
      {"schedule.final_fraction", {{"schedule.final_fraction", "0.5"}}},
      {"schedule.decay_share", {{"schedule.decay_share", "0.9"}}},
      {"stages", {{"stages", R"([{"until": 0.5, "sequence_length": 8}])"}}},
      {"parts", {{"parts.h.0.mlp.*.lora", "2"}}},
      {"learning_rate_finder.mode", {{"learning_rate_finder.mode", "warmup"}}},
      {"mixed_precision.warmup", {{"mixed_precision.warmup", "bf16"}}},
      {"mixed_precision.full", {{"mixed_precision.full", "bf16"}}},
      {"mixed_precision.predict", {{"mixed_precision.predict", "bf16"}}},
      {"mixed_precision.correct", {{"mixed_precision.correct", "bf16"}}},
      {"mixed_precision.loss_scale", {{"mixed_precision.loss_scale", "1024"}}},
      {"mixed_precision.loss_scale_growth_steps",
       {{"mixed_precision.loss_scale_growth_steps", "1"}}},
      {"gradient_accumulation.micro_batches", {{"gradient_accumulation.micro_batches", "2"}}},
      {"memory.device_budget", {{"memory.device_budget", "100kB"}}},
      {"memory.host_budget", {{"memory.host_budget", "1kB"}}},
      {"memory.recompute", {{"memory.recompute", "1"}}},
      {"memory.activations", {{"memory.activations", "host"}}},
      {"memory.activation_bits", {{"memory.activation_bits", "8"}}},
      {"memory.gradient_bits",
       {{"memory.gradient_bits", "16"}, {"phases.method", "asynchronous_optimizer"}}},
      {"memory.optimizer_state", {{"memory.optimizer_state", "host"}}},
      {"memory.weights", {{"memory.weights", "host"}}},
      {"memory.device_map", {{"memory.device_map", "h.*=host"}}},
      {"memory.gradients", {{"memory.gradients", "consume"}}},
      {"memory.plan", {{"memory.plan", "auto"}}},
      {"memory.allow_lossy", {{"memory.allow_lossy", "true"}}},
      {"memory.folder", {{"memory.folder", "/proc"}}},
      {"memory.timeline", {{"memory.timeline", "1"}}},
      {"predict_aware_memory.offload_strategy",
       {{"predict_aware_memory.offload_strategy", "none"}}},
      {"checkpoint.every_steps", {{"checkpoint.every_steps", "7"}}},
      {"checkpoint.every_minutes", {{"checkpoint.every_minutes", "1e-9"}}},
      {"checkpoint.keep", {{"checkpoint.keep", "1"}}},
      {"observability.tensorboard", {{"observability.tensorboard", "true"}}},
      {"checkpoint.keep_best", {{"checkpoint.keep_best", "1"}}},
      {"device", {{"device", "cuda"}}},
  };
  return table;
}

/// Settings that a field needs to have any effect, applied to both configs.
std::vector<std::pair<std::string, std::string>> ground(const std::string& field) {
  if (field == "model.query_key_value_limit") return {{"model.family", "olmoe"}};
  if (field == "model.experts.gate_limit")
    return {{"model.family", "gpt_oss"}, {"model.experts.count", "4"}};
  if (field.rfind("model.experts.", 0) == 0)
    return {
        {"model.family", "qwen2_moe"}, {"model.experts.count", "4"}, {"model.experts.chosen", "2"}};
  if (field == "lora.expert_rank")
    return {{"model.family", "mixtral"}, {"model.experts.count", "4"}, {"lora.rank", "2"}};
  for (const char* key :
       {"kv_heads", "head_size", "intermediate_size", "norm_epsilon", "rope_theta", "tied_head",
        "attention_bias", "mlp_bias", "rope_scaling.type"}) {
    if (field == concat("model.", key)) return {{"model.family", "llama"}};
  }
  if (field == "model.rope_scaling.factor")
    return {{"model.family", "llama"}, {"model.rope_scaling.type", "linear"}};
  for (const char* key : {"low_frequency", "high_frequency", "original_context"}) {
    if (field == concat("model.rope_scaling.", key)) {
      return {{"model.family", "llama"},
              {"model.rope_scaling.type", "llama3"},
              {"model.rope_scaling.factor", "4"}};
    }
  }
  if (field.rfind("model.rope_scaling.mscale", 0) == 0) {
    return {{"model.family", "llama"},
            {"model.rope_scaling.type", "yarn"},
            {"model.rope_scaling.factor", "4"},
            {"model.rope_scaling.mscale", "1"},
            {"model.rope_scaling.mscale_all_dim", "2"}};
  }
  if (field.rfind("model.rope_scaling.", 0) == 0) {
    return {{"model.family", "llama"},
            {"model.rope_scaling.type", "yarn"},
            {"model.rope_scaling.factor", "4"},
            {"model.rope_scaling.original_context", "1000"},
            {"model.rope_scaling.beta_fast", "2"}};
  }
  for (const char* key :
       {"window_layers", "window_rope_theta", "query_scalar", "attention_cap", "logit_cap"}) {
    if (field == concat("model.", key)) return {{"model.family", "gemma3"}, {"model.window", "3"}};
  }
  for (const char* key :
       {"mixers", "rotary_share", "embedding_scale", "residual_scale", "logit_scale"}) {
    if (field == concat("model.", key))
      return {{"model.family", "granitemoehybrid"}, {"model.layers", "2"}, {"model.mixers", "ma"}};
  }
  if (field == "model.bidirectional" || field == "objective")
    return {{"model.family", "semiseparable"}};
  if (field == "model.token_types")
    return {{"model.family", "bert"}, {"model.bidirectional", "true"}, {"objective", "masked"}};
  if (field.starts_with("model.semiseparable.") || field.starts_with("mask_"))
    return {{"model.family", "semiseparable"},
            {"model.bidirectional", "true"},
            {"objective", "masked"},
            {"model.layers", "2"},
            {"model.mixers", "tb"}};
  if (field.starts_with("model.state_space.")) {
    return {{"model.family", "granitemoehybrid"},
            {"model.mixers", "m"},
            {"model.state_space.heads", "4"},
            {"model.state_space.head_size", "8"}};
  }
  if (field.starts_with("model.attention_pattern."))
    return {{"model.attention_pattern.block", "1"},
            {"model.attention_pattern.local_blocks", "1"},
            {"model.attention_pattern.global_blocks", "1"},
            {"model.attention_pattern.random_blocks", "1"}};
  if (field == "model.window") return {{"model.family", "mistral"}};
  if (field.starts_with("lora.") && field != "lora.rank") return {{"lora.rank", "2"}};
  if (field == "optimizer.momentum") return {{"optimizer.name", "sgd"}};
  if (field == "optimizer.orthogonalization_period") return {{"optimizer.name", "muon"}};
  if (field == "optimizer.orthogonalization_blocks")
    return {{"optimizer.name", "muon"}, {"optimizer.orthogonalization_period", "2"}};
  if (field == "optimizer.slow_momentum_steps") return {{"optimizer.slow_momentum", "0.5"}};
  if (field == "optimizer.state_bits") return {{"model.width", "64"}};
  if (field == "training.patience")
    return {{"training.evaluate_every_steps", "1"}, {"training.min_improvement", "100"}};
  if (field == "training.min_improvement")
    return {{"training.evaluate_every_steps", "2"}, {"training.patience", "2"}};
  if (field == "checkpoint.keep_best") return {{"training.evaluate_every_steps", "7"}};
  if (field == "schedule.decay_share") return {{"schedule.name", "wsd"}};
  if (field == "memory.recompute") return {{"model.layers", "4"}};
  if (field == "memory.folder") return {{"memory.activations", "file"}};
  if (field == "memory.plan") return {{"memory.device_budget", "1300kB"}, {"model.width", "64"}};
  if (field == "memory.allow_lossy") {
    return {{"memory.plan", "auto"},
            {"memory.device_budget", "1150kB"},
            {"memory.host_budget", "1kB"},
            {"phases.max_predict_steps", "0"},
            {"model.width", "64"}};
  }
  if (field == "learning_rate_finder.mode")
    return {{"phases.warmup_steps", "30"}, {"optimizer.learning_rate", "3e-5"}};
  if (field.starts_with("mixed_precision.loss_scale"))
    return {{"mixed_precision.warmup", "fp16"}, {"mixed_precision.loss_scale", "1"}};
  if (field.starts_with("mixed_precision.")) return {{"mixed_precision.predict", "fp32"}};
  return {};
}

/// Groups whose fields are each changed by a test of their layer.
bool tested_below(const std::string& path) {
  return path.starts_with("phases.") || path.starts_with("divergence.") ||
         path == "data.control_tokens" || path == "data.columns" ||  // in example_rows_test.cpp
         path == "data.mask_frames" || path == "data.mirror_pictures" ||
         path.starts_with("model.vision.") ||   // both in picture_run_test.cpp
         path.starts_with("model.encoder.") ||  // in speech_run_test.cpp and source_run_test.cpp
         path.starts_with("model.trident.") ||  // in trident_run_test.cpp
         path.starts_with("model.series.") ||   // in series_run_test.cpp
         path == "preference_beta" ||           // in preference_run_test.cpp
         path == "data.validation_fraction" || path == "checkpoint.every_epochs" ||
         path == "observability.answers" ||
         path == "data.layout" ||           // all three in fine_tuning_run_test.cpp
         path == "export.dtype" ||          // in lora_run_test.cpp and fine_tuning_run_test.cpp
         path == "training.cuda_graphs" ||  // in test_cuda
         path == "memory.segment_length" || path == "memory.kept_segments" ||  // segments_test.cpp
         path.starts_with("distributed.") ||                                   // in zero_test.cpp
         path == "model.language_head" ||  // in encoder_golden_test.cpp
         path.starts_with("texts.") || path == "model.pooling" ||
         path == "model.labels" ||  // all three in text_run_test.cpp
         path == "model.dense" ||   // in embedding_golden_test.cpp
         path == "model.family";    // in second_family_test.cpp
}

void collect_leaves(const FieldNode& node, const std::string& path,
                    std::vector<std::string>& leaves) {
  for (const FieldNode& field : node.fields) {
    const std::string at = path.empty() ? field.name : path + "." + field.name;
    if (field.is_constant) continue;  // changed by the tests of its layer
    if (field.is_group()) {
      collect_leaves(field, at, leaves);
    } else {
      leaves.push_back(at);
    }
  }
}

TEST(ConfigFields, EachHasFlipOrLayerTest) {
  std::vector<std::string> leaves;
  const HybridTrainerConfig config;
  collect_leaves(field_tree(config), "", leaves);
  for (const std::string& leaf : leaves)
    EXPECT_TRUE(flips().contains(leaf) || tested_below(leaf)) << leaf;
}

void collect_needs(const FieldNode& node, std::vector<KeyTest>& tests) {
  for (const FieldNode& field : node.fields) {
    for (const KeyNeed& need : field.needs)
      tests.insert(tests.end(), need.any_of.begin(), need.any_of.end());
    if (field.is_group()) collect_needs(field, tests);
  }
}

TEST(ConfigFields, NeedsUseExistingKeysAndValues) {
  const HybridTrainerConfig config;
  const FieldNode tree = field_tree(config);
  std::vector<KeyTest> tests;
  collect_needs(tree, tests);
  EXPECT_GT(tests.size(), 50u);
  for (const KeyTest& test : tests) {
    if (test.key == "ranks") continue;
    const std::size_t index = test.key.find("[].");
    const FieldNode* field = field_at(tree, test.key.substr(0, index));
    ASSERT_NE(field, nullptr) << test.key;
    if (index != std::string::npos) {
      const auto at =
          std::ranges::find(field->fields, test.key.substr(index + 3), &FieldNode::name);
      ASSERT_NE(at, field->fields.end()) << test.key;
      field = &*at;
    }
    for (const std::string& value : test.values)
      EXPECT_TRUE(field->choices.empty() || value.empty() ||
                  std::ranges::count(field->choices, value) > 0)
          << test.key << " " << value;
  }
}

TEST(ConfigFields, EachFlipChangesRun) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  const int all = threads();
  std::map<std::string, std::string> bases;
  int count = 0;
  const auto run = [&](const std::vector<std::pair<std::string, std::string>>& settings) {
    HybridTrainerConfig config = tiny_config();
    for (const auto& [path, value] : settings) set_field(config, path, value);
    return fingerprint(config, scratch / "data", scratch / concat("run", count++));
  };
  for (const auto& [field, settings] : flips()) {
    auto base = ground(field);
    std::string key;
    for (const auto& [path, value] : base) key += concat(path, '=', value, ' ');
    if (!bases.contains(key)) bases[key] = run(base);
    for (const auto& setting : settings) base.push_back(setting);
    if (field == "training.threads" && all == 1) continue;
    EXPECT_NE(run(base), bases[key]) << field << " changes nothing";
  }
  set_threads(all);
}

TEST(ConfigFields, DocumentationMatchesFields) {
  const auto has = [](const std::string& page, const std::string& text) {
    std::ifstream file(concat(HT_SOURCE_DIR, "/docs/", page));
    std::stringstream all;
    all << file.rdbuf();
    return all.str().find(text) != std::string::npos;
  };
  const auto table = [](const std::string& markdown) {
    return markdown.substr(0, markdown.find("\n\n"));  // without the tables of lists
  };
  EXPECT_TRUE(has("CONFIG.md", config_markdown(HybridTrainerConfig{})))
      << "docs/CONFIG.md is outdated: run `build/bin/hybrid config --markdown > docs/CONFIG.md`";
  EXPECT_TRUE(has("NETWORKS.md", table(config_markdown(TridentConfig{}))));
  EXPECT_TRUE(has("NETWORKS.md", table(config_markdown(SeriesConfig{}))));
  EXPECT_TRUE(has("IMAGES.md", table(config_markdown(VisionConfig{}))));
}

TEST(ConfigFields, FilesContainOnlyKeysOfFamily) {
  for (const ModelFamily& family : model_families()) {
    HybridTrainerConfig config;
    config.model.family = family.name;
    config.model.initializer_range = 0.5;  // would be omitted otherwise
    const boost::json::value written = boost::json::parse(config_json(config));
    std::set<std::string> keys, wanted{"family", "layers", "width", "context", "vocabulary"};
    for (const auto& [key, value] : written.at("model").as_object()) keys.emplace(key);
    wanted.insert(family.keys.begin(), family.keys.end());
    if (family.is_language_model) wanted.insert({"pooling", "dense", "labels"});
    wanted.erase("token_types");  // a constant, which is omitted if it has its default
    EXPECT_EQ(keys, wanted) << family.name;
  }
}

TEST(ConfigFields, RejectsNonDefaultKeysOfOtherFamilies) {
  HybridTrainerConfig config;
  read_config_text(config, R"({"model": {"trident": {"frames": 8}, "kv_heads": 0}})", "text");
  EXPECT_EQ(config.problems(), std::vector<std::string>());
  read_config_text(config, R"({"model": {"trident": {"frames": 16}}})", "text");
  EXPECT_EQ(config.problems(),
            std::vector<std::string>{"model.trident.frames: got 16, but the family gpt2 has no "
                                     "such key; leave it out"});
}

TEST(ConfigFields, WordsOfAListAreWrittenAsLetters) {
  HybridTrainerConfig listed;
  read_config_text(listed, R"({"model": {"family": "granitemoehybrid", "mixers":
      ["mamba2", "mamba2", "attention"], "experts": {"layers": ["feed_forward", "experts"]},
      "window_layers": ["sliding_attention", "full_attention"]}})",
                   "text");
  EXPECT_EQ(listed.model.mixers, "mma");
  EXPECT_EQ(listed.model.experts.layers, "fe");
  EXPECT_EQ(listed.model.window_layers, "wa");
  HybridTrainerConfig spelled;
  spelled.model.family = "granitemoehybrid";
  set_field(spelled, "model.mixers", R"(["mamba2", "mamba2", "attention"])");
  EXPECT_EQ(spelled.model.mixers, "mma");
  set_field(spelled, "model.mixers", "mma");
  spelled.model.experts.layers = "fe";
  spelled.model.window_layers = "wa";
  EXPECT_EQ(config_json(listed), config_json(spelled));
  set_field(spelled, "model.mixers", "[]");
  EXPECT_EQ(spelled.model.mixers, "") << "the family's pattern";
}

TEST(ConfigFields, UnknownWordOfAListNamesAllWords) {
  const auto problem = [](const char* text) {
    HybridTrainerConfig config;
    return message_of<ConfigError>([&] { set_field(config, "model.window_layers", text); });
  };
  const std::string wanted =
      ", want one of the words of w (sliding_attention), a (full_attention), v "
      "(sliding_attention_without_rotation) and n (full_attention_without_rotation)";
  EXPECT_EQ(problem(R"(["full_attention", "full"])"),
            "model.window_layers[1]: got \"full\"" + wanted);
  EXPECT_EQ(problem("[3]"), "model.window_layers[0]: got 3" + wanted);
  EXPECT_EQ(problem("[full_attention]"),
            "model.window_layers: got [full_attention], want a list "
            "such as [\"sliding_attention\"]");
  HybridTrainerConfig config;
  EXPECT_EQ(message_of<ConfigError>(
                [&] { read_config_text(config, "{\"model\": {\"mixers\": 3}}", "text"); }),
            "text:1: model.mixers: got 3, want a string of letters or a list of words");
  EXPECT_EQ(message_of<ConfigError>([&] {
              set_field(config, "objective", "[\"masked\"]");
            }).find("words"),
            std::string::npos)
      << "other texts have no letters";
}

TEST(ConfigFields, SchemaOfLettersAllowsAListOfWords) {
  const boost::json::value schema = boost::json::parse(json_schema(HybridTrainerConfig{}));
  const boost::json::value& layers =
      schema.at("properties").at("model").at("properties").at("window_layers");
  EXPECT_EQ(layers.at("type"), (boost::json::array{"string", "array"}));
  EXPECT_EQ(layers.at("items").at("enum"),
            (boost::json::array{"sliding_attention", "full_attention",
                                "sliding_attention_without_rotation",
                                "full_attention_without_rotation"}));
}

TEST(ConfigFields, TablesContainOnlyKeysOfModelKind) {
  HybridTrainerConfig config;
  const auto has = [&](const char* key) {
    return config_markdown(config).find(concat("| `model.", key, "` |")) != std::string::npos;
  };
  EXPECT_TRUE(has("heads") && has("kv_heads") && has("experts.count") && !has("trident.frames"));
  config.model.family = "trident";
  EXPECT_TRUE(has("heads") && has("trident.frames") && !has("kv_heads") && !has("labels"));
}

}  // namespace
}  // namespace hybrid_trainer
