#include "src/tools/config_arguments.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"

namespace hybrid_trainer {

void add_config_options(po::options_description& options, ConfigArguments& arguments) {
  options.add_options()("preset", po::value(&arguments.preset)->value_name("NAME"),
                        concat("A ready configuration: ", join(preset_names()), ".").c_str());
  options.add_options()("config", po::value(&arguments.file)->value_name("FILE"),
                        "A JSON configuration; keys that it leaves out keep their defaults.");
  add_setting_options(options, arguments);
}

void add_setting_options(po::options_description& options, ConfigArguments& arguments) {
  options.add_options()(
      "set", po::value(&arguments.settings)->composing()->value_name("KEY=VALUE"),
      "Change one key, for example training.steps=500; may be given more than once.");
  options.add_options()("max-device-memory",
                        po::value(&arguments.device_memory)->value_name("SIZE"),
                        "Most device memory, as 7GiB; another name of memory.device_budget.");
}

HybridTrainerConfig build_config(const ConfigArguments& arguments,
                                 const HybridTrainerConfig& otherwise) {
  if (!arguments.preset.empty() && !arguments.file.empty()) {
    throw UsageError("--preset and --config are both given; give one, and change keys with --set");
  }
  HybridTrainerConfig config =
      arguments.preset.empty() && arguments.file.empty() ? otherwise : HybridTrainerConfig{};
  if (!arguments.preset.empty()) config = preset_config(arguments.preset);
  if (!arguments.file.empty()) read_config(config, arguments.file);

  std::vector<std::string> problems, settings = arguments.settings;
  if (!arguments.device_memory.empty())
    settings.push_back("memory.device_budget=" + arguments.device_memory);
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(
          concat("--set ", setting, ": want KEY=VALUE, for example training.steps=500"));
    }
    try {
      set_field(config, setting.substr(0, equals), setting.substr(equals + 1));
    } catch (const ConfigError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  const auto of_fields = config.problems();
  problems.insert(problems.end(), of_fields.begin(), of_fields.end());
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return config;
}

}  // namespace hybrid_trainer
