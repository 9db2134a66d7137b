#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/models/families/gpt2.h"

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
      gpt2_family(),
  };
  return families;
}

const ModelFamily& find_family(const std::string& name, const ModelRegistry& registry) {
  return named_row(registry, "model.family", name);
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, std::uint64_t seed,
                                          const Stream& stream, const ModelRegistry& registry) {
  std::vector<std::string> problems;
  collect_range_problems(config, "model", problems);
  collect_model_problems(config, problems, registry);
  if (config.vocabulary == 0) problems.emplace_back("model.vocabulary: got 0, want at least 1");
  if (!problems.empty()) throw ConfigError(problems);
  return find_family(config.family, registry).make(config, seed, stream);
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
  family->collect_problems(config, problems);
}

}  // namespace hybrid_trainer
