#include "hybrid_trainer/nn/activation_tape.h"

#include <algorithm>

namespace hybrid_trainer {

PlainTape::Entry* PlainTape::same_tensor(const Tensor& tensor, bool may_be_lossy) {
  constexpr std::ptrdiff_t kNear = 8;  // modules save a shared tensor in nearby entries
  const auto first = entries_.rbegin();
  const auto last = first + std::min<std::ptrdiff_t>(kNear, std::ssize(entries_));
  const auto found = std::find_if(first, last, [&](const Entry& entry) {
    return entry.consumers > 0 && entry.identity.is_of(tensor) &&
           (may_be_lossy || !entry.activation.may_be_lossy);
  });
  return found == last ? nullptr : &*found;
}

void PlainTape::declare_rebuildable(const Tensor& tensor, Rebuild as, const Tensor& source,
                                    Rebuilder& by) {
  offer_.reset();
  if (as > rebuild_) return;
  const Entry* const kept = same_tensor(source, true);
  require(kept != nullptr, "activation tape: the input of an activation was not saved");
  offer_ = {TensorIdentity(tensor), static_cast<std::size_t>(kept - entries_.data()), &by};
}

void PlainTape::save(Activation activation, const Stream& stream) {
  const Shape shape = activation.tensor.shape();
  if (Entry* entry = same_tensor(activation.tensor, activation.may_be_lossy)) {
    ++entry->consumers;
    order_.push_back({static_cast<std::size_t>(entry - entries_.data()), shape});
    return;
  }
  Entry entry{.activation = activation, .identity = TensorIdentity(activation.tensor)};
  entry.activation.tensor = {};
  if (offer_ && offer_->of.is_of(activation.tensor)) {
    entry.rebuilder = offer_->by;
    entry.source = offer_->source;
  } else if (activation.tensor) {
    entry.kept = pack(activation, stream);
  }
  order_.push_back({entries_.size(), shape});
  entries_.push_back(std::move(entry));
}

Tensor PlainTape::contents(Entry& entry, const Stream& stream) {
  if (entry.rebuilder != nullptr && !entry.kept) {
    entry.kept = entry.rebuilder->rebuild(contents(entries_[entry.source], stream), pass(), stream);
  } else if (entry.packed && entry.kept) {
    entry.kept = unpack(entry.kept, entry.activation, stream);
  }
  entry.packed = false;
  return entry.kept;
}

const PlainTape::Entry* PlainTape::next_packed() const {
  for (auto reference = order_.rbegin(); reference != order_.rend(); ++reference) {
    const Entry* entry = &entries_[reference->entry];
    if (entry->rebuilder != nullptr && !entry->kept) entry = &entries_[entry->source];
    if (entry->packed && entry->kept) return entry;
  }
  return nullptr;
}

Tensor PlainTape::take(const Stream& stream) {
  require(!order_.empty(), "activation tape: backward read more activations than forward saved");
  const Reference reference = order_.back();
  order_.pop_back();
  Entry& entry = entries_[reference.entry];
  const Tensor kept = contents(entry, stream);
  const Tensor tensor = kept ? kept.view(reference.shape) : Tensor{};
  if (--entry.consumers == 0) entry.kept = {};
  while (!entries_.empty() && entries_.back().consumers == 0) entries_.pop_back();
  if (const Entry* next = next_packed()) ahead(next->kept, stream);
  return tensor;
}

Shape PlainTape::take_shape() {
  require(!shapes_.empty(), "activation tape: backward read more sizes than forward saved");
  const Shape shape = shapes_.back();
  shapes_.pop_back();
  return shape;
}

Shape ActivationTape::take_shape() {
  throw Error(ExitCode::kInternal,
              "activation tape: backward was called after a forward-only pass");
}

Tensor ForwardOnlyTape::take(const Stream&) {
  throw Error(ExitCode::kInternal,
              "activation tape: backward was called after a forward-only pass");
}

}  // namespace hybrid_trainer
