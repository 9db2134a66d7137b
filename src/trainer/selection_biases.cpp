#include "src/trainer/selection_biases.h"

#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/nn/routed_experts.h"
#include "src/trainer/saved_weights.h"

namespace hybrid_trainer {
namespace {

std::string key_of(RoutedExperts& experts) {
  return concat(kRoutingState, experts.count().layer, ".selection_bias");
}

}  // namespace

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

}  // namespace hybrid_trainer
