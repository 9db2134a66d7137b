#include "phases/skip_backward/jump_advisor.h"

#include "phases/experiments/jump_planner.h"
#include "phases/experiments/prediction_bandit.h"

namespace hybrid_trainer {

namespace {

template <class Advisor>
std::unique_ptr<JumpAdvisor> make(const PhaseConfig& config) {
  return std::make_unique<Advisor>(config);
}

struct AdvisorRow {
  bool (*is_wanted)(const PhaseConfig& config);
  std::unique_ptr<JumpAdvisor> (*make)(const PhaseConfig& config);
};

constexpr AdvisorRow kAdvisors[] = {
    {[](const PhaseConfig& config) { return !config.skip_backward.arms.empty(); },
     make<PredictionBandit>},
    {[](const PhaseConfig& config) { return config.skip_backward.horizon == "dreamt"; },
     make<JumpPlanner>},
};

}  // namespace

std::vector<std::unique_ptr<JumpAdvisor>> make_jump_advisors(const PhaseConfig& config) {
  std::vector<std::unique_ptr<JumpAdvisor>> advisors;
  for (const AdvisorRow& row : kAdvisors) {
    if (row.is_wanted(config)) advisors.push_back(row.make(config));
  }
  return advisors;
}

}  // namespace hybrid_trainer
