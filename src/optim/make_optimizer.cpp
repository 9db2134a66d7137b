#include "src/optim/make_optimizer.h"

#include "hybrid_trainer/kernels/reductions.h"
#include "src/core/messages.h"
#include "src/optim/experiments/slow_nesterov.h"

namespace hybrid_trainer {

namespace {

bool matches(const OptimizerGroupConfig& group, const Parameter& parameter) {
  return group.match == name_of(parameter.role()) || matches_pattern(parameter.name(), group.match);
}

/// Returns the index of the parameter's group, or groups.size() if it is in no group.
std::size_t group_of(const Parameter& parameter, const std::vector<OptimizerGroupConfig>& groups,
                     std::vector<std::string>& problems) {
  std::size_t found = groups.size();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!matches(groups[i], parameter)) continue;
    if (found < groups.size()) {
      problems.push_back(concat("optimizer.groups[", i, "].match: \"", groups[i].match,
                                "\" matches ", parameter.name(), ", which already belongs to \"",
                                groups[found].match, "\" of groups[", found,
                                "]; want each weight in one group"));
      break;
    }
    found = i;
  }
  return found;
}

void collect_empty(const std::vector<OptimizerGroupConfig>& groups,
                   const std::vector<bool>& matched, std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (matched[i]) continue;
    problems.push_back(concat("optimizer.groups[", i, "].match: \"", groups[i].match,
                              "\" matches no weight", name_hint(groups[i].match, role_names())));
  }
}

/// Adds a group to `to`. Parameters that its optimizer does not support become a separate group of
/// the optimizer OptimizerKind::rest. `explicitly` is whether the group itself names the optimizer.
void add_group(std::vector<OptimizerGroup>& to, const OptimizerGroup& group, bool explicitly,
               const std::vector<Parameter*>& parameters, std::span<const OptimizerKind> kinds) {
  OptimizerGroup taken{group.kind, group.config, {}}, rest = taken;
  for (const std::size_t member : group.members) {
    const Parameter& parameter = *parameters[member];
    const bool fits = group.kind->rest == nullptr || (parameter.shape().rank() == 2 &&
                                                      (explicitly || is_matrix(parameter.role())));
    (fits ? taken : rest).members.push_back(member);
  }
  if (!taken.members.empty()) to.push_back(std::move(taken));
  if (rest.members.empty()) return;
  rest.config.name = group.kind->rest;
  rest.kind = &named_row(kinds, "optimizer.name", rest.config.name);
  to.push_back(std::move(rest));
}

/// Percentage of the device budget that pages may fill; below the memory monitor's target.
constexpr std::size_t kPagesPercent = 85;

}  // namespace

std::vector<OptimizerGroup> optimizer_groups(const OptimizerConfig& config,
                                             const std::vector<Parameter*>& parameters,
                                             std::span<const OptimizerKind> kinds) {
  std::vector<OptimizerGroup> groups;
  const auto add = [&](const OptimizerGroupConfig& group) {
    const OptimizerConfig own = config.of(group);
    groups.push_back({&named_row(kinds, "optimizer.name", own.name), own, {}});
  };
  for (const OptimizerGroupConfig& group : config.groups) add(group);
  add({});
  std::vector<bool> matched(groups.size(), false);
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t group = group_of(*parameters[i], config.groups, problems);
    groups[group].members.push_back(i);
    matched[group] = true;
  }
  if (problems.empty()) collect_empty(config.groups, matched, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  std::vector<OptimizerGroup> made;
  for (std::size_t i = 0; i < groups.size(); ++i)
    add_group(made, groups[i], i < config.groups.size() && config.groups[i].name.has_value(),
              parameters, kinds);
  return made;
}

static float rate_of(const GroupedOptimizer::Part& part, float learning_rate) {
  return static_cast<float>(part.rate_factor * static_cast<double>(learning_rate));
}

GroupedOptimizer::GroupedOptimizer(std::vector<Parameter*> parameters, std::vector<Part> parts,
                                   const StateHome& home)
    : parameters_(std::move(parameters)),
      parts_(std::move(parts)),
      copies_(home.copies),
      places_(parameters_.size()) {
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < part.members.size(); ++i) places_[part.members[i]] = {&part, i};
  }
}

void GroupedOptimizer::begin_step(const Stream& stream) {
  if (copies_.pages) copies_.pages->begin_update(stream);
  if (copies_.prefetcher) copies_.prefetcher->begin_pass();
  for (const Part& part : parts_) part.optimizer->begin_step(stream);
  ++steps_;
}

void GroupedOptimizer::update_weight(std::size_t index, float learning_rate, float gradient_scale,
                                     const Stream& stream) {
  const Place& place = places_[index];
  place.part->optimizer->update_weight(place.member, rate_of(*place.part, learning_rate),
                                       gradient_scale, stream);
}

/// If state is transferred, updates weights in the order of all parameters, as transfers expect.
void GroupedOptimizer::update_weights(float learning_rate, float gradient_scale,
                                      const Stream& stream) {
  if (copies_.pages || copies_.prefetcher)
    return Optimizer::update_weights(learning_rate, gradient_scale, stream);
  for (const Part& part : parts_)
    part.optimizer->update_weights(rate_of(part, learning_rate), gradient_scale, stream);
}

void GroupedOptimizer::end_step(const Stream& stream) {
  for (const Part& part : parts_) part.optimizer->end_step(stream);
  if (copies_.prefetcher) copies_.prefetcher->drain();
  if (copies_.pages) copies_.pages->end_update(*stream.pool());
}

void GroupedOptimizer::write_momentum_directions(const std::vector<Tensor>& directions,
                                                 float learning_rate, const Stream& stream) {
  require_directions(directions, parameters_);
  for (const Part& part : parts_) {
    std::vector<Tensor> own;
    for (const std::size_t member : part.members) own.push_back(directions[member]);
    part.optimizer->write_momentum_directions(own, rate_of(part, learning_rate), stream);
  }
}

bool GroupedOptimizer::leave_device(const Stream& stream) {
  return copies_.pages && copies_.pages->leave(stream);
}

void GroupedOptimizer::visit_state(const StateVisitor& visit) {
  for (const Part& part : parts_) part.optimizer->visit_state(visit);
}

void GroupedOptimizer::set_orthogonalization_period(std::int64_t steps) {
  for (const Part& part : parts_) part.optimizer->set_orthogonalization_period(steps);
}

void GroupedOptimizer::set_steps_taken(std::int64_t steps) {
  steps_ = steps;
  for (const Part& part : parts_) part.optimizer->set_steps_taken(steps);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<Parameter*> parameters, const Stream& stream,
                                          const Stream& home,
                                          std::optional<std::size_t> device_budget, Copies copies) {
  std::vector<std::string> problems;
  config.collect_problems("optimizer", problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  const bool is_offloaded = home.pool() != stream.pool();
  StateHome where(home);
  if (config.paged && device_budget && is_offloaded) {
    where.copies.pages = std::make_shared<StatePages>(*device_budget / 100 * kPagesPercent);
  } else if (copies == Copies::kInBackground && is_offloaded &&
             stream.device().type == DeviceType::kCpu) {
    where.copies.prefetcher = std::make_shared<Prefetcher>();
  }
  auto made = make_optimizer_of(optimizer_kinds(), config, parameters, stream, where);
  if (config.slow_momentum <= 0) return made;
  return std::make_unique<SlowNesterov>(std::move(made), std::move(parameters), config, home);
}

std::unique_ptr<Optimizer> make_optimizer_of(std::span<const OptimizerKind> kinds,
                                             const OptimizerConfig& config,
                                             std::vector<Parameter*> parameters,
                                             const Stream& stream, const StateHome& home) {
  // Throws for an unknown name even without parameters.
  named_row(kinds, "optimizer.name", config.name);
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
