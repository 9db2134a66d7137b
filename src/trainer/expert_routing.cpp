#include "src/trainer/expert_routing.h"

#include <numeric>

#include "hybrid_trainer/nn/expert_mixture.h"
#include "src/files/checkpoint.h"
#include "src/trainer/model_trainable.h"

namespace hybrid_trainer {

namespace {

std::string key_of(RoutedExperts& experts, const char* what) {
  return concat(kRoutingState, experts.count().layer, ".router_before.", what);
}

std::string key_of(RoutedExperts& experts) {
  return concat(kRoutingState, experts.count().layer, ".selection_bias");
}

/// Appends the values of `sums`, (count) f64, or zeros if it is undefined. Then clears `sums`.
void take_sums(std::vector<double>& all, const Tensor& sums, std::int64_t count,
               const Stream& stream) {
  if (!sums) return all.resize(all.size() + static_cast<std::size_t>(count));
  const Tensor here = wait_for_host(sums, stream);
  all.insert(all.end(), here.data<double>(), here.data<double>() + count);
  fill_zero(sums, stream);
}

}  // namespace

void RouterCopies::take() {
  model_.visit_routings([&](RoutedExperts& experts) {
    if (!experts.router_before().weight)
      experts.router_before() = RouterCopy::of(experts.router(), stream_);
  });
}

void RouterCopies::drop() {
  model_.visit_routings([](RoutedExperts& experts) { experts.router_before() = {}; });
}

void RouterCopies::save(State& state) const {
  model_.visit_routings([&](RoutedExperts& experts) {
    const RouterCopy& copy = experts.router_before();
    if (copy.weight) state.tensors[key_of(experts, "weight")] = copy.weight;
    if (copy.bias) state.tensors[key_of(experts, "bias")] = copy.bias;
  });
}

void RouterCopies::load(const State& state) {
  const auto loaded = [&](RoutedExperts& experts, const char* what) {
    const auto found = state.tensors.find(key_of(experts, what));
    if (found == state.tensors.end()) return Tensor{};
    Tensor to = Tensor::empty_like(found->second, MemoryKind::kSnapshot, stream_);
    wait_for_copy(to, found->second, stream_);
    return to;
  };
  model_.visit_routings([&](RoutedExperts& experts) {
    experts.router_before() = {loaded(experts, "weight"), loaded(experts, "bias")};
  });
}

void move_selection_biases(LossModel& model, Communicator* ranks, const Stream& stream) {
  model.visit_routings([&](RoutedExperts& experts) {
    const Tensor& own = experts.count().sums;
    if (!experts.selection_bias() || !own) return;
    const std::int64_t all = ranks == nullptr ? 1 : ranks->size();
    Tensor counts = own.view({1, own.elements()});
    if (all > 1) {
      counts = Tensor::empty({all, own.elements()}, DType::kF64, MemoryKind::kWorkspace, stream);
      ranks->all_gather(counts, own, stream);
    }
    kernels::move_selection_bias(experts.selection_bias(), counts, experts.bias_rate(), stream);
  });
}

void save_selection_biases(LossModel& model, State& state) {
  model.visit_routings([&](RoutedExperts& experts) {
    if (experts.selection_bias()) state.tensors[key_of(experts)] = experts.selection_bias();
  });
}

void load_selection_biases(LossModel& model, const State& state, const Stream& stream) {
  model.visit_routings([&](RoutedExperts& experts) {
    if (experts.selection_bias())
      copy_saved(experts.selection_bias(), state, key_of(experts), stream);
  });
}

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
  if (dead == 0 || dead < 2 * reported_dead_) return;
  reported_dead_ = dead;
  const auto layer = std::max_element(loads.dead.begin(), loads.dead.end()) - loads.dead.begin();
  warn_(concat(dead, dead == 1 ? " expert has" : " experts have", " received no token for ",
               ExpertLoads::kDeadAfter, " steps, most of them in expert layer ", layer,
               "; a balance loss (model.experts.balance_loss=0.01) spreads tokens"));
}

}  // namespace hybrid_trainer
