#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// --preset, --config, --set and --max-device-memory as they were given.
struct ConfigArguments {
  std::string preset;                 // "" where not given
  std::string file;                   // "" where not given
  std::vector<std::string> settings;  // "group.key=value"
  std::string device_memory;          // memory.device_budget; "" where not given
  bool names_a_source() const { return !preset.empty() || !file.empty(); }
  /// Whether an option or the file has the key. Throws as build_config does.
  bool sets(const std::string& key) const;
};

/// Declares the options, bound to `arguments`, which must outlive the parsing.
void add_config_options(po::options_description& options, ConfigArguments& arguments);
/// --preset, --config and --set alone.
void add_source_options(po::options_description& options, ConfigArguments& arguments);
/// --set and --max-device-memory alone.
void add_setting_options(po::options_description& options, ConfigArguments& arguments);
/// --tensorboard, another name of observability.tensorboard=true.
void add_tensorboard_option(po::options_description& options, ConfigArguments& arguments);

/// The preset or the file on top of the defaults, or `otherwise` alone; then each setting in turn;
/// then validated as a whole. Throws UsageError if preset and file are both given or a setting has
/// no "=", MissingInput, or one ConfigError with the problems of all settings and fields. `before_settings`
/// changes what the settings then change.
HybridTrainerConfig build_config(
    const ConfigArguments& arguments, const HybridTrainerConfig& otherwise = HybridTrainerConfig(),
    const std::function<void(HybridTrainerConfig& config)>& before_settings = {});

/// The keys that were set: by a setting, or by the file to another value than the default.
std::vector<std::string> explicit_keys(const ConfigArguments& arguments);

/// Sets the vocabulary of the preset for `command`, which has no data. Throws UsageError if a language
/// model has none then.
void set_vocabulary(const std::string& command, const ConfigArguments& arguments,
                    HybridTrainerConfig& config);

/// Cuts the usual batch of a run that begins into a micro-batch for each rank, where no batch is set.
void divide_batch(const ConfigArguments& arguments, int ranks, HybridTrainerConfig& config);

/// Makes the phases of a run of fewer than 1000 steps shorter in proportion, where their lengths are
/// not set: Warmup is a tenth of the run, and a fiftieth lies between two predictions. A run that
/// goes on, with `begun` as its configuration, keeps its lengths.
void scale_phases(HybridTrainerConfig& config, const ConfigArguments& arguments,
                  const HybridTrainerConfig* begun = nullptr);

}  // namespace hybrid_trainer
