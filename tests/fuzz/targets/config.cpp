#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "src/files/config_fields.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  HybridTrainerConfig config;
  read_config_text(config, std::string(input), "config.json");
  if (config.problems().empty()) {  // A valid config keeps its values in a file.
    HybridTrainerConfig copy;
    read_config_text(copy, config_json(config), "copy.json");
    require(config_json(copy) == config_json(config), "a config differs from its copy in a file");
  }
}
