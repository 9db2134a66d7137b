#include "tests/emulation/nccl/clique.h"

#include <algorithm>
#include <cstring>

namespace hybrid_trainer::emulation {
namespace {

std::size_t size_of_type(nccl::DataType type) {
  if (type == nccl::kUint8) return 1;
  return type == nccl::kFloat64 ? 8 : 4;
}

template <class T>
T combined(T a, T b, nccl::Operator how) {
  if (how == nccl::kSum) return a + b;
  return how == nccl::kMin ? std::min(a, b) : std::max(a, b);
}

/// In another order than that of ranks: from the one that the element falls to, downwards.
template <class T>
std::vector<char> reduce_as(const std::vector<std::vector<char>>& given, nccl::Operator how) {
  const std::size_t ranks = given.size(), count = given[0].size() / sizeof(T);
  const auto value = [&](std::size_t rank, std::size_t i) {
    T read;
    std::memcpy(&read, given[rank].data() + i * sizeof(T), sizeof(T));
    return read;
  };
  std::vector<char> result(given[0].size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i % ranks;
    T sum = value(first, i);
    for (std::size_t step = 1; step < ranks; ++step)
      sum = combined(sum, value((first + ranks - step) % ranks, i), how);
    std::memcpy(result.data() + i * sizeof(T), &sum, sizeof(T));
  }
  return result;
}

std::vector<char> reduce(const std::vector<std::vector<char>>& given, const FakeOperation& like) {
  if (like.type == nccl::kFloat32) return reduce_as<float>(given, like.how);
  if (like.type == nccl::kFloat64) return reduce_as<double>(given, like.how);
  return reduce_as<std::int32_t>(given, like.how);
}

/// What all ranks gave is read before anything is written, since they may do it in place.
void carry_out(const std::vector<FakeOperation*>& all) {
  const FakeOperation& like = *all.front();
  const std::size_t ranks = all.size(), bytes = like.count * size_of_type(like.type);
  const bool gives_all = like.transfer == Transfer::kReduceScatter;
  std::vector<std::vector<char>> given;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool gives =
        like.transfer != Transfer::kBroadcast || static_cast<int>(rank) == like.other;
    const auto* const from = static_cast<const char*>(all[rank]->from);
    given.emplace_back(gives ? (gives_all ? ranks * bytes : bytes) : 0);
    if (!given.back().empty()) std::memcpy(given.back().data(), from, given.back().size());
  }
  const bool reduces =
      like.transfer == Transfer::kAllReduce || gives_all || like.transfer == Transfer::kReduce;
  const std::vector<char> sum = reduces ? reduce(given, like) : std::vector<char>{};
  const auto write = [](void* to, const char* from, std::size_t size) {
    if (size > 0) std::memcpy(to, from, size);
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    char* const to = static_cast<char*>(all[rank]->to);
    const bool is_root = static_cast<int>(rank) == like.other;
    if (like.transfer == Transfer::kAllReduce) write(to, sum.data(), bytes);
    if (gives_all) write(to, sum.data() + rank * bytes, bytes);
    if (like.transfer == Transfer::kReduce && is_root) write(to, sum.data(), bytes);
    if (like.transfer == Transfer::kBroadcast)
      write(to, given[static_cast<std::size_t>(like.other)].data(), bytes);
    for (std::size_t from = 0; like.transfer == Transfer::kAllGather && from < ranks; ++from)
      write(to + from * bytes, given[from].data(), bytes);
    all[rank]->is_done = true;
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
  carry_out(all);
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
    std::memcpy(to.to, from.from, from.count * size_of_type(from.type));
    from.is_done = to.is_done = true;
    sent.pop_front();
    received.pop_front();
  }
}

}  // namespace hybrid_trainer::emulation
