#include "hybrid_trainer/planning/memory_plan.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/machine_memory.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "src/planning/chosen_device_map.h"
#include "src/planning/step_cost.h"

namespace hybrid_trainer {
namespace {

std::size_t over(std::size_t bytes, const std::optional<std::size_t>& budget) {
  return budget && bytes > *budget ? bytes - *budget : 0;
}

/// One thing that a plan may choose, with its values from the fastest to the one that takes least.
struct Dimension {
  std::vector<std::string> values;
  std::function<void(HybridTrainerConfig& config, const std::string& value)> set;
  /// Position of the config's own value or, for one in between, of the next that takes less.
  std::size_t first = 0;
};

using Choice = std::vector<std::size_t>;  // of a value in each dimension

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
  while (std::stod(dimension.values[dimension.first]) < given.recompute) ++dimension.first;
  return dimension;
}

/// Optimizer state in 16 or 8 bits, which changes the run's bits.
Dimension state_bits(const HybridTrainerConfig& given) {
  Dimension dimension{{std::to_string(given.optimizer.state_bits)},
                      [](HybridTrainerConfig& changed, const std::string& value) {
                        changed.optimizer.state_bits = std::stoll(value);
                      }};
  if (given.optimizer.state_bits > 16) dimension.values.emplace_back("16");
  if (given.optimizer.state_bits > 8) dimension.values.emplace_back("8");
  return dimension;
}

/// Activations in 8 bits, which changes them as well.
Dimension activation_bits(const HybridTrainerConfig& given) {
  Dimension dimension{{std::to_string(given.memory.activation_bits)},
                      [](HybridTrainerConfig& changed, const std::string& value) {
                        changed.memory.activation_bits = std::stoll(value);
                      }};
  if (given.memory.activation_bits > 8) dimension.values.emplace_back("8");
  return dimension;
}

/// Gradients of late updates in 16 bits.
Dimension gradient_bits(const HybridTrainerConfig& given) {
  Dimension dimension{{std::to_string(given.memory.gradient_bits)},
                      [](HybridTrainerConfig& changed, const std::string& value) {
                        changed.memory.gradient_bits = std::stoll(value);
                      }};
  if (given.memory.gradient_bits > 16) dimension.values.emplace_back("16");
  return dimension;
}

/// Where late updates leave masters and state, in place of weights, gradients and state.
Dimension exact_state(const HybridTrainerConfig& given) {
  return {exact_state_names(),
          [](HybridTrainerConfig& changed, const std::string& value) {
            changed.phases.exact_state = value;
          },
          position_of(exact_state_names(), given.phases.exact_state)};
}

/// Drops the values that the configuration cannot have, such as fewer bits of an optimizer that has
/// no form in them.
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

/// `with_files`: files are places too.
std::vector<Dimension> dimensions_of(const HybridTrainerConfig& config, bool with_files) {
  const MemoryConfig& given = config.memory;
  std::vector<Dimension> dimensions{micro_batches(config), recomputed_share(given)};
  const bool is_late = config.phases.lacks_optimizer_state();
  if (given.allow_lossy) {
    dimensions.push_back(is_late ? gradient_bits(config) : state_bits(config));
    dimensions.push_back(activation_bits(config));
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

class Planner {
 public:
  Planner(const HybridTrainerConfig& config, Device device, const MemoryBudgets& budgets,
          bool with_files, const ModelRegistry& registry)
      : config_(config),
        device_(device),
        budgets_(budgets),
        registry_(registry),
        dimensions_(dimensions_of(config, with_files)) {
    for (Dimension& dimension : dimensions_) dimension = valid(dimension, config, registry);
  }

  MemoryPlan plan(const StepRates& rates);

 private:
  HybridTrainerConfig with(const Choice& choice) const;
  MemoryNeed simulate(HybridTrainerConfig config, SimulatedPhases phases) const;
  std::size_t missing(const MemoryNeed& need) const;
  std::vector<Choice> choices() const;
  Choice smallest_on_device() const;
  std::vector<Choice> by_cost(const StepCost& cost) const;
  /// Of the choices in order of their cost, the first that fits.
  std::optional<MemoryNeed> first_fitting(const std::vector<Choice>& choices, Choice& chosen) const;
  std::int64_t largest_batch(HybridTrainerConfig config) const;

  HybridTrainerConfig config_;
  Device device_;
  MemoryBudgets budgets_;
  const ModelRegistry& registry_;
  std::vector<Dimension> dimensions_;
};

MemoryNeed Planner::simulate(HybridTrainerConfig config, SimulatedPhases phases) const {
  try {
    config.memory.host_budget = {budgets_.host.value_or(0)};
    return simulate_memory(config, device_, phases, registry_);
  } catch (const OutOfMemory&) {
    config.memory.host_budget = {};
    return simulate_memory(config, device_, phases, registry_);
  }
}

HybridTrainerConfig Planner::with(const Choice& choice) const {
  HybridTrainerConfig config = config_;
  for (std::size_t i = 0; i < choice.size(); ++i)
    dimensions_[i].set(config, dimensions_[i].values[choice[i]]);
  return config;
}

std::size_t Planner::missing(const MemoryNeed& need) const { return missing_bytes(need, budgets_); }

std::vector<Choice> Planner::choices() const {
  std::vector<Choice> all{{}};
  for (const Dimension& dimension : dimensions_) {
    std::vector<Choice> longer;
    for (const Choice& choice : all) {
      for (std::size_t i = dimension.first; i < dimension.values.size(); ++i) {
        longer.push_back(choice);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// Whether each value of `one` takes at most what that of `other` does.
bool saves_no_less(const Choice& one, const Choice& other) {
  return std::equal(one.begin(), one.end(), other.begin(), std::greater_equal<>());
}

std::optional<MemoryNeed> Planner::first_fitting(const std::vector<Choice>& choices,
                                                 Choice& chosen) const {
  std::vector<Choice> too_large;  // for the device
  for (const Choice& choice : choices) {
    if (std::any_of(too_large.begin(), too_large.end(),
                    [&](const Choice& failed) { return saves_no_less(failed, choice); }))
      continue;
    const HybridTrainerConfig config = with(choice);
    MemoryNeed need = simulate(config, SimulatedPhases::kUpdates);
    if (missing(need) == 0) need = simulate(config, SimulatedPhases::kAll);
    if (missing(need) == 0) {
      chosen = choice;
      return need;
    }
    if (over(need.device_bytes, budgets_.device) > 0) too_large.push_back(choice);
  }
  return {};
}

/// The keys in which two configs differ that a plan may set.
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
  add("phases.exact_state", from.phases.exact_state, to.phases.exact_state);
  add("memory.optimizer_state", from.memory.optimizer_state, to.memory.optimizer_state);
  add("memory.weights", from.memory.weights, to.memory.weights);
  add("memory.gradients", from.memory.gradients, to.memory.gradients);
  return options;
}

/// Bytes grow by as much with each example, but for the rounding of blocks.
std::int64_t Planner::largest_batch(HybridTrainerConfig config) const {
  const auto fits = [&](std::int64_t size) {
    config.data.batch_size = size;
    return missing(simulate(config, SimulatedPhases::kUpdates)) == 0;
  };
  const auto device_bytes = [&](std::int64_t size) {
    config.data.batch_size = size;
    return static_cast<double>(simulate(config, SimulatedPhases::kUpdates).device_bytes);
  };
  const std::int64_t given = config.data.batch_size;
  const double first = device_bytes(given),
               slope = (device_bytes(2 * given) - first) / static_cast<double>(given);
  const double room = static_cast<double>(*budgets_.device) - first;
  std::int64_t largest = given;
  constexpr double kMost = 1 << 20;
  if (slope > 0) largest += static_cast<std::int64_t>(std::clamp(room / slope, 0.0, kMost));
  // Larger ones than this take long to simulate: there the line is trusted but for a hundredth.
  constexpr std::int64_t kMostTokens = 1 << 20;
  if (largest * config.data.sequence_length > kMostTokens)
    return std::max(given, largest - largest / 100);
  while (largest > given && !fits(largest)) largest -= std::max<std::int64_t>(1, largest / 50);
  return largest;
}

/// With everything as far away as it goes, the micro-batches and the recomputed share that take
/// least: either may also take a little.
Choice Planner::smallest_on_device() const {
  Choice last, best;
  for (const Dimension& dimension : dimensions_) last.push_back(dimension.values.size() - 1);
  std::size_t least = SIZE_MAX;
  for (const std::size_t parts : {dimensions_[0].first, last[0]}) {
    for (std::size_t share = dimensions_[1].first; share <= last[1]; ++share) {
      Choice choice = last;
      choice[0] = parts;
      choice[1] = share;
      const std::size_t bytes = simulate(with(choice), SimulatedPhases::kUpdates).device_bytes;
      if (bytes >= least) continue;
      least = bytes;
      best = choice;
    }
  }
  return best;
}

/// All valid choices, the cheapest first; of equally cheap ones those of fewer options.
std::vector<Choice> Planner::by_cost(const StepCost& cost) const {
  struct Priced {
    double seconds;
    std::size_t options;
    Choice choice;
  };
  std::vector<Priced> priced;
  const std::size_t problems = config_.problems(registry_).size();
  for (Choice& choice : choices()) {
    const HybridTrainerConfig config = with(choice);
    if (config.problems(registry_).size() > problems) continue;
    priced.push_back({cost.seconds(config), changed_options(config_, config).size(), choice});
  }
  std::stable_sort(priced.begin(), priced.end(), [](const Priced& a, const Priced& b) {
    return std::tie(a.seconds, a.options) < std::tie(b.seconds, b.options);
  });
  std::vector<Choice> sorted;
  for (Priced& one : priced) sorted.push_back(std::move(one.choice));
  return sorted;
}

MemoryPlan Planner::plan(const StepRates& rates) {
  MemoryPlan plan;
  plan.config = config_;
  plan.need = simulate(config_, SimulatedPhases::kAll);
  Choice chosen;
  for (const Dimension& dimension : dimensions_) chosen.push_back(dimension.first);
  plan.fits = missing(plan.need) == 0;
  const HybridTrainerConfig resident = with_all_resident(config_);
  const StepCost cost(resident, device_, simulate(resident, SimulatedPhases::kUpdates), rates,
                      registry_);
  if (!plan.fits) {
    const Choice least = smallest_on_device();
    const MemoryNeed smallest = simulate(with(least), SimulatedPhases::kUpdates);
    const bool hopeless = over(smallest.device_bytes, budgets_.device) > 0 ||
                          over(smallest.device_bytes, budgets_.both) > 0;
    const auto need = hopeless ? std::nullopt : first_fitting(by_cost(cost), chosen);
    plan.fits = need.has_value();
    if (!plan.fits) chosen = least;
    plan.config = with(chosen);
    plan.need = need ? *need : simulate(plan.config, SimulatedPhases::kAll);
  }
  plan.options = changed_options(config_, plan.config);
  plan.expected_slowdown = cost.seconds(plan.config) / cost.seconds(resident);
  plan.missing_bytes = missing(plan.need);
  if (plan.fits && budgets_.device) plan.largest_batch = largest_batch(plan.config);
  return plan;
}

}  // namespace

std::optional<std::size_t> memory_of_both(const HybridTrainerConfig& config, Device device) {
  const bool says_all = config.device_budget() && config.memory.host_budget.limit();
  const std::size_t available = machine_memory().available_bytes;
  if (device.type != DeviceType::kCpu || says_all || available == 0) return {};
  return available / 10 * 9;  // the program, its libraries and its checkpoints take the rest
}

std::size_t missing_bytes(const MemoryNeed& need, const MemoryBudgets& budgets) {
  const std::size_t apart = over(need.device_bytes, budgets.device) +
                            over(need.host_bytes, budgets.host) +
                            over(need.disk_bytes, budgets.disk);
  return std::max(apart, over(need.device_bytes + need.host_bytes, budgets.both));
}

HybridTrainerConfig with_all_resident(HybridTrainerConfig config) {
  const std::string folder = config.memory.folder;
  config.memory = {};
  config.memory.folder = folder;
  return config;
}

MemoryPlan plan_memory(const HybridTrainerConfig& config, Device device,
                       const MemoryBudgets& budgets, const StepRates& rates,
                       const ModelRegistry& registry) {
  const bool with_files = rates.write_bytes_per_second > 0;
  const HybridTrainerConfig mapped = with_device_map(config, device, budgets, registry);
  MemoryPlan plan = Planner(mapped, device, budgets, with_files, registry).plan(rates);
  if (mapped.memory.device_map != config.memory.device_map)
    plan.options.push_back({"memory.device_map", mapped.memory.device_map});
  return plan;
}

}  // namespace hybrid_trainer
