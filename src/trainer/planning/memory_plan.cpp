#include "hybrid_trainer/trainer/memory_plan.h"

#include <tuple>

#include "src/core/machine.h"
#include "src/trainer/planning/step_cost.h"

namespace hybrid_trainer {

namespace {

using Simulate =
    std::function<MemoryNeed(const HybridTrainerConfig& config, SimulatedPhases phases)>;

/// Returns the largest data.batch_size that fits the device's budget. `need`: need at the current
/// batch size. Except for the rounding of blocks, bytes are linear in the number of examples.
std::int64_t largest_batch(HybridTrainerConfig config, const MemoryNeed& need,
                           const MemoryBudgets& budgets, const Simulate& simulate) {
  const auto fits = [&](std::int64_t size) {
    config.data.batch_size = size;
    return missing_bytes(simulate(config, SimulatedPhases::kUpdates), budgets) == 0;
  };
  const std::int64_t given = config.data.batch_size;
  config.data.batch_size = 2 * given;
  const auto first = static_cast<double>(need.device_bytes),
             twice =
                 static_cast<double>(simulate(config, SimulatedPhases::kFirstUpdate).device_bytes),
             slope = (twice - first) / static_cast<double>(given);
  const double room = static_cast<double>(*budgets.device) - first;
  std::int64_t largest = given;
  constexpr double kMax = 1 << 20;
  if (slope > 0) largest += static_cast<std::int64_t>(std::clamp(room / slope, 0.0, kMax));
  // Larger batches take long to simulate; the linear estimate is used with a margin of 1 %.
  constexpr std::int64_t kMaxTokens = 1 << 20;
  if (largest * config.data.sequence_length > kMaxTokens)
    return std::max(given, largest - largest / 100);
  while (largest > given && !fits(largest)) largest -= std::max<std::int64_t>(1, largest / 50);
  return largest;
}

/// One setting that a plan may choose, with values from the fastest to the most memory-saving.
struct Dimension {
  std::vector<std::string> values;
  std::function<void(HybridTrainerConfig& config, const std::string& value)> set;
  /// Index of the value in the config, or of the next value that needs less memory.
  std::size_t first = 0;
  /// Whether each value needs less device memory than the previous one, for any other settings.
  bool saves_always = true;
};

std::size_t position_of(const std::vector<std::string>& values, const std::string& value) {
  return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin());
}

Dimension micro_batches(const HybridTrainerConfig& config) {
  Dimension dimension{{}, [](HybridTrainerConfig& changed, const std::string& value) {
                        const std::int64_t factor = std::stoll(value);
                        changed.data.batch_size /= factor;
                        changed.gradient_accumulation.micro_batches *= factor;
                      }};
  dimension.saves_always = false;  // each adds a gradient sum
  for (std::int64_t factor = 1; config.data.batch_size % factor == 0; factor *= 2)
    dimension.values.push_back(std::to_string(factor));
  return dimension;
}

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
  dimension.saves_always = false;  // recomputation may hold some activations twice
  while (std::stod(dimension.values[dimension.first]) < given.recompute) ++dimension.first;
  return dimension;
}

/// Numbers of bits: a plan may replace the given number by one of `fewer`, which changes the
/// results of the run.
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

/// Returns the locations of master weights and state with delayed updates, which replace the usual
/// settings.
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
  const bool is_delayed = config.phases.traits().delays_updates;
  if (given.allow_lossy) {
    dimensions.push_back(
        is_delayed ? fewer_bits(
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
  if (is_delayed) {
    if (with_files) dimensions.push_back(exact_state(config));
  } else if (config.predict_aware_memory.offload_strategy != "drop_and_reinitialize") {
    add(&MemoryConfig::optimizer_state);
  }
  if (config.training.cuda_graphs) return dimensions;  // cannot record the following options
  add(&MemoryConfig::activations);
  if (is_delayed) return dimensions;
  add(&MemoryConfig::weights);
  dimensions.push_back(of_names(&MemoryConfig::gradients, {"keep", "consume"}, given));
  return dimensions;
}

/// Returns the settings that a plan may choose. `with_files`: whether files are allowed locations.
/// Omits unsupported values, such as fewer bits for some optimizers.
std::vector<Dimension> dimensions_of(const HybridTrainerConfig& config, bool with_files,
                                     const ModelRegistry& registry) {
  std::vector<Dimension> dimensions = all_dimensions(config, with_files);
  for (Dimension& dimension : dimensions) dimension = valid(dimension, config, registry);
  return dimensions;
}

/// Returns the plannable keys in which two configs differ.
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

using Choice = std::vector<std::size_t>;  // index of a value in each dimension

/// Returns all combinations of values, from the `first` value of each dimension on.
std::vector<Choice> all_choices(const std::vector<Dimension>& dimensions) {
  std::vector<Choice> all{{}};
  for (const Dimension& dimension : dimensions) {
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

/// The choices in a list that have not been tried or excluded.
class PlanTrials {
 public:
  PlanTrials(const std::vector<Choice>& choices, const std::vector<Dimension>& dimensions)
      : choices_(choices), dimensions_(dimensions), is_excluded_(choices.size()) {}

  std::vector<std::size_t> left(std::size_t end) const {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < end; ++i)
      if (!is_excluded_[i]) left.push_back(i);
    return left;
  }
  void exclude(std::size_t tried) { is_excluded_[tried] = true; }
  /// Excludes a choice that is too large for the device, and all that do not save more than it.
  void exceeds_device(std::size_t tried) {
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (saves_at_most(choices_[i], choices_[tried])) is_excluded_[i] = true;
  }
  /// Excludes all choices that differ from the tried choice only by moving more data from the
  /// device to the host. Called for a choice that fits on the device but exceeds other budgets.
  void exclude_exceeding_rest(std::size_t tried) {
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (only_moves_to_host(choices_[tried], choices_[i])) is_excluded_[i] = true;
  }

 private:
  bool saves_at_most(const Choice& one, const Choice& other) const {
    for (std::size_t i = 0; i < one.size(); ++i)
      if (dimensions_[i].saves_always ? one[i] > other[i] : one[i] != other[i]) return false;
    return true;
  }
  bool only_moves_to_host(const Choice& from, const Choice& to) const {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::vector<std::string>& values = dimensions_[i].values;
      const bool moves = values[from[i]] == "device" && values[to[i]] == "host";
      if (from[i] != to[i] && !moves) return false;
    }
    return true;
  }

  const std::vector<Choice>& choices_;
  const std::vector<Dimension>& dimensions_;
  std::vector<bool> is_excluded_;
};

std::size_t excess_over(std::size_t bytes, const std::optional<std::size_t>& budget) {
  return budget && bytes > *budget ? bytes - *budget : 0;
}

/// Returns whether a run behaves the same with both configurations, unless it hits a limit.
bool is_same_but_for_limits(MemoryConfig one, const MemoryConfig& other) {
  one.device_budget = other.device_budget;
  one.host_budget = other.host_budget;
  one.plan = other.plan;
  one.allow_lossy = other.allow_lossy;
  one.timeline = other.timeline;
  return one == other;
}

class Planner {
 public:
  Planner(const HybridTrainerConfig& config, Device device, const MemoryBudgets& budgets,
          bool with_files, const ModelRegistry& registry)
      : config_(config),
        device_(device),
        budgets_(budgets),
        registry_(registry),
        with_files_(with_files),
        dimensions_(dimensions_of(config, with_files, registry)) {}

  MemoryPlan plan(const StepRates& rates);

 private:
  HybridTrainerConfig with(const Choice& choice) const;
  MemoryNeed simulate(HybridTrainerConfig config, SimulatedPhases phases) const;
  /// Returns whether the run predicts, so that SimulatedPhases::kUpdates would omit a part of it.
  bool predicts() const { return config_.phases.max_predict_steps > 0; }
  bool cannot_fit();
  std::size_t missing(const MemoryNeed& need) const { return missing_bytes(need, budgets_); }
  /// Returns the choice that moves all data as far from the device as possible.
  Choice farthest() const {
    Choice last;
    for (const Dimension& dimension : dimensions_) last.push_back(dimension.values.size() - 1);
    return last;
  }
  const Choice& smallest_on_device();
  std::vector<Choice> by_cost(const StepCost& cost) const;
  std::optional<MemoryNeed> first_fitting(const std::vector<Choice>& choices, Choice& chosen) const;

  HybridTrainerConfig config_;
  Device device_;
  MemoryBudgets budgets_;
  const ModelRegistry& registry_;
  bool with_files_;
  std::vector<Dimension> dimensions_;
  std::optional<Choice> smallest_;  // set after the search
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

/// A failed trial excludes all choices that save no more; one that may fit excludes all that cost
/// more. Therefore the distance between trials doubles until one may fit.
std::optional<MemoryNeed> Planner::first_fitting(const std::vector<Choice>& choices,
                                                 Choice& chosen) const {
  PlanTrials trials(choices, dimensions_);
  std::vector<std::size_t> may_fit;  // cheapest last
  const auto fails = [&](std::size_t i, const MemoryNeed& need) {
    const bool exceeds_device = excess_over(need.device_bytes, budgets_.device) > 0;
    if (exceeds_device) trials.exceeds_device(i);
    if (missing(need) > 0 && !exceeds_device) trials.exclude_exceeding_rest(i);
    return missing(need) > 0;
  };
  for (std::size_t stride = 1;;) {
    const std::size_t end = may_fit.empty() ? choices.size() : may_fit.back();
    const std::vector<std::size_t> left = trials.left(end);
    if (!left.empty()) {
      const std::size_t next =
          left[may_fit.empty() ? std::min(stride, left.size()) - 1 : left.size() / 2];
      trials.exclude(next);
      if (!fails(next, simulate(with(choices[next]), SimulatedPhases::kFirstUpdate)))
        may_fit.push_back(next);
      stride = std::min(2 * stride, choices.size());
      continue;
    }
    if (may_fit.empty()) return {};
    const std::size_t cheapest = may_fit.back();
    may_fit.pop_back();
    stride = 1;
    const HybridTrainerConfig config = with(choices[cheapest]);
    if (predicts() && fails(cheapest, simulate(config, SimulatedPhases::kUpdates))) continue;
    const MemoryNeed need = simulate(config, SimulatedPhases::kAll);
    if (fails(cheapest, need)) continue;
    chosen = choices[cheapest];
    return need;
  }
}

/// Returns the choice with the least device memory: farthest(), but with the micro-batches and the
/// recomputed share that need the least, because farther values of these two can need more.
const Choice& Planner::smallest_on_device() {
  if (smallest_) return *smallest_;
  const Choice last = farthest();
  Choice& best = smallest_.emplace();
  std::size_t least = SIZE_MAX;
  for (const std::size_t parts : {dimensions_[0].first, last[0]}) {
    for (std::size_t share = dimensions_[1].first; share <= last[1]; ++share) {
      Choice choice = last;
      choice[0] = parts;
      choice[1] = share;
      const std::size_t bytes = simulate(with(choice), SimulatedPhases::kFirstUpdate).device_bytes;
      if (bytes >= least) continue;
      least = bytes;
      best = choice;
    }
  }
  return best;
}

/// Returns all valid choices in the order of cost, then of their number of options.
std::vector<Choice> Planner::by_cost(const StepCost& cost) const {
  struct RankedChoice {
    double seconds;
    std::size_t options;
    Choice choice;
  };
  std::vector<RankedChoice> ranked;
  const std::size_t problems = config_.problems(registry_).size();
  for (Choice& choice : all_choices(dimensions_)) {
    const HybridTrainerConfig config = with(choice);
    if (config.problems(registry_).size() > problems) continue;
    ranked.push_back({cost.seconds(config), changed_options(config_, config).size(), choice});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedChoice& a, const RankedChoice& b) {
    return std::tie(a.seconds, a.options) < std::tie(b.seconds, b.options);
  });
  std::vector<Choice> sorted;
  for (RankedChoice& one : ranked) sorted.push_back(std::move(one.choice));
  return sorted;
}

/// Returns the bytes of weights and optimizer state in all locations.
std::size_t resting_bytes(const MemoryNeed& need) {
  std::size_t bytes = 0;
  for (const MemoryKind kind :
       {MemoryKind::kParameters, MemoryKind::kMasterWeights, MemoryKind::kOptimizerState}) {
    const auto k = static_cast<std::size_t>(kind);
    bytes += need.device_by_kind[k] + need.host_by_kind[k] + need.disk_by_kind[k];
  }
  return bytes;
}

/// Returns whether no choice fits, as far as can be determined without trying all of them.
bool Planner::cannot_fit() {
  const auto is_too_large = [&](const MemoryNeed& need) {
    return excess_over(need.device_bytes, budgets_.device) > 0 ||
           excess_over(need.device_bytes, budgets_.both) > 0;
  };
  const MemoryNeed least = simulate(with(farthest()), SimulatedPhases::kFirstUpdate);
  const std::size_t resting = resting_bytes(least);
  const bool is_full = budgets_.device && budgets_.host && !with_files_ &&
                       resting > *budgets_.device + *budgets_.host;
  if (is_full || (!with_files_ && excess_over(resting, budgets_.both) > 0)) return true;
  return is_too_large(least) &&
         is_too_large(simulate(with(smallest_on_device()), SimulatedPhases::kUpdates));
}

bool has_no_settings(const PartConfig& part) {
  return !part.computes() && !part.lora && !part.base && !part.place && !part.has_optimizer();
}

/// Returns the config without recomputed parts, budgets and other options that save memory.
HybridTrainerConfig with_all_resident(HybridTrainerConfig config) {
  const std::string folder = config.memory.folder;
  config.memory = {};
  config.memory.folder = folder;
  for (PartConfig& part : config.parts) part.recompute.reset();
  std::erase_if(config.parts, has_no_settings);
  return config;
}

MemoryPlan Planner::plan(const StepRates& rates) {
  MemoryPlan plan;
  plan.config = config_;
  plan.need = simulate(config_, SimulatedPhases::kAll);
  Choice chosen;
  for (const Dimension& dimension : dimensions_) chosen.push_back(dimension.first);
  plan.fits = missing(plan.need) == 0;
  const HybridTrainerConfig resident = with_all_resident(config_);
  const bool is_known = !predicts() && !recomputes_parts(config_) &&
                        is_same_but_for_limits(resident.memory, config_.memory);
  const StepCost cost(resident, device_,
                      is_known ? plan.need : simulate(resident, SimulatedPhases::kUpdates), rates,
                      registry_);
  if (!plan.fits) {
    const auto need = cannot_fit() ? std::nullopt : first_fitting(by_cost(cost), chosen);
    plan.fits = need.has_value();
    if (!plan.fits) chosen = smallest_on_device();
    plan.config = with(chosen);
    plan.need = need ? *need : simulate(plan.config, SimulatedPhases::kAll);
  }
  plan.options = changed_options(config_, plan.config);
  plan.step_seconds = cost.seconds(plan.config);
  plan.expected_slowdown = plan.step_seconds / cost.seconds(resident);
  plan.missing_bytes = missing(plan.need);
  if (plan.fits && budgets_.device)
    plan.largest_batch =
        largest_batch(plan.config, plan.need, budgets_,
                      [&](const auto& config, auto phases) { return simulate(config, phases); });
  return plan;
}

std::string map_of(const std::vector<std::string>& parts, std::int64_t on_device,
                   std::int64_t on_host) {
  if (on_device == std::ssize(parts)) return "*=device";
  std::string text;
  const auto begin = parts.begin();
  std::for_each(begin, begin + on_device, [&](const auto& part) { text += part + "=device,"; });
  const bool to_file = on_device + on_host < std::ssize(parts);
  if (to_file)
    std::for_each(begin + on_device, begin + on_device + on_host,
                  [&](const auto& part) { text += part + "=host,"; });
  return text + (to_file ? "*=file" : "*=host");
}

/// Returns the largest number up to `most` that fits, or 0. `fits` must be monotonic.
template <class Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  std::int64_t least = 0;
  while (least < most) {
    const std::int64_t middle = (least + most + 1) / 2;
    if (fits(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

}  // namespace

std::optional<std::size_t> memory_of_both(const HybridTrainerConfig& config, Device device) {
  const bool has_all_budgets = config.device_budget() && config.memory.host_budget.limit();
  const std::size_t available = machine_memory().available_bytes;
  if (device.type != DeviceType::kCpu || has_all_budgets || available == 0) return {};
  return available / 10 * 9;  // leaves the rest to the program, its libraries and checkpoints
}

std::size_t missing_bytes(const MemoryNeed& need, const MemoryBudgets& budgets) {
  const std::size_t apart = excess_over(need.device_bytes, budgets.device) +
                            excess_over(need.host_bytes, budgets.host) +
                            excess_over(need.disk_bytes, budgets.disk);
  return std::max(apart, excess_over(need.device_bytes + need.host_bytes, budgets.both));
}

bool recomputes_parts(const HybridTrainerConfig& config) {
  return std::ranges::any_of(config.parts,
                             [](const PartConfig& part) { return part.recompute.has_value(); });
}

MemoryPlan plan_memory(const HybridTrainerConfig& given, Device device,
                       const MemoryBudgets& budgets, const StepRates& rates,
                       const ModelRegistry& registry) {
  const HybridTrainerConfig config = given.with_parts();
  const bool with_files = rates.write_bytes_per_second > 0;
  const HybridTrainerConfig mapped = with_device_map(config, device, budgets, registry);
  MemoryPlan plan = Planner(mapped, device, budgets, with_files, registry).plan(rates);
  if (mapped.memory.device_map != config.memory.device_map)
    plan.options.push_back({"memory.device_map", mapped.memory.device_map});
  return plan;
}

bool supports_segments(const HybridTrainerConfig& config, const ModelRegistry& registry) {
  const Stream simulated_stream(make_device_pool({DeviceType::kCpu, 0, true}));
  return config.memory.segment_length == 0 &&
         make_network(config.model, 0, simulated_stream, registry)->supports_segments();
}

HybridTrainerConfig with_device_map(const HybridTrainerConfig& config, Device device,
                                    const MemoryBudgets& budgets, const ModelRegistry& registry) {
  if (config.memory.device_map != "auto") return config;
  HybridTrainerConfig chosen = config;
  const Stream simulated_stream(make_device_pool({device.type, device.index, true}));
  const std::vector<std::string> parts =
      make_network(config.model, 0, simulated_stream, registry)->parts();
  const auto need = [&](std::int64_t on_device, std::int64_t on_host) {
    chosen.memory.device_map = map_of(parts, on_device, on_host);
    HybridTrainerConfig unlimited = chosen;
    unlimited.memory.host_budget = {};
    return simulate_memory(unlimited, device, SimulatedPhases::kUpdates, registry);
  };
  const std::int64_t all = std::ssize(parts);
  std::int64_t on_device = largest(all, [&](std::int64_t count) {
    return !budgets.device || need(count, all - count).device_bytes <= *budgets.device;
  });
  const std::int64_t on_host = largest(all - on_device, [&](std::int64_t count) {
    return !budgets.host || need(on_device, count).host_bytes <= *budgets.host;
  });
  // Read-ahead buffers of files also need device memory.
  while (on_device > 0 && budgets.device && need(on_device, on_host).device_bytes > *budgets.device)
    --on_device;
  chosen.memory.device_map = map_of(parts, on_device, on_host);
  return chosen;
}

}  // namespace hybrid_trainer
