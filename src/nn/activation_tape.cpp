#include "hybrid_trainer/nn/activation_tape.h"

#include <algorithm>

namespace hybrid_trainer {
namespace {

/// How many entries back a tensor is looked for: modules that share one save it close together.
constexpr std::ptrdiff_t kNear = 8;

}  // namespace

PlainTape::Entry* PlainTape::same_tensor(const Activation& activation) {
  const auto first = entries_.rbegin();
  const auto last = first + std::min<std::ptrdiff_t>(kNear, std::ssize(entries_));
  const auto found = std::find_if(first, last, [&](const Entry& entry) {
    return entry.takers > 0 && entry.identity.is_of(activation.tensor) &&
           entry.activation.may_be_lossy <= activation.may_be_lossy &&
           entry.activation.may_be_rebuilt <= activation.may_be_rebuilt;
  });
  return found == last ? nullptr : &*found;
}

void PlainTape::save(Activation activation, const Stream& stream) {
  const Shape shape = activation.tensor.shape();
  if (Entry* entry = same_tensor(activation)) {
    ++entry->takers;
    order_.push_back({static_cast<std::size_t>(entry - entries_.data()), shape});
    return;
  }
  Entry entry{activation, TensorIdentity(activation.tensor), {}, 1};
  entry.activation.tensor = {};
  const bool drops = activation.may_be_rebuilt && rebuild_ == Rebuild::kYes;
  if (!drops && activation.tensor) entry.kept = pack(activation, stream);
  order_.push_back({entries_.size(), shape});
  entries_.push_back(std::move(entry));
}

Tensor PlainTape::take(const Stream& stream) {
  require(!order_.empty(), "activation tape: backward took more than forward saved");
  const Reference reference = order_.back();
  order_.pop_back();
  Entry& entry = entries_[reference.entry];
  if (entry.packed && entry.kept) entry.kept = unpack(entry.kept, entry.activation, stream);
  entry.packed = false;
  const Tensor tensor = entry.kept ? entry.kept.view(reference.shape) : Tensor{};
  if (--entry.takers == 0) entry.kept = {};
  while (!entries_.empty() && entries_.back().takers == 0) entries_.pop_back();
  return tensor;
}

Tensor ForwardOnlyTape::take(const Stream&) {
  throw Error(ExitCode::kInternal,
              "activation tape: backward was called after a forward-only pass");
}

}  // namespace hybrid_trainer
