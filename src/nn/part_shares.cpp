#include "src/nn/part_shares.h"

#include <algorithm>

namespace hybrid_trainer::graph {

void PartShares::set_group(const std::vector<std::size_t>& parts, double share) {
  for (const std::size_t part : parts) parts_[part].group = groups_.size();
  groups_.push_back(share);
}

void PartShares::clear() {
  groups_.resize(1);
  for (Sizes& part : parts_) part.group = 0;
}

std::vector<double> PartShares::of_parts(double share) const {
  std::vector<double> wanted(groups_.size()), shares(parts_.size());
  for (const Sizes& part : parts_)
    wanted[part.group] += (part.group == 0 ? share : groups_[part.group]) * part.saved();
  constexpr double kRoundingErrors = 1e-9;  // of the sums here
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const double saved = parts_[i].saved();
    double& left = wanted[parts_[i].group];
    if (saved == 0 || left <= kRoundingErrors * saved) continue;
    shares[i] = parts_[i].divides ? std::min(1.0, left / saved) : 1.0;
    left -= saved * shares[i];
  }
  return shares;
}

double PartShares::kept_numbers(double share) const {
  const std::vector<double> shares = of_parts(share);
  double sum = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    sum += parts_[i].kept - shares[i] * parts_[i].saved();
  return sum;
}

}  // namespace hybrid_trainer::graph
