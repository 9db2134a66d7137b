#include "src/trainer/late_gradient_checks.h"

#include <algorithm>
#include <array>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kWith = " does not go with phases.ingredient other_ranks; want ";

void check_optimizer(const std::string& path, const OptimizerConfig& given,
                     std::vector<std::string>& found) {
  if (given.name != "adamw" && given.name != "muon")
    found.push_back(concat(path, "name: got ", given.name, ", which", kWith, "adamw or muon"));
  if (given.state_bits != 32)
    found.push_back(concat(path, "state_bits: got ", given.state_bits, ", which", kWith, 32));
}

/// Ranks that train on by themselves need all of the state.
void check_zero(const HybridTrainerConfig& config, std::vector<std::string>& found) {
  const std::int64_t zero = config.distributed.zero;
  if (config.phases.takes_local_steps()) {
    if (zero > 0) {
      found.push_back(concat("distributed.zero: got ", zero,
                             ", which does not go with phases.local_steps; want 0"));
    }
  } else if (zero > 1) {
    found.push_back(concat("distributed.zero: got ", zero, ", which", kWith, "0 or 1"));
  }
}

}  // namespace

void collect_late_gradient_problems(const HybridTrainerConfig& config,
                                    std::vector<std::string>& found) {
  const auto want = [&](const char* key, const auto& got, const auto& wanted) {
    if (got != wanted) found.push_back(concat(key, ": got \"", got, "\", which", kWith, wanted));
  };
  want("memory.optimizer_state", config.memory.optimizer_state, std::string("device"));
  want("memory.weights", config.memory.weights, std::string("device"));
  want("memory.device_map", config.memory.device_map.empty() ? "none" : config.memory.device_map,
       std::string("none"));
  want("memory.gradients", config.memory.gradients, std::string("keep"));
  want("optimizer.paged", config.optimizer.paged ? "true" : "false", std::string("false"));
  const auto want_none = [&](const char* key, auto got) { want(key, got, decltype(got){}); };
  want_none("optimizer.slow_momentum", config.optimizer.slow_momentum);
  want_none("training.average_weights", config.training.average_weights);
  check_zero(config, found);
  constexpr std::array kSides{"anticipated", "shared", "momentum", "none"};
  if (std::find(kSides.begin(), kSides.end(), config.phases.device_side) == kSides.end()) {
    found.push_back(concat("phases.device_side: got ", config.phases.device_side, ", which", kWith,
                           "anticipated, shared, momentum or none"));
  }
  if (config.phases.takes_local_steps())
    want("phases.device_side", config.phases.device_side, std::string("anticipated"));
  const auto check_recovery = [&](const char* key, Recovery got) {
    if (got != Recovery::kRaiseThreshold && got != Recovery::kResetPredictor) return;
    found.push_back(concat("divergence.", key, ": got ", name_of(got), ", which", kWith,
                           "another one: there is neither confidence nor predictor"));
  };
  check_recovery("on_caution", config.divergence.on_caution);
  check_recovery("on_warning", config.divergence.on_warning);
  check_recovery("on_critical", config.divergence.on_critical);
  check_optimizer("optimizer.", config.optimizer, found);
  for (std::size_t i = 0; i < config.optimizer.groups.size(); ++i)
    check_optimizer(concat("optimizer.groups[", i, "]."),
                    config.optimizer.of(config.optimizer.groups[i]), found);
}

void collect_local_step_problems(const PhaseConfig& phases, std::vector<std::string>& found) {
  const std::int64_t steps = phases.local_steps, longest = phases.max_predict_steps;
  const auto bits = phases.exchange_bits;
  if (bits != 32 && bits != 8 && bits != 4)
    found.push_back(concat("phases.exchange_bits: got ", bits, ", want 32, 8 or 4"));
  if (!phases.takes_local_steps()) {
    const auto want = [&](const char* key, std::int64_t got, std::int64_t wanted) {
      if (got == wanted) return;
      found.push_back(concat("phases.", key, ": got ", got, ", which is for local steps; want ",
                             wanted,
                             ", or phases.ingredient other_ranks and phases.local_steps "
                             "above 0"));
    };
    want("local_fragments", phases.local_fragments, 1);
    if (bits == 8 || bits == 4) want("exchange_bits", bits, 32);
    return;
  }
  if (steps <= phases.lag) {
    found.push_back(concat("phases.local_steps: got ", steps, ", want more than phases.lag ",
                           phases.lag,
                           ", so that an exchange has arrived when the next one begins; or 0"));
  }
  if (longest > 0 && steps >= longest) {
    found.push_back(concat("phases.local_steps: got ", steps,
                           ", want fewer than phases.max_predict_steps ", longest, "; or 0"));
  }
  if (phases.local_fragments > steps) {
    found.push_back(concat("phases.local_fragments: got ", phases.local_fragments,
                           ", want at most phases.local_steps ", steps,
                           ", so that each fragment has a step of its own to begin at"));
  }
}

}  // namespace hybrid_trainer
