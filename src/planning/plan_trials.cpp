#include "src/planning/plan_trials.h"

#include <string>

namespace hybrid_trainer {

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

PlanTrials::PlanTrials(const std::vector<Choice>& choices, const std::vector<Dimension>& dimensions)
    : choices_(choices), dimensions_(dimensions), is_out_(choices.size()) {}

std::vector<std::size_t> PlanTrials::left(std::size_t end) const {
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < end; ++i)
    if (!is_out_[i]) left.push_back(i);
  return left;
}

void PlanTrials::exceeds_device(std::size_t tried) {
  for (std::size_t i = 0; i < choices_.size(); ++i)
    if (saves_no_more(choices_[i], choices_[tried])) is_out_[i] = true;
}

void PlanTrials::exceeds_others(std::size_t tried) {
  for (std::size_t i = 0; i < choices_.size(); ++i)
    if (only_moves_to_host(choices_[tried], choices_[i])) is_out_[i] = true;
}

bool PlanTrials::saves_no_more(const Choice& one, const Choice& other) const {
  for (std::size_t i = 0; i < one.size(); ++i)
    if (dimensions_[i].saves_always ? one[i] > other[i] : one[i] != other[i]) return false;
  return true;
}

bool PlanTrials::only_moves_to_host(const Choice& from, const Choice& to) const {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::vector<std::string>& values = dimensions_[i].values;
    const bool moves = values[from[i]] == "device" && values[to[i]] == "host";
    if (from[i] != to[i] && !moves) return false;
  }
  return true;
}

}  // namespace hybrid_trainer
