#include "hybrid_trainer/optim/make_optimizer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <ranges>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "src/optim/adafactor.h"
#include "src/optim/adamw.h"
#include "src/optim/experiments/slow_nesterov.h"
#include "src/optim/lion.h"
#include "src/optim/muon.h"
#include "src/optim/optimizer_groups.h"
#include "src/optim/sgd.h"

namespace hybrid_trainer {
namespace {

template <class T>
std::unique_ptr<Optimizer> make(const OptimizerConfig& config, std::vector<Parameter*> parameters,
                                const Stream& stream, const StateHome& home) {
  return std::make_unique<T>(config, std::move(parameters), stream, home);
}

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

struct Row {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerConfig& config,
                                     std::vector<Parameter*> parameters, const Stream& stream,
                                     const StateHome& home);
  bool has_8_bits;  // OptimizerConfig::state_bits
};

constexpr std::array kOptimizers{
    Row{"adamw", make<AdamW>, true},         Row{"sgd", make<Sgd>, false},
    Row{"muon", make<Muon>, true},           Row{"lion", make<Lion>, true},
    Row{"adam_mini", make<AdamMini>, false}, Row{"adafactor", make<Adafactor>, false},
};

std::unique_ptr<Optimizer> make_by_name(const OptimizerConfig& config,
                                        std::vector<Parameter*> parameters, const Stream& stream,
                                        const StateHome& home) {
  return named_row(kOptimizers, "optimizer.name", config.name)
      .make(config, std::move(parameters), stream, home);
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = names_of(kOptimizers);
  return names;
}

const std::vector<std::string>& optimizer_names_with_8_bits() {
  static const std::vector<std::string> names =
      names_of(kOptimizers | std::views::filter([](const Row& row) { return row.has_8_bits; }));
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<Parameter*> parameters, const Stream& stream,
                                          const Stream& home,
                                          std::optional<std::size_t> device_budget,
                                          StateTraffic traffic) {
  std::vector<std::string> problems;
  config.collect_problems("optimizer", problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  const bool is_away = home.pool() != stream.pool();
  StateHome where(home);
  if (config.paged && device_budget && is_away) {
    where.pages = std::make_shared<StatePages>(*device_budget / 100 * kPagesPercent);
  } else if (traffic == StateTraffic::kBeside && is_away &&
             stream.device().type == DeviceType::kCpu) {
    where.queue = std::make_shared<StateQueue>();
  }
  std::vector<GroupedOptimizer::Part> parts;
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    std::vector<Parameter*> members;
    for (const std::size_t member : group.members) members.push_back(parameters[member]);
    parts.push_back({make_by_name(group.config, std::move(members), stream, where), group.members,
                     rate_factor_of(group.config, config)});
  }
  if (parts.empty()) make_by_name(config, {}, stream, where);  // for its error
  std::unique_ptr<Optimizer> made =
      std::make_unique<GroupedOptimizer>(parameters, std::move(parts), where);
  for (const WrapperRow& row : kWrappers) {
    if (row.is_wanted(config)) made = row.wrap(std::move(made), parameters, config, home);
  }
  return made;
}

std::vector<std::int64_t> cut_units(const OptimizerConfig& config,
                                    const std::vector<Parameter*>& parameters) {
  std::vector<std::int64_t> units(parameters.size(), 1);
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    const std::string& name = group.config.name;
    for (const std::size_t member : group.members) {
      const Parameter& parameter = *parameters[member];
      const std::int64_t block =
          name == "adam_mini" ? parameter.elements() / parameter.blocks() : 1;
      const bool is_whole = name == "muon" || name == "adafactor";
      units[member] = is_whole
                          ? parameter.elements()
                          : std::min(parameter.elements(), std::lcm(block, kernels::kDotChunk));
    }
  }
  return units;
}

double update_flops(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                    const Stream& stream) {
  double sum = 0;
  for (const OptimizerGroup& group : optimizer_groups(config, parameters)) {
    if (group.config.name != "muon") continue;
    for (const std::size_t member : group.members)
      sum += orthogonalization_flops(group.config, *parameters[member], stream);
  }
  return sum;
}

}  // namespace hybrid_trainer
