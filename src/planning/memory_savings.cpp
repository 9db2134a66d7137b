#include "hybrid_trainer/planning/memory_savings.h"

#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

struct MemoryOption {
  const char* key;
  const char* off;
};

constexpr const char* kMethod = "phases.method";
constexpr const char* kPredictsOffload = "predict_aware_memory.offload_strategy";
constexpr MemoryOption kMemoryOptions[] = {
    {"memory.recompute", "0"},        {"memory.activations", "device"},
    {"memory.activation_bits", "32"}, {"memory.optimizer_state", "device"},
    {"memory.weights", "device"},     {"memory.gradients", "keep"},
    {"memory.gradient_bits", "32"},   {"optimizer.state_bits", "32"},
    {"optimizer.paged", "false"},     {kMethod, "skip_backward"},
    {kPredictsOffload, "none"},
};
constexpr const char* kMicroBatchesKey = "gradient_accumulation.micro_batches";

std::string text_at(const FieldNode& node, std::string_view path) {
  const std::size_t dot = path.find('.');
  for (const FieldNode& field : node.fields) {
    if (field.name != path.substr(0, dot)) continue;
    return dot == std::string_view::npos ? field_text(field) : text_at(field, path.substr(dot + 1));
  }
  return "";
}

std::int64_t less(std::size_t without, std::size_t with) {
  return static_cast<std::int64_t>(without) - static_cast<std::int64_t>(with);
}

}  // namespace

std::vector<MemorySaving> simulate_savings(const HybridTrainerConfig& config, Device device,
                                           const ModelRegistry& registry,
                                           const SimulatedRank& rank) {
  HybridTrainerConfig as_is = config;
  as_is.memory.host_budget = {};  // as large as the simulation wants it
  const MemoryNeed with = simulate_memory(as_is, device, SimulatedPhases::kAll, registry, rank);
  std::vector<MemorySaving> savings;
  const auto add = [&](const char* key, const HybridTrainerConfig& changed) {
    const std::string value = text_at(field_tree(config), key);
    if (value == text_at(field_tree(changed), key)) return;
    const MemoryNeed without =
        simulate_memory(changed, device, SimulatedPhases::kAll, registry, rank);
    MemorySaving& saving = savings.emplace_back();
    saving.option = key;
    saving.value = value;
    saving.device_bytes = less(without.device_bytes, with.device_bytes);
    for (std::size_t i = 0; i < kPhases; ++i)
      saving.by_phase[i] = less(without.phases[i].peak_bytes, with.phases[i].peak_bytes);
  };
  for (const auto& [key, off] : kMemoryOptions) {
    if (key == kMethod && config.phases.runs_ahead_of_ranks()) continue;  // for speed
    const bool predicts = config.phases.max_predict_steps > 0;
    if (key == kPredictsOffload && (!predicts || config.optimizer_state_home() != "device"))
      continue;
    HybridTrainerConfig changed = as_is;
    set_field(changed, key, off);
    if (key == kMethod) changed.memory.gradient_bits = 32;  // 16 are for delayed updates
    add(key, changed);
  }
  if (rank.ranks > 1) return savings;  // each has a micro-batch at least
  HybridTrainerConfig whole = as_is;
  whole.data.batch_size *= whole.gradient_accumulation.micro_batches;
  whole.gradient_accumulation.micro_batches = 1;
  add(kMicroBatchesKey, whole);
  return savings;
}

}  // namespace hybrid_trainer
