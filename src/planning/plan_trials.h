#pragma once

#include <cstddef>
#include <vector>

#include "src/planning/plan_dimensions.h"

namespace hybrid_trainer {

/// The position of a value in each dimension.
using Choice = std::vector<std::size_t>;

/// All of them from the dimensions' first values on.
std::vector<Choice> all_choices(const std::vector<Dimension>& dimensions);

/// Which of a list of choices still need a trial.
class PlanTrials {
 public:
  /// Both must outlive it.
  PlanTrials(const std::vector<Choice>& choices, const std::vector<Dimension>& dimensions);

  /// Positions in the list, below `end`.
  std::vector<std::size_t> left(std::size_t end) const;
  void leave_out(std::size_t tried) { is_out_[tried] = true; }
  /// Too large for the device: so are those that save no more.
  void exceeds_device(std::size_t tried);
  /// Small enough for the device, and too large for the rest: so are those that only move more from
  /// the device to the host.
  void exceeds_others(std::size_t tried);

 private:
  bool saves_no_more(const Choice& one, const Choice& other) const;
  bool only_moves_to_host(const Choice& from, const Choice& to) const;

  const std::vector<Choice>& choices_;
  const std::vector<Dimension>& dimensions_;
  std::vector<bool> is_out_;
};

}  // namespace hybrid_trainer
