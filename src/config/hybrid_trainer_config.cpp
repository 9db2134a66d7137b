#include "hybrid_trainer/config/hybrid_trainer_config.h"

#include <charconv>

#include "hybrid_trainer/memory/memory_places.h"
#include "phases/refusal.h"
#include "src/config/config_checks.h"
#include "src/core/messages.h"

namespace hybrid_trainer {

const std::vector<std::string>& part_precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16"};
  return names;
}

const std::vector<std::string>& part_base_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = frozen_base_names();
    std::erase(all, kFileBase);
    return all;
  }();
  return names;
}

namespace {

/// Returns which tokens continue a word. Throws ConfigError if none begins one.
std::vector<bool> continuations_of(const Tokenizer* tokenizer) {
  std::vector<bool> continues;
  if (tokenizer != nullptr) continues = word_continuations(*tokenizer);
  if (std::ranges::count(continues, false) > 0) return continues;
  throw ConfigError(
      {concat("objective: got masked_words, but ",
              tokenizer == nullptr ? "the data has no tokenizer"
                                   : "no token of the data's tokenizer begins a word",
              "; want masked, or a tokenizer that marks words with spaces, ▁ or ##")});
}

/// Returns the entries of memory.device_map for the parts.
std::string places_of(const std::vector<PartConfig>& parts) {
  std::string text;
  for (const PartConfig& part : parts)
    if (part.place) text += concat(text.empty() ? "" : ",", part.pattern, "=", *part.place);
  return text;
}

OptimizerGroupConfig group_of(const PartConfig& part) {
  return {.match = part.pattern,
          .name = part.optimizer,
          .learning_rate = part.learning_rate,
          .weight_decay = part.weight_decay,
          .state_bits = part.state_bits};
}

bool is_of_part(const OptimizerGroupConfig& group, const PartConfig& part) {
  const OptimizerGroupConfig own = group_of(part);
  return group.name == own.name && group.learning_rate == own.learning_rate &&
         group.weight_decay == own.weight_decay && group.state_bits == own.state_bits &&
         !group.betas && !group.epsilon && !group.momentum;
}

/// Adds problems of `parts` that can be found without the model.
void collect_part_problems(const HybridTrainerConfig& config, std::vector<std::string>& found) {
  const auto refuse = [&](const PartConfig& part, const std::string& what) {
    found.push_back(concat("parts.", part.pattern, what));
  };
  for (std::size_t i = 0; i < config.parts.size(); ++i) {
    const PartConfig& part = config.parts[i];
    const bool has_settings =
        part.computes() || part.lora || part.base || part.place || part.has_optimizer();
    if (part.pattern.empty())
      refuse(part, ": the pattern is empty, want names with *, such as video.*");
    if (!has_settings)
      refuse(part, ": got {}, which has no effect; want a key, such as recompute, or no entry");
    if (part.lora == 0 && !config.lora.is_on())
      refuse(part,
             ".lora: got 0, but lora.rank is 0, so the part has no adapters in any case; leave the "
             "key out");
    if (part.place && part.pattern.find_first_of("=,") != std::string::npos)
      refuse(part, ".place: want a pattern without = and ,");
    if (part.place && config.memory.device_map == "auto")
      refuse(part, concat(".place: got ", *part.place,
                          ", but memory.device_map is auto, which chooses placements itself; want "
                          "only one of the two"));
    for (const OptimizerGroupConfig& group : config.optimizer.groups)
      if (part.has_optimizer() && group.match == part.pattern && !is_of_part(group, part))
        refuse(part,
               ": optimizer.groups has this pattern too, with other settings; want only one of the "
               "two");
    for (std::size_t k = 0; k < i; ++k)
      if (config.parts[k].pattern == part.pattern) refuse(part, ": the pattern is given twice");
  }
}

}  // namespace

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16", "fp16", "fp8", "auto"};
  return names;
}

const std::string& MixedPrecisionConfig::of(Phase phase) const {
  switch (phase) {
    case Phase::kWarmup: return warmup;
    case Phase::kFull: return full;
    case Phase::kPredict: return predict;
    case Phase::kCorrect: break;
  }
  return correct;
}

HybridTrainerConfigBuilder HybridTrainerConfig::builder() { return {}; }

/// Returns a config whose groups with profiles are replaced by profile_of(group).
template <class Profile>
static HybridTrainerConfig with_profiles(const Profile& profile_of) {
  HybridTrainerConfig config;
  config.phases = profile_of(config.phases);
  config.mixed_precision = profile_of(config.mixed_precision);
  config.gradient_accumulation = profile_of(config.gradient_accumulation);
  config.predict_aware_memory = profile_of(config.predict_aware_memory);
  return config;
}

HybridTrainerConfig HybridTrainerConfig::conservative() {
  return with_profiles([]<class Group>(const Group&) { return Group::conservative(); });
}

HybridTrainerConfig HybridTrainerConfig::balanced() {
  return with_profiles([]<class Group>(const Group&) { return Group::balanced(); });
}

HybridTrainerConfig HybridTrainerConfig::aggressive() {
  return with_profiles([]<class Group>(const Group&) { return Group::aggressive(); });
}

bool HybridTrainerConfig::has_adapters() const {
  return lora.is_on() || std::ranges::any_of(parts, &PartConfig::is_adapted);
}

bool HybridTrainerConfig::freezes() const {
  return lora.is_on() || std::ranges::any_of(parts, &PartConfig::freezes);
}

HybridTrainerConfig HybridTrainerConfig::with_parts() const {
  HybridTrainerConfig config = *this;
  const std::string places = places_of(parts);
  std::string& map = config.memory.device_map;
  const bool is_present = map == places || map.starts_with(places + ",");
  if (!is_present && !places.empty() && map != "auto")  // "auto" with places is refused later
    map = map.empty() ? places : concat(places, ",", map);
  auto& groups = config.optimizer.groups;
  for (const PartConfig& part : parts) {
    const bool has_group =
        std::ranges::count(groups, part.pattern, &OptimizerGroupConfig::match) > 0;
    if (part.has_optimizer() && !has_group) groups.push_back(group_of(part));
  }
  return config;
}

std::optional<MaskSettings> HybridTrainerConfig::masking(std::optional<std::int64_t> words,
                                                         const Tokenizer* tokenizer) const {
  if (!masks()) return {};
  const std::int64_t known = std::min(words.value_or(data_vocabulary()), data_vocabulary());
  MaskSettings masking{mask_share,
                       static_cast<std::int32_t>(adds_mask() ? data_vocabulary() : mask_token),
                       static_cast<std::int32_t>(known)};
  if (tokenizer != nullptr) masking.special = special_token_ids_of(*tokenizer).ids;
  if (objective == "masked_words") masking.continues = continuations_of(tokenizer);
  return masking;
}

std::string HybridTrainerConfig::optimizer_state_home() const {
  if (phases.traits().delays_updates) return phases.asynchronous_optimizer.exact_state;
  const bool is_on_host = optimizer.paged && memory.optimizer_state == "device";
  return is_on_host ? "host" : memory.optimizer_state;
}

bool HybridTrainerConfig::computes_in(const std::string& precision) const {
  const bool predicts = phases.max_predict_steps > 0;
  const auto is_of = [&](Phase phase) { return mixed_precision.of(phase) == precision; };
  return is_of(Phase::kWarmup) || is_of(Phase::kFull) ||
         (predicts && (is_of(Phase::kPredict) || is_of(Phase::kCorrect))) ||
         std::ranges::any_of(
             stages, [&](const StageConfig& stage) { return stage.precision == precision; });
}

bool HybridTrainerConfig::updates_at_once() const {
  const bool norm_may_skip_update =
      divergence.max_skipped_updates > 0 || divergence.critical_after > 0 ||
      std::max(divergence.on_caution, divergence.on_warning) >= Recovery::kSkipBatch ||
      divergence.rolls_back();
  return memory.gradients == "consume" && optimizer.clip_norm == 0 && !norm_may_skip_update &&
         phases.max_predict_steps == 0 && !optimizer.paged && !computes_in("fp16");
}

bool HybridTrainerConfig::saves_by_time() const {
  return checkpoint.every_minutes > 0 && !divergence.rolls_back() &&
         !phases.traits().runs_ahead_of_ranks;
}

std::vector<std::string> HybridTrainerConfig::problems(const ModelRegistry& registry) const {
  std::vector<std::string> found;
  collect_range_problems(*this, "", found);
  collect_model_problems(model, found, registry);
  collect_part_problems(*this, found);
  const HybridTrainerConfig whole = with_parts();
  collect_device_map_problems(whole.memory, found);
  whole.optimizer.collect_problems("optimizer", found);
  collect_cross_problems(whole, found);
  if (std::ranges::count(method_names(), phases.method) > 0)
    collect_refusals(refusals_of(phases.method), whole, "phases.method " + phases.method, found);
  return found;
}

void HybridTrainerConfig::validate(const ModelRegistry& registry) const {
  if (auto found = problems(registry); !found.empty()) throw ConfigError(std::move(found));
}

std::vector<std::int64_t> TextTaskConfig::dimension_list() const {
  std::vector<std::int64_t> numbers;
  std::istringstream in(dimensions);
  for (std::string word; std::getline(in, word, ',');) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool is_number = error == std::errc{} && end == word.data() + word.size();
    numbers.push_back(is_number ? number : 0);
  }
  return numbers;
}

HybridTrainerConfig HybridTrainerConfigBuilder::build(const ModelRegistry& registry) const {
  config_.validate(registry);
  return config_;
}

std::vector<std::string> preset_names(const ModelRegistry& registry) {
  std::vector<std::string> names;
  for (const ModelFamily& family : registry) {
    for (const ModelPreset& preset : family.presets) names.push_back(preset.name);
  }
  return names;
}

HybridTrainerConfig preset_config(const std::string& name, const ModelRegistry& registry) {
  for (const ModelFamily& family : registry) {
    for (const ModelPreset& preset : family.presets) {
      if (name != preset.name) continue;
      HybridTrainerConfig config;
      config.model = preset.model;
      config.model.family = family.name;
      config.objective = usual_objective(config.model);
      config.data.batch_size = preset.batch_size;
      config.data.sequence_length = preset.sequence_length;
      config.optimizer.name = preset.optimizer;
      config.optimizer.learning_rate = preset.learning_rate;
      return config;
    }
  }
  throw ConfigError({concat("--preset: there is no preset \"", name, "\"",
                            name_hint(name, preset_names(registry)))});
}

}  // namespace hybrid_trainer
