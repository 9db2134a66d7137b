#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/models/families/families.h"

namespace hybrid_trainer {
namespace {

const ModelFamily* family_in(const ModelRegistry& registry, const std::string& name) {
  const auto found = std::find_if(registry.begin(), registry.end(),
                                  [&](const ModelFamily& family) { return family.name == name; });
  return found == registry.end() ? nullptr : &*found;
}

std::string unknown(const std::string& name, const ModelRegistry& registry) {
  return choice_problem("model.family", name, names_of(registry));
}

}  // namespace

const ModelRegistry& model_families() {
  static const ModelRegistry families{
      gpt2_family(),  llama_family(),  mistral_family(), qwen2_family(),
      qwen3_family(), gemma2_family(), gemma3_family(),
  };
  return families;
}

const ModelFamily& find_family(const std::string& name, const ModelRegistry& registry) {
  return named_row(registry, "model.family", name);
}

ModelConfig resolved_model_config(const ModelConfig& config, const ModelRegistry& registry) {
  const ModelFamily& family = find_family(config.family, registry);
  return family.resolved == nullptr ? config : family.resolved(config);
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, std::uint64_t seed,
                                          const Stream& stream, const ModelRegistry& registry) {
  std::vector<std::string> problems;
  collect_range_problems(config, "model", problems);
  collect_model_problems(config, problems, registry);
  if (config.vocabulary == 0) problems.emplace_back("model.vocabulary: got 0, want at least 1");
  if (!problems.empty()) throw ConfigError(problems);
  return find_family(config.family, registry)
      .make(resolved_model_config(config, registry), seed, stream);
}

void collect_model_problems(const ModelConfig& config, std::vector<std::string>& problems,
                            const ModelRegistry& registry) {
  if (registry.empty()) return;
  const ModelFamily* family = family_in(registry, config.family);
  if (family == nullptr) {
    problems.push_back(unknown(config.family, registry));
    return;
  }
  const auto& keys = family->keys;
  const auto refuse = [&](const char* key, auto value, auto normal) {
    if (value == normal || std::find(keys.begin(), keys.end(), key) != keys.end()) return;
    problems.push_back(concat("model.", key, ": got ", value, ", and the family ", family->name,
                              " has no such key; leave it out"));
  };
  const ModelConfig defaults;
  refuse("heads", config.heads, defaults.heads);
  refuse("dropout", config.dropout, defaults.dropout);
  refuse("initializer_range", config.initializer_range.value_or(0), 0.0);
  refuse("key_heads", config.key_heads, defaults.key_heads);
  refuse("head_size", config.head_size, defaults.head_size);
  refuse("inner_width", config.inner_width, defaults.inner_width);
  refuse("norm_epsilon", config.norm_epsilon, defaults.norm_epsilon);
  refuse("rope_theta", config.rope_theta, defaults.rope_theta);
  refuse("rope_scaling", config.rope_scaling.type, defaults.rope_scaling.type);
  refuse("tied_head", config.tied_head, defaults.tied_head);
  refuse("attention_bias", config.attention_bias, defaults.attention_bias);
  refuse("mlp_bias", config.mlp_bias, defaults.mlp_bias);
  refuse("window", config.window, defaults.window);
  refuse("window_layers", config.window_layers, defaults.window_layers);
  refuse("window_rope_theta", config.window_rope_theta, defaults.window_rope_theta);
  refuse("query_scalar", config.query_scalar, defaults.query_scalar);
  refuse("attention_cap", config.attention_cap, defaults.attention_cap);
  refuse("logit_cap", config.logit_cap, defaults.logit_cap);
  family->collect_problems(config, problems);
}

}  // namespace hybrid_trainer
