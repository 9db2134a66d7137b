#include "tests/emulation/nccl/clique.h"

#include <algorithm>

namespace hybrid_trainer::emulation {
namespace {

/// Reads the inputs of all ranks before writing any output, because the call may be in place.
void carry_out(const std::vector<FakeOperation*>& all, CopyBytes* copy) {
  const FakeOperation& like = *all.front();
  const bool gathers = like.transfer == Transfer::kAllGather;
  std::vector<std::vector<char>> given;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const bool gives = gathers || static_cast<int>(rank) == like.other;
    given.emplace_back(gives ? like.count : 0);
    copy(given.back().data(), all[rank]->from, given.back().size());
  }
  for (FakeOperation* const one : all) {
    char* to = static_cast<char*>(one->to);
    for (const std::vector<char>& part : given) {
      copy(to, part.data(), part.size());
      to += part.size();
    }
    one->is_done = true;
  }
}

}  // namespace

bool Clique::join(int rank, int device) {
  const std::lock_guard lock(mutex_);
  const bool is_free = std::none_of(devices_.begin(), devices_.end(),
                                    [&](const auto& one) { return one.second == device; });
  devices_[rank] = device;
  return is_free;
}

bool Clique::is_complete() const {
  const std::lock_guard lock(mutex_);
  return devices_.size() == static_cast<std::size_t>(ranks_);
}

void Clique::run(int rank, std::vector<FakeOperation>& operations) {
  std::unique_lock lock(mutex_);
  if (aborted_[static_cast<std::size_t>(rank)]) return;
  for (FakeOperation& operation : operations) post(operation);
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return aborted_[static_cast<std::size_t>(rank)] ||
           std::all_of(operations.begin(), operations.end(),
                       [](const FakeOperation& one) { return one.is_done; });
  });
}

void Clique::abort(int rank) {
  const std::lock_guard lock(mutex_);
  aborted_[static_cast<std::size_t>(rank)] = true;
  is_broken_ = true;
  changed_.notify_all();
}

void Clique::post(FakeOperation& operation) {
  if (is_broken_) return;
  const bool is_message =
      operation.transfer == Transfer::kSend || operation.transfer == Transfer::kReceive;
  is_message ? post_message(operation) : post_collective(operation);
}

void Clique::post_collective(FakeOperation& operation) {
  std::vector<FakeOperation*>& all = collectives_[operation.number];
  all.resize(static_cast<std::size_t>(ranks_));
  all[static_cast<std::size_t>(operation.rank)] = &operation;
  const auto matches = [&](const FakeOperation* one) {
    return one != nullptr && one->meets(operation);
  };
  if (!std::all_of(all.begin(), all.end(), matches)) return;
  carry_out(all, copy_);
  collectives_.erase(operation.number);
}

void Clique::post_message(FakeOperation& operation) {
  const bool sends = operation.transfer == Transfer::kSend;
  const std::pair lane = sends ? std::pair(operation.rank, operation.other)
                               : std::pair(operation.other, operation.rank);
  std::deque<FakeOperation*>&sent = sends_[lane], &received = receives_[lane];
  (sends ? sent : received).push_back(&operation);
  while (!sent.empty() && !received.empty()) {
    FakeOperation &from = *sent.front(), &to = *received.front();
    if (from.count != to.count || from.type != to.type) return;
    copy_(to.to, from.from, from.count);
    from.is_done = to.is_done = true;
    sent.pop_front();
    received.pop_front();
  }
}

}  // namespace hybrid_trainer::emulation
