#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Values of --preset, --config, --set and --max-device-memory.
struct ConfigArguments {
  std::string preset;                 // "" if not given
  std::string file;                   // "" if not given
  std::vector<std::string> settings;  // "group.key=value"
  std::string device_memory;          // memory.device_budget; "" if not given
  bool names_a_source() const { return !preset.empty() || !file.empty(); }
  /// Returns whether an option or the file sets the key. Throws like build_config.
  bool sets(const std::string& key) const;
};

/// Declares the options and binds them to `arguments`, which must outlive the parsing.
void add_config_options(po::options_description& options, ConfigArguments& arguments);
/// Declares only --preset, --config and --set.
void add_source_options(po::options_description& options, ConfigArguments& arguments);
/// Declares only --set and --max-device-memory.
void add_setting_options(po::options_description& options, ConfigArguments& arguments);

/// Builds and validates the configuration: the preset, the file or `otherwise`, changed by each
/// --set in order. `before_settings` may change it before the first --set. Throws UsageError if
/// preset and file are both given or a setting has no "=", MissingInput, or one ConfigError with
/// all problems.
HybridTrainerConfig build_config(
    const ConfigArguments& arguments, const HybridTrainerConfig& otherwise = HybridTrainerConfig(),
    const std::function<void(HybridTrainerConfig& config)>& before_settings = {});

/// Returns the keys that --set sets, and the keys that the file sets to non-default values.
std::vector<std::string> explicit_keys(const ConfigArguments& arguments);

/// Sets the preset's vocabulary. Throws UsageError if a language model has none.
void set_vocabulary(const std::string& command, const ConfigArguments& arguments,
                    HybridTrainerConfig& config);

/// Divides a new run's default batch into one micro-batch per rank, unless a batch is set.
void divide_batch(const ConfigArguments& arguments, int ranks, HybridTrainerConfig& config);

/// Shortens the phases of a run of fewer than 1000 steps in proportion, unless their lengths are
/// set or the learning rate finder is on. Warmup then takes at most a tenth of the run, and the
/// Full steps between two predictions take at most a fiftieth. Up to 4 steps are always allowed. A
/// resumed run, which has the configuration `begun`, keeps its lengths.
void scale_phases(HybridTrainerConfig& config, const ConfigArguments& arguments,
                  const HybridTrainerConfig* begun = nullptr);

}  // namespace hybrid_trainer
