#include "hybrid_trainer/optim/optimizer_config.h"

#include <algorithm>

namespace hybrid_trainer {

namespace {

/// Returns whether `name` is a known optimizer without 8-bit support.
bool lacks_8_bits(const std::string& name) {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return has(optimizer_names()) && !has(optimizer_names_with_8_bits());
}

void collect_settings_problems(const OptimizerConfig& config, const std::string& path,
                               std::vector<std::string>& problems) {
  if (config.betas.size() != 2) {
    problems.push_back(concat(path, ".betas: got ", config.betas.size(),
                              " numbers, want two: for the mean and the mean square"));
  } else if (config.betas[1] == 0) {
    problems.push_back(concat(path, ".betas: got 0 as the second number, want (0, 1)"));
  }
  const std::int64_t bits = config.state_bits;
  if (bits > 8 && bits < 32 && bits != 16) {  // other widths are out of range
    problems.push_back(concat(path, ".state_bits: got ", bits, ", want 8, 16 or 32"));
  } else if ((bits == 8 || bits == 16) && lacks_8_bits(config.name)) {
    problems.push_back(concat(path, ".state_bits: got ", bits, ", want 32: the state of ",
                              config.name, " does not support ", bits,
                              " bits; these optimizers do: ", join(optimizer_names_with_8_bits())));
  }
}

}  // namespace

OptimizerConfig OptimizerConfig::of(const OptimizerGroupConfig& group) const {
  OptimizerConfig config = *this;
  config.groups.clear();
  config.name = group.name.value_or(name);
  config.learning_rate = group.learning_rate.value_or(learning_rate);
  config.betas = group.betas.value_or(betas);
  config.epsilon = group.epsilon.value_or(epsilon);
  config.momentum = group.momentum.value_or(momentum);
  config.weight_decay = group.weight_decay.value_or(weight_decay);
  config.state_bits = group.state_bits.value_or(state_bits);
  return config;
}

void OptimizerConfig::collect_problems(const std::string& path,
                                       std::vector<std::string>& problems) const {
  collect_settings_problems(*this, path, problems);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string at = concat(path, ".groups[", i, "]");
    std::vector<std::string> of_group;
    collect_settings_problems(of(groups[i]), at, of_group);
    for (const std::string& problem : of_group) {  // skips problems of inherited settings
      const std::string key = problem.substr(at.size() + 1, problem.find(':') - at.size() - 1);
      const bool own =
          key == "betas" ? groups[i].betas.has_value() : groups[i].state_bits || groups[i].name;
      if (own) problems.push_back(problem);
    }
    if (groups[i].match.empty())
      problems.push_back(at + ".match: is missing; want a role or names with *");
    if (groups[i].learning_rate.value_or(0) > 0 && learning_rate == 0)
      problems.push_back(concat(at, ".learning_rate: got ", *groups[i].learning_rate, ", but ",
                                path, ".learning_rate, whose schedule it follows, is 0"));
  }
}

}  // namespace hybrid_trainer
