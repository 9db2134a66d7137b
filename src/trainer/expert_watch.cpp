#include "src/trainer/expert_watch.h"

#include <algorithm>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/routed_experts.h"

namespace hybrid_trainer {

namespace {

/// Appends the numbers of a tensor (count) f64, zeros if it is undefined, and clears it.
void take_sums(std::vector<double>& all, const Tensor& sums, std::int64_t count,
               const Stream& stream) {
  if (!sums) return all.resize(all.size() + static_cast<std::size_t>(count));
  const Tensor here = wait_for_host(sums, stream);
  all.insert(all.end(), here.data<double>(), here.data<double>() + count);
  fill_zero(sums, stream);
}

}  // namespace

ExpertLoads ExpertWatch::read(LossModel& model, const Stream& stream, const Total& total) {
  std::vector<const RoutingCount*> counts;
  std::vector<double> sums;
  model.visit_routings([&](RoutedExperts& experts) {
    counts.push_back(&experts.count());
    take_sums(sums, experts.count().sums, kernels::routing_numbers(counts.back()->experts), stream);
  });
  ExpertLoads loads;
  if (counts.empty()) return loads;
  if (total) total(sums);
  const double* of_layer = sums.data();
  for (std::size_t layer = 0; layer < counts.size(); ++layer) {
    add_layer(loads, *counts[layer], of_layer, layer);
    of_layer += kernels::routing_numbers(counts[layer]->experts);
  }
  if (!loads.empty()) warn_of_dead(loads);
  return loads;
}

std::optional<double> ExpertWatch::read_flips(LossModel& model, const Stream& stream,
                                              const Total& total) {
  std::vector<double> sums;
  model.visit_routings(
      [&](RoutedExperts& experts) { take_sums(sums, experts.count().flips, 2, stream); });
  if (sums.empty()) return {};
  if (total) total(sums);
  double flips = 0, pairs = 0;
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    flips += sums[i];
    pairs += sums[i + 1];
  }
  return pairs == 0 ? std::optional<double>() : flips / pairs;
}

void ExpertWatch::add_layer(ExpertLoads& loads, const RoutingCount& count, const double* sums,
                            std::size_t layer) {
  const auto experts = static_cast<std::size_t>(count.experts);
  const double tokens = sums[2 * experts];
  if (tokens == 0) return;
  idle_.resize(std::max(idle_.size(), layer + 1));
  idle_[layer].resize(experts);
  const double mean = tokens * static_cast<double>(count.chosen) / static_cast<double>(experts);
  const auto [least, most] = std::minmax_element(sums, sums + experts);
  loads.most.push_back(*most / mean);
  loads.least.push_back(*least / mean);
  loads.entropy.push_back(sums[2 * experts + 1] / tokens);
  for (std::size_t e = 0; e < experts; ++e) idle_[layer][e] = sums[e] > 0 ? 0 : idle_[layer][e] + 1;
  loads.dead.push_back(std::ranges::count_if(
      idle_[layer], [](std::int64_t steps) { return steps >= ExpertLoads::kDeadAfter; }));
  loads.balance_loss += static_cast<double>(count.losses.balance) * sums[2 * experts + 3] / tokens;
  loads.z_loss += static_cast<double>(count.losses.z) * sums[2 * experts + 2] / tokens;
}

void ExpertWatch::warn_of_dead(const ExpertLoads& loads) {
  const std::int64_t dead = std::accumulate(loads.dead.begin(), loads.dead.end(), std::int64_t{0});
  if (dead == 0 || dead < 2 * told_) return;
  told_ = dead;
  const auto layer = std::max_element(loads.dead.begin(), loads.dead.end()) - loads.dead.begin();
  warn_(concat(dead, dead == 1 ? " expert has" : " experts have", " had no token for ",
               ExpertLoads::kDeadAfter, " steps, most in the layer ", layer,
               " of those with experts; a balance loss (model.experts.balance_loss=0.01) spreads "
               "tokens"));
}

}  // namespace hybrid_trainer
