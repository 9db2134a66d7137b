#include "hybrid_trainer/trainer/rank_checks.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// Settings of as many examples a step with at least `ranks` micro-batches, in words.
std::string way_to_enough_micro_batches(const HybridTrainerConfig& config, int ranks) {
  const std::int64_t examples = config.data.batch_size * config.gradient_accumulation.micro_batches;
  for (std::int64_t count = ranks; count <= examples; ++count) {
    if (examples % count != 0) continue;
    return concat("data.batch_size=", examples / count,
                  " and gradient_accumulation.micro_batches=", count, " are as many examples");
  }
  return concat("a step of ", examples, " examples has no more than ", examples, " ranks");
}

}  // namespace

void check_ranks(const HybridTrainerConfig& config, int ranks) {
  std::vector<std::string> found;
  const std::int64_t micro_batches = config.gradient_accumulation.micro_batches;
  if (micro_batches < ranks) {
    found.push_back(
        concat("gradient_accumulation.micro_batches: got ", micro_batches, " for ", ranks,
               " ranks; want one for each at least: ", way_to_enough_micro_batches(config, ranks)));
  }
  const auto refuse = [&](bool asked, const char* key, const char* want) {
    if (asked) found.push_back(concat(key, ": does not go with ranks; want ", want));
  };
  refuse(config.memory.gradients != "keep", "memory.gradients", "keep");
  refuse(config.phases.lacks_optimizer_state(), "phases.ingredient", "backward or other_ranks");
  refuse(!config.stretches.empty(), "stretches", "none");
  refuse(config.training.cuda_graphs, "training.cuda_graphs", "false");
  const std::int64_t zero = config.distributed.zero;
  if (zero > 0) {
    const auto refuse_parts = [&](bool asked, const std::string& key, const char* want) {
      if (asked)
        found.push_back(concat(key, ": does not go with distributed.zero ", zero, "; want ", want));
    };
    const auto is_random = [](const PredictionArm& arm) { return arm.predictor == "random"; };
    refuse_parts(config.phases.predictor == "random" ||
                     std::any_of(config.phases.arms.begin(), config.phases.arms.end(), is_random),
                 "phases.predictor random", "another one: a rank would draw its own part alone");
    refuse_parts(zero == 3 && config.memory.weights != "device", "memory.weights", "device");
    refuse_parts(zero == 3 && config.distributed.check_weights_every > 0,
                 "distributed.check_weights_every", "0: no weight is there twice");
    refuse_parts(zero == 3 && !config.memory.device_map.empty(), "memory.device_map", "none");
  }
  const bool is_on_cpu = find_device(config.device).type == DeviceType::kCpu;
  if (config.phases.lacks_other_ranks() && ranks == 1) {
    found.emplace_back(
        "phases.ingredient: got other_ranks, but there is one rank alone; want backward, "
        "or more ranks: --ranks N, or of a plan --devices N");
  }
  if (ranks > 1) {
    refuse(!imitated_link_text(config.distributed).empty() && !is_on_cpu,
           "distributed.imitated_link", "none on CUDA devices");
    refuse(config.memory.plan == "auto", "memory.plan",
           "off, and the options that hybrid plan names: each rank would choose its own");
    refuse(config.memory.device_map == "auto", "memory.device_map", "places by name");
  }
  try {
    backend_of(config.distributed, find_device(config.device));
  } catch (const ConfigError& error) {
    found.push_back(error.what());
  }
  if (!found.empty()) throw ConfigError(found);
}

}  // namespace hybrid_trainer
