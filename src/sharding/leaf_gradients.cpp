#include "src/sharding/leaf_gradients.h"

#include <algorithm>
#include <cstring>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

double LeafGradients::wait_for_mean_of(const std::vector<Tensor>& losses, std::int64_t leaves,
                                       StepRetry& retry, const Stream& stream) const {
  if (stream.device().simulated) return 0;
  std::vector<double> mine, by_leaf(static_cast<std::size_t>(leaves));
  for (const Tensor& loss : losses) mine.push_back(kernels::wait_for_value(loss, stream));
  std::string told(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  told += static_cast<char>(retry);
  const std::vector<std::string> all = ranks_.host_gather(told);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const std::string& theirs = all[static_cast<std::size_t>(rank)];
    const std::vector<std::int64_t> own = leaves_of_rank(leaves, rank);
    require(theirs.size() == own.size() * sizeof(double) + 1, "ranks gather their losses");
    retry = std::max(retry, static_cast<StepRetry>(theirs.back()));
    for (std::size_t i = 0; i < own.size(); ++i) {
      std::memcpy(&by_leaf[static_cast<std::size_t>(own[i])], theirs.data() + i * sizeof(double),
                  sizeof(double));
    }
  }
  double sum = 0;
  for (const double loss : by_leaf) sum += loss;
  return sum / static_cast<double>(leaves);
}

void LeafGradients::check_all_got_one(const std::vector<Parameter*>& parameters) {
  for (const Parameter* parameter : parameters) {
    if (parameter->has_gradient()) continue;
    throw Error(ExitCode::kInternal,
                concat(parameter->name(),
                       " got no gradient in a micro-batch: over ranks every trainable weight takes "
                       "part in each"));
  }
}

}  // namespace hybrid_trainer
