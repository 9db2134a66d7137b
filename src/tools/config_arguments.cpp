#include "src/tools/config_arguments.h"

#include <algorithm>
#include <boost/json/value.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kDeviceBudget = "memory.device_budget";
constexpr std::int64_t kFullLengthRun = 1000;  // minimum steps for the default phase lengths

/// Adds the keys whose values differ; both nodes describe the same struct.
void collect_changed(const FieldNode& before, const FieldNode& after, const std::string& path,
                     std::vector<std::string>& keys) {
  for (std::size_t i = 0; i < after.fields.size(); ++i) {
    const FieldNode &was = before.fields[i], &is = after.fields[i];
    const std::string at = path.empty() ? is.name : path + "." + is.name;
    if (is.is_group()) {
      collect_changed(was, is, at, keys);
    } else if (was.left_out != is.left_out || field_text(was) != field_text(is)) {
      keys.push_back(at);
    }
  }
}

/// Applies --set and --max-device-memory, and returns problems. A later --set of a key overrides an
/// earlier one. If both options give a device budget, the budgets must be equal.
std::vector<std::string> apply_settings(HybridTrainerConfig& config,
                                        const ConfigArguments& arguments) {
  std::vector<std::string> problems;
  const auto set = [&](const std::string& path, const std::string& value) {
    try {
      set_field(config, path, value);
    } catch (const ConfigError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  };
  bool sets_budget = false;
  for (const std::string& setting : arguments.settings) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(
          concat("--set ", setting, ": want KEY=VALUE, for example training.steps=500"));
    }
    const std::string path = setting.substr(0, equals);
    set(path, setting.substr(equals + 1));
    sets_budget = sets_budget || (path == kDeviceBudget && problems.empty());
  }
  if (arguments.device_memory.empty()) return problems;
  const MemorySize given = config.memory.device_budget;
  set(kDeviceBudget, arguments.device_memory);
  if (const MemorySize now = config.memory.device_budget; sets_budget && now.bytes != given.bytes)
    problems.push_back(concat("--max-device-memory makes ", kDeviceBudget, " ", now.text(),
                              ", but --set makes it ", given.text(), "; give one of the two"));
  return problems;
}

}  // namespace

bool ConfigArguments::sets(const std::string& key) const {
  const auto has_it = [&](const std::string& setting) { return setting.starts_with(key + "="); };
  if (std::ranges::any_of(settings, has_it)) return true;
  if (key == kDeviceBudget && !device_memory.empty()) return true;
  if (file.empty()) return false;
  JsonKeys keys;
  parse_json_text(read_text(file, JsonLimits{}.max_bytes), file, keys);
  return keys.lines.contains(key);
}

static void add_set_option(po::options_description& options, ConfigArguments& arguments) {
  const auto add =
      [&arguments](const std::vector<std::string>& all) {  // other options set keys, too
        arguments.settings.insert(arguments.settings.end(), all.begin(), all.end());
      };
  options.add_options()(
      "set",
      po::value<std::vector<std::string>>()->composing()->notifier(add)->value_name("KEY=VALUE"),
      "Set a configuration key, for example training.steps=500; may be given more than once.");
}

static void add_memory_option(po::options_description& options, ConfigArguments& arguments) {
  options.add_options()("max-device-memory",
                        po::value(&arguments.device_memory)->value_name("SIZE"),
                        "Maximum device memory, for example 7GiB; same as memory.device_budget.");
}

void add_source_options(po::options_description& options, ConfigArguments& arguments) {
  options.add_options()("preset", po::value(&arguments.preset)->value_name("NAME"),
                        "Built-in configuration, for example tiny or qwen3-0.6b; `hybrid config "
                        "--presets` lists all.");
  options.add_options()("config", po::value(&arguments.file)->value_name("FILE"),
                        "JSON configuration file; omitted keys keep their defaults.");
  add_set_option(options, arguments);
}

void add_config_options(po::options_description& options, ConfigArguments& arguments) {
  add_source_options(options, arguments);
  add_memory_option(options, arguments);
}

void add_setting_options(po::options_description& options, ConfigArguments& arguments) {
  add_set_option(options, arguments);
  add_memory_option(options, arguments);
}

HybridTrainerConfig build_config(
    const ConfigArguments& arguments, const HybridTrainerConfig& otherwise,
    const std::function<void(HybridTrainerConfig& config)>& before_settings) {
  if (!arguments.preset.empty() && !arguments.file.empty()) {
    throw UsageError(
        "--preset and --config are both given; give one of them, and change keys with --set");
  }
  HybridTrainerConfig config =
      arguments.preset.empty() && arguments.file.empty() ? otherwise : HybridTrainerConfig{};
  if (!arguments.preset.empty()) config = preset_config(arguments.preset);
  if (!arguments.file.empty()) read_config(config, arguments.file);
  if (before_settings) before_settings(config);

  std::vector<std::string> problems = apply_settings(config, arguments);
  const auto of_fields = config.problems();
  problems.insert(problems.end(), of_fields.begin(), of_fields.end());
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return config;
}

std::vector<std::string> explicit_keys(const ConfigArguments& arguments) {
  std::vector<std::string> keys, changed;
  for (const std::string& setting : arguments.settings)
    keys.push_back(setting.substr(0, setting.find('=')));
  if (arguments.file.empty()) return keys;
  HybridTrainerConfig config;
  read_config(config, arguments.file);
  const HybridTrainerConfig defaults;
  collect_changed(field_tree(defaults), field_tree(config), "", changed);
  JsonKeys in_file;
  parse_json_text(read_text(arguments.file, JsonLimits{}.max_bytes), arguments.file, in_file);
  for (const auto& [name, line] : in_file.lines) {
    if (std::ranges::count(changed, name) > 0) keys.push_back(name);
  }
  return keys;
}

void set_vocabulary(const std::string& command, const ConfigArguments& arguments,
                    HybridTrainerConfig& config) {
  const ModelFamily& family = find_family(config.model.family);
  if (config.model.vocabulary != 0 || !family.is_language_model) return;
  for (const ModelPreset& preset : family.presets)
    if (preset.name == arguments.preset) config.model.vocabulary = preset.vocabulary;
  if (config.model.vocabulary == 0)
    throw UsageError(command +
                     ": give --set model.vocabulary=N, the number of tokens in the tokenizer");
}

void divide_batch(const ConfigArguments& arguments, int ranks, HybridTrainerConfig& config) {
  std::int64_t& parts = config.gradient_accumulation.micro_batches;
  const bool is_set =
      arguments.sets("gradient_accumulation.micro_batches") || arguments.sets("data.batch_size");
  if (is_set || parts >= ranks || config.effective_batch() < ranks) return;
  config.data.batch_size = config.effective_batch() / ranks;
  parts = ranks;
}

void scale_phases(HybridTrainerConfig& config, const ConfigArguments& arguments,
                  const HybridTrainerConfig* begun) {
  const std::int64_t steps = config.training.steps;
  PhaseConfig scaled = config.phases;
  if (begun != nullptr) {
    scaled = begun->phases;
  } else if (steps < kFullLengthRun && !config.learning_rate_finder.is_on()) {
    scaled.warmup_steps = std::min(scaled.warmup_steps, steps / 10);
    scaled.full_steps = std::min(scaled.full_steps, std::max<std::int64_t>(4, steps / 50));
  }
  if (!arguments.sets("phases.warmup_steps")) config.phases.warmup_steps = scaled.warmup_steps;
  if (!arguments.sets("phases.full_steps")) config.phases.full_steps = scaled.full_steps;
}

}  // namespace hybrid_trainer
