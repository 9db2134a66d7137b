#include "src/trainer/sharding/leaf_gradients.h"

#include <cstring>
#include <numeric>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {

std::vector<std::int64_t> LeafGradients::leaves_of_rank(std::int64_t leaves, int rank) const {
  const Shard range = leaves_of(leaves, rank, ranks_.size());
  std::vector<std::int64_t> own(static_cast<std::size_t>(range.elements()));
  std::iota(own.begin(), own.end(), range.first);
  return own;
}

double LeafGradients::wait_for_mean_of(const std::vector<Tensor>& losses, std::int64_t leaves,
                                       StepRetry& retry, const Stream& stream) const {
  if (stream.device().simulated) return 0;
  std::vector<double> mine, by_leaf(static_cast<std::size_t>(leaves));
  for (const Tensor& loss : losses) mine.push_back(kernels::wait_for_value(loss, stream));
  std::string message(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  message += static_cast<char>(retry);
  const std::vector<std::string> all = ranks_.host_gather(message);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const std::string& theirs = all[static_cast<std::size_t>(rank)];
    const std::vector<std::int64_t> own = leaves_of_rank(leaves, rank);
    require(theirs.size() == own.size() * sizeof(double) + 1,
            "ranks must gather the same number of losses");
    retry = std::max(retry, static_cast<StepRetry>(theirs.back()));
    for (std::size_t i = 0; i < own.size(); ++i)
      std::memcpy(&by_leaf[static_cast<std::size_t>(own[i])], theirs.data() + i * sizeof(double),
                  sizeof(double));
  }
  double sum = 0;
  for (const double loss : by_leaf) sum += loss;
  return sum / static_cast<double>(leaves);
}

void LeafGradients::check_all_have_gradients(const std::vector<Parameter*>& parameters) {
  for (const Parameter* parameter : parameters) {
    if (parameter->has_gradient()) continue;
    throw Error(ExitCode::kInternal,
                concat(parameter->name(),
                       " received no gradient in a micro-batch: with several ranks, every "
                       "micro-batch must use every trainable weight"));
  }
}

LocalGradients::LocalGradients(const std::vector<Parameter*>& parameters, Communicator& alone,
                               GradientSink& total, const Stream& home, const Stream& stream)
    : LeafGradients(alone), parameters_(parameters), total_(total), home_(home), stream_(stream) {}

void LocalGradients::begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) {
  leaf_ = leaf.value();
  leaves_ = leaves;
}

Tensor LocalGradients::memory_for(const Parameter& parameter, bool adds, DType writes,
                                  const Stream& stream) {
  add_complete_gradients();
  if (is_last()) return total_.memory_for(parameter, adds, writes, stream);
  Tensor& gradient = held_[&parameter];
  if (!gradient)
    gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream_);
  return gradient;
}

/// Adds the newest partial sum to `to` and removes it.
void LocalGradients::add_partial(const Tensor& to, std::vector<Tensor>& partials) const {
  const bool elsewhere = partials.back().pool() != stream_.pool();
  const StagedTensor lower(partials.back(), Use::kRead, stream_, elsewhere);
  kernels::add(to, lower, to, stream_);
  partials.pop_back();
}

void LocalGradients::ready(const Parameter& parameter, const Stream&) {
  complete_.push_back(&parameter);
}

void LocalGradients::add_complete_gradients() {
  for (const Parameter* parameter : std::exchange(complete_, {})) add(*parameter);
}

void LocalGradients::add(const Parameter& parameter) {
  written_.insert(&parameter);
  std::vector<Tensor>& partials = partials_[&parameter];
  if (is_last()) {
    const Tensor total = total_.gradient(parameter);
    while (!partials.empty()) add_partial(total, partials);
    total_.ready(parameter, stream_);
    return;
  }
  const Tensor gradient = held_.at(&parameter);
  held_.erase(&parameter);
  // The leaf completes one subtree for each trailing 1 bit of its index.
  for (int halves = std::countr_one(static_cast<std::uint64_t>(leaf_)); halves > 0; --halves)
    add_partial(gradient, partials);
  if (home_.pool() == stream_.pool()) {
    partials.push_back(gradient);
    return;
  }
  partials.push_back(Tensor::empty_like(gradient, MemoryKind::kGradients, home_));
  copy_or_wait(partials.back(), gradient, stream_);
}

/// Ends a micro-batch. Its missing gradients count as 0, unless no micro-batch has the gradient.
void LocalGradients::end_leaf() {
  add_complete_gradients();
  for (const Parameter* parameter : parameters_) {
    if (parameter->has_gradient() || (is_last() && !written_.contains(parameter))) continue;
    const bool was_written = written_.contains(parameter);
    fill_zero(memory_for(*parameter, false, DType::kF32, stream_), stream_);
    add(*parameter);
    if (!was_written) written_.erase(parameter);
  }
}

void LocalGradients::free() {
  held_.clear();
  complete_.clear();
  partials_.clear();
  written_.clear();
}

Tensor LocalGradients::gradient(const Parameter& parameter) const {
  if (is_last()) return total_.gradient(parameter);
  const auto held = held_.find(&parameter);
  return held == held_.end() ? Tensor{} : held->second;
}

}  // namespace hybrid_trainer
