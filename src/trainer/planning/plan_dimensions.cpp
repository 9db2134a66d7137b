#include "src/trainer/planning/plan_dimensions.h"

#include <algorithm>
#include <initializer_list>

namespace hybrid_trainer {

namespace {

std::size_t position_of(const std::vector<std::string>& values, const std::string& value) {
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

/// Batches that are halved and accumulated: the same examples a step.
Dimension micro_batches(const HybridTrainerConfig& config) {
  Dimension dimension{{}, [](HybridTrainerConfig& changed, const std::string& value) {
                        const std::int64_t factor = std::stoll(value);
                        changed.data.batch_size /= factor;
                        changed.gradient_accumulation.micro_batches *= factor;
                      }};
  dimension.saves_always = false;  // each takes a sum of gradients
  for (std::int64_t factor = 1; config.data.batch_size % factor == 0; factor *= 2)
    dimension.values.push_back(std::to_string(factor));
  return dimension;
}

/// A key of the memory group that holds a name.
Dimension of_names(std::string MemoryConfig::*key, const std::vector<std::string>& names,
                   const MemoryConfig& given) {
  return {names,
          [key](HybridTrainerConfig& changed, const std::string& value) {
            changed.memory.*key = value;
          },
          position_of(names, given.*key)};
}

Dimension recomputed_share(const MemoryConfig& given) {
  Dimension dimension{{"0", "0.25", "0.5", "0.75", "1"},
                      [](HybridTrainerConfig& changed, const std::string& value) {
                        changed.memory.recompute =
                            std::max(changed.memory.recompute, std::stod(value));
                      }};
  dimension.saves_always = false;  // of what is computed again, some is there once more
  while (std::stod(dimension.values[dimension.first]) < given.recompute) ++dimension.first;
  return dimension;
}

/// A key that holds a number of bits, which may be one of `fewer`; that changes a run's bits.
Dimension fewer_bits(std::int64_t given, std::initializer_list<std::int64_t> fewer,
                     std::int64_t& (*key)(HybridTrainerConfig& config)) {
  Dimension dimension{{std::to_string(given)},
                      [key](HybridTrainerConfig& changed, const std::string& value) {
                        key(changed) = std::stoll(value);
                      }};
  for (const std::int64_t bits : fewer) {
    if (given > bits) dimension.values.push_back(std::to_string(bits));
  }
  return dimension;
}

/// Where late updates leave masters and state, in place of weights, gradients and state.
Dimension exact_state(const HybridTrainerConfig& given) {
  return {exact_state_names(),
          [](HybridTrainerConfig& changed, const std::string& value) {
            changed.phases.asynchronous_optimizer.exact_state = value;
          },
          position_of(exact_state_names(), given.phases.asynchronous_optimizer.exact_state)};
}

Dimension valid(Dimension dimension, const HybridTrainerConfig& given,
                const ModelRegistry& registry) {
  const std::size_t problems = given.problems(registry).size();
  std::vector<std::string> values;
  std::size_t first = 0;
  for (std::size_t i = 0; i < dimension.values.size(); ++i) {
    HybridTrainerConfig changed = given;
    dimension.set(changed, dimension.values[i]);
    if (i != dimension.first && changed.problems(registry).size() > problems) continue;
    if (i <= dimension.first) first = values.size();
    values.push_back(dimension.values[i]);
  }
  dimension.values = std::move(values);
  dimension.first = first;
  return dimension;
}

std::vector<Dimension> all_dimensions(const HybridTrainerConfig& config, bool with_files) {
  const MemoryConfig& given = config.memory;
  std::vector<Dimension> dimensions{micro_batches(config), recomputed_share(given)};
  const bool is_late = config.phases.traits().delays_updates;
  if (given.allow_lossy) {
    dimensions.push_back(
        is_late ? fewer_bits(
                      config.memory.gradient_bits, {16},
                      [](auto& changed) -> auto& { return changed.memory.gradient_bits; })
                : fewer_bits(
                      config.optimizer.state_bits, {16, 8},
                      [](auto& changed) -> auto& { return changed.optimizer.state_bits; }));
    dimensions.push_back(fewer_bits(
        given.activation_bits, {8},
        [](auto& changed) -> auto& { return changed.memory.activation_bits; }));
  }
  const auto add = [&](std::string MemoryConfig::*key) {
    std::vector<std::string> names = placement_names();
    if (!with_files && given.*key != "file") names.pop_back();
    dimensions.push_back(of_names(key, names, given));
  };
  if (is_late) {
    if (with_files) dimensions.push_back(exact_state(config));
  } else if (config.predict_aware_memory.offload_strategy != "drop_and_reinitialize") {
    add(&MemoryConfig::optimizer_state);
  }
  if (config.training.cuda_graphs) return dimensions;  // which can record nothing of what follows
  add(&MemoryConfig::activations);
  if (is_late) return dimensions;
  add(&MemoryConfig::weights);
  dimensions.push_back(of_names(&MemoryConfig::gradients, {"keep", "consume"}, given));
  return dimensions;
}

}  // namespace

std::vector<Dimension> dimensions_of(const HybridTrainerConfig& config, bool with_files,
                                     const ModelRegistry& registry) {
  std::vector<Dimension> dimensions = all_dimensions(config, with_files);
  for (Dimension& dimension : dimensions) dimension = valid(dimension, config, registry);
  return dimensions;
}

std::vector<PlannedOption> changed_options(const HybridTrainerConfig& from,
                                           const HybridTrainerConfig& to) {
  std::vector<PlannedOption> options;
  const auto add = [&](const char* key, const auto& before, const auto& after) {
    if (before != after) options.push_back({key, concat(after)});
  };
  add("data.batch_size", from.data.batch_size, to.data.batch_size);
  add("gradient_accumulation.micro_batches", from.gradient_accumulation.micro_batches,
      to.gradient_accumulation.micro_batches);
  add("memory.recompute", from.memory.recompute, to.memory.recompute);
  add("memory.activations", from.memory.activations, to.memory.activations);
  add("memory.activation_bits", from.memory.activation_bits, to.memory.activation_bits);
  add("memory.gradient_bits", from.memory.gradient_bits, to.memory.gradient_bits);
  add("optimizer.state_bits", from.optimizer.state_bits, to.optimizer.state_bits);
  add("phases.asynchronous_optimizer.exact_state", from.phases.asynchronous_optimizer.exact_state,
      to.phases.asynchronous_optimizer.exact_state);
  add("memory.optimizer_state", from.memory.optimizer_state, to.memory.optimizer_state);
  add("memory.weights", from.memory.weights, to.memory.weights);
  add("memory.gradients", from.memory.gradients, to.memory.gradients);
  return options;
}

}  // namespace hybrid_trainer
