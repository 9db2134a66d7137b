#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/distributed/nccl_api.h"

namespace hybrid_trainer::emulation {

enum class Transfer { kAllGather, kBroadcast, kSend, kReceive };

/// One operation of a rank's stream with other ranks.
struct FakeOperation {
  Transfer transfer = Transfer::kSend;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  nccl::DataType type = nccl::kUint8;
  int other = -1;            // root or peer
  std::uint64_t number = 0;  // index among the rank's collectives
  int rank = 0;              // rank that performs it
  bool is_done = false;
  bool meets(const FakeOperation& that) const {
    return transfer == that.transfer && count == that.count && type == that.type &&
           other == that.other;
  }
};

/// memcpy that also works on device memory.
using CopyBytes = void(void*, const void*, std::size_t);

/// The ranks of one id. Mismatched calls wait forever, as in NCCL, until their rank aborts.
class Clique {
 public:
  Clique(int ranks, CopyBytes* copy)
      : ranks_(ranks), copy_(copy), aborted_(static_cast<std::size_t>(ranks)) {}
  int ranks() const { return ranks_; }
  /// Returns whether no other rank uses the device.
  bool join(int rank, int device);
  bool is_complete() const;
  /// Called on a rank's stream: starts all operations and waits until they are done.
  void run(int rank, std::vector<FakeOperation>& operations);
  void abort(int rank);

 private:
  void post(FakeOperation& operation);
  void post_collective(FakeOperation& operation);
  void post_message(FakeOperation& operation);

  const int ranks_;
  CopyBytes* const copy_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> devices_;  // by rank
  std::map<std::uint64_t, std::vector<FakeOperation*>> collectives_;
  std::map<std::pair<int, int>, std::deque<FakeOperation*>> sends_,
      receives_;  // by sender and receiver
  std::vector<bool> aborted_;
  bool is_broken_ = false;
};

}  // namespace hybrid_trainer::emulation
