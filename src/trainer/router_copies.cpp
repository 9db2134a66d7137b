#include "src/trainer/router_copies.h"

#include "hybrid_trainer/io/checkpoint.h"

namespace hybrid_trainer {
namespace {

std::string key_of(RoutedExperts& experts, const char* what) {
  return concat(kRoutingState, experts.count().layer, ".router_before.", what);
}

}  // namespace

std::vector<RoutedExperts*> RouterCopies::all() const {
  std::vector<RoutedExperts*> found;
  model_.visit_routings([&](RoutedExperts& experts) { found.push_back(&experts); });
  return found;
}

void RouterCopies::take() {
  for (RoutedExperts* const experts : all())
    if (!experts->router_before().weight)
      experts->router_before() = RouterCopy::of(experts->router(), stream_);
}

void RouterCopies::drop() {
  for (RoutedExperts* const experts : all()) experts->router_before() = {};
}

void RouterCopies::save(State& state) const {
  for (RoutedExperts* const experts : all()) {
    const RouterCopy& copy = experts->router_before();
    if (copy.weight) state.tensors[key_of(*experts, "weight")] = copy.weight;
    if (copy.bias) state.tensors[key_of(*experts, "bias")] = copy.bias;
  }
}

void RouterCopies::load(const State& state) {
  const auto loaded = [&](RoutedExperts& experts, const char* what) {
    const auto found = state.tensors.find(key_of(experts, what));
    if (found == state.tensors.end()) return Tensor{};
    Tensor to = Tensor::empty_like(found->second, MemoryKind::kSnapshot, stream_);
    wait_for_copy(to, found->second, stream_);
    return to;
  };
  for (RoutedExperts* const experts : all())
    experts->router_before() = {loaded(*experts, "weight"), loaded(*experts, "bias")};
}

}  // namespace hybrid_trainer
