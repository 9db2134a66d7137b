#include "hybrid_trainer/optim/make_optimizer.h"

#include <algorithm>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "src/optim/experiments/slow_nesterov.h"
#include "src/optim/optimizer_groups.h"
#include "src/optim/optimizer_kinds.h"

namespace hybrid_trainer {
namespace {

template <class T>
std::unique_ptr<Optimizer> wrap(std::unique_ptr<Optimizer> other,
                                std::vector<Parameter*> parameters, const OptimizerConfig& config,
                                const Stream& home) {
  return std::make_unique<T>(std::move(other), std::move(parameters), config, home);
}

/// What is put around an optimizer.
struct WrapperRow {
  bool (*is_wanted)(const OptimizerConfig& config);
  std::unique_ptr<Optimizer> (*wrap)(std::unique_ptr<Optimizer> other,
                                     std::vector<Parameter*> parameters,
                                     const OptimizerConfig& config, const Stream& home);
};

constexpr WrapperRow kWrappers[] = {
    {[](const OptimizerConfig& config) { return config.slow_momentum > 0; }, wrap<SlowNesterov>},
};

/// Of a device budget that pages fill at most: no profile of the memory monitor calls that much.
constexpr std::size_t kPagesPercent = 85;

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<Parameter*> parameters, const Stream& stream,
                                          const Stream& home,
                                          std::optional<std::size_t> device_budget, Copies copies) {
  std::vector<std::string> problems;
  config.collect_problems("optimizer", problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  const bool is_away = home.pool() != stream.pool();
  StateHome where(home);
  if (config.paged && device_budget && is_away) {
    where.copies.pages = std::make_shared<StatePages>(*device_budget / 100 * kPagesPercent);
  } else if (copies == Copies::kBeside && is_away && stream.device().type == DeviceType::kCpu) {
    where.copies.prefetcher = std::make_shared<Prefetcher>();
  }
  auto made = make_optimizer_of(optimizer_kinds(), config, parameters, stream, where);
  for (const WrapperRow& row : kWrappers) {
    if (row.is_wanted(config)) made = row.wrap(std::move(made), parameters, config, home);
  }
  return made;
}

std::unique_ptr<Optimizer> make_optimizer_of(std::span<const OptimizerKind> kinds,
                                             const OptimizerConfig& config,
                                             std::vector<Parameter*> parameters,
                                             const Stream& stream, const StateHome& home) {
  named_row(kinds, "optimizer.name", config.name);  // for its error, where there is no parameter
  std::vector<GroupedOptimizer::Part> parts;
  for (const OptimizerGroup& group : optimizer_groups(config, parameters, kinds)) {
    std::vector<Parameter*> members;
    for (const std::size_t member : group.members) members.push_back(parameters[member]);
    parts.push_back({group.kind->make(group.config, std::move(members), stream, home),
                     group.members, rate_factor_of(group.config, config)});
  }
  return std::make_unique<GroupedOptimizer>(std::move(parameters), std::move(parts), home);
}

std::vector<std::int64_t> cut_units(const OptimizerConfig& config,
                                    const std::vector<Parameter*>& parameters) {
  std::vector<std::int64_t> units(parameters.size(), 1);
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    const UpdateUnit unit = group.kind->unit;
    for (const std::size_t member : group.members) {
      const std::int64_t elements = parameters[member]->elements();
      const std::int64_t block =
          unit == UpdateUnit::kBlock ? elements / parameters[member]->blocks() : 1;
      units[member] = unit == UpdateUnit::kWhole
                          ? elements
                          : std::min(elements, std::lcm(block, kernels::kDotChunk));
    }
  }
  return units;
}

double update_flops(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                    const Stream& stream) {
  double sum = 0;
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    if (group.kind->flops == nullptr) continue;
    for (const std::size_t member : group.members)
      sum += group.kind->flops(group.config, *parameters[member], stream);
  }
  return sum;
}

}  // namespace hybrid_trainer
