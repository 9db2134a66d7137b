#include "src/config/placement.h"

#include "hybrid_trainer/memory/memory_places.h"

namespace hybrid_trainer {

namespace {

using Config = HybridTrainerConfig;

struct PlacementRow {
  const char* what;
  const char *place_keys, *places, *bits_key, *bits;  // texts for the table
  bool (*is_at_place)(const Config& config, const std::string& place);
  std::int64_t (*bits_of)(const Config& config);
  std::vector<MemoryKind> kinds;
};

/// Returns the bits of weights or frozen base; 0 if the base has the formats of a GGUF file.
std::int64_t bits_of_weights(const Config& config) {
  if (!config.lora.is_on()) return 32;
  const std::string& base = config.lora.base;
  if (base == kFileBase) return 0;
  return base == "fp32" ? 32 : base == "bf16" ? 16 : base == "int8" ? 8 : 4;
}

const std::vector<PlacementRow>& placement_rows() {
  static const std::vector<PlacementRow> rows{
      {"weights",
       "`memory.weights`; for individual weights `memory.device_map`",
       "device, host, file",
       "`mixed_precision`",
       "32, with 16-bit copies for bf16",
       [](const Config& config, const std::string& place) {
         return DeviceMap(config.memory).uses(place);
       },
       bits_of_weights,
       {MemoryKind::kParameters, MemoryKind::kMasterWeights}},
      {"gradients",
       "`memory.gradients`",
       "keep: device; consume: host, or the weights' file, unless each is updated immediately",
       "`memory.gradient_bits`",
       "32, 16",
       [](const Config& config, const std::string& place) {
         const bool leave = config.memory.gradients == "consume" && !config.updates_at_once();
         return place == (leave ? DeviceMap(config.memory).overflow() : "device");
       },
       [](const Config& config) { return config.memory.gradient_bits; },
       {MemoryKind::kGradients}},
      {"optimizer state",
       "`memory.optimizer_state`, `optimizer.paged`; with delayed updates "
       "`phases.asynchronous_optimizer.exact_state`, also for masters",
       "device, host, file",
       "`optimizer.state_bits`",
       "32, 16, 8",
       [](const Config& config, const std::string& place) {
         return place == config.optimizer_state_home();
       },
       [](const Config& config) { return config.optimizer.state_bits; },
       {MemoryKind::kOptimizerState}},
      {"activations",
       "`memory.activations`",
       "device, host, file",
       "`memory.activation_bits`",
       "32, 16, 8",
       [](const Config& config, const std::string& place) {
         return place == config.memory.activations;
       },
       [](const Config& config) { return config.memory.activation_bits; },
       {MemoryKind::kActivations}},
  };
  return rows;
}

}  // namespace

std::vector<Placement> placements(const HybridTrainerConfig& config) {
  std::vector<Placement> found;
  for (const PlacementRow& row : placement_rows()) {
    for (const std::string& place : placement_names()) {
      if (row.is_at_place(config, place))
        found.push_back({row.what, place, row.bits_of(config), row.kinds});
    }
  }
  return found;
}

bool uses_place(const HybridTrainerConfig& config, const std::string& place) {
  return std::ranges::any_of(
      placement_rows(), [&](const PlacementRow& row) { return row.is_at_place(config, place); });
}

std::string placement_markdown() {
  std::string out =
      "| data | location | values | bits | values |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const PlacementRow& row : placement_rows())
    out += concat("| ", row.what, " | ", row.place_keys, " | ", row.places, " | ", row.bits_key,
                  " | ", row.bits, " |\n");
  return out;
}

}  // namespace hybrid_trainer
