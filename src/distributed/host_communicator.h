#pragma once

#include <atomic>
#include <cstring>

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

struct OutgoingBytes {
  int peer;
  const void* data;
  std::size_t bytes;
};

struct IncomingBytes {
  int peer;
  void* data;
  std::size_t bytes;
};

struct Bytes {
  void* data;
  std::size_t count;
};

inline Bytes bytes_of(const Tensor& tensor, std::int64_t first, std::int64_t last) {
  const std::size_t each = size_of(tensor.dtype());
  return {static_cast<char*>(tensor.raw()) + static_cast<std::size_t>(first) * each,
          static_cast<std::size_t>(last - first) * each};
}

inline Bytes bytes_of(const Tensor& tensor, const Shard& shard) {
  return bytes_of(tensor, shard.first, shard.last);
}

inline Bytes bytes_of(const std::string_view text) {
  return {const_cast<char*>(text.data()), text.size()};
}

inline void copy_bytes(void* to, const Bytes& from) {
  if (from.count > 0 && to != from.data) std::memcpy(to, from.data, from.count);
}

/// Messages of one exchange with other ranks. Skips empty messages, and copies messages from this
/// rank to itself.
class PeerMessages {
 public:
  explicit PeerMessages(int own_rank) : own_rank_(own_rank) {}
  void send(int peer, const Bytes& from) {
    if (peer != own_rank_ && from.count > 0) sent.push_back({peer, from.data, from.count});
  }
  void receive(int peer, const Bytes& to) {
    if (peer != own_rank_ && to.count > 0) received.push_back({peer, to.data, to.count});
  }
  void exchange(int peer, const Bytes& from, const Bytes& to) {
    if (peer == own_rank_) copy_bytes(to.data, from);
    send(peer, from);
    receive(peer, to);
  }
  std::vector<OutgoingBytes> sent;
  std::vector<IncomingBytes> received;

 private:
  int own_rank_;
};

enum class Operation : std::uint32_t {
  kAllGather,
  kGatherParts,
  kAllToAll,
  kBarrier,
  kHostGather,
};

struct CollectiveCall {
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kU8;
  std::int64_t detail = 0;     // hash of the counts of all ranks
  std::int64_t elements = 0;   // elements of the tensor, or of the part for the receiving rank
  std::uint64_t sequence = 0;  // index of this collective
  bool operator==(const CollectiveCall&) const = default;
};

/// Collectives on host tensors, built from messages between two ranks. Before data follow, each
/// rank sends a description of its call, so that no message is written to memory of another size.
class HostCommunicator : public Communicator {
 public:
  HostCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) final;
  void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                    const Stream& stream) final;
  void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                  const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                  const Stream& stream) final;
  void barrier() final;
  std::vector<std::string> host_gather(std::string_view bytes) final;
  CommunicationUse use() const final { return {bytes_sent_, bytes_received_, calls_}; }
  RankProgress call_progress() const final { return {0, entered_, left_}; }

 protected:
  /// Sends and receives all messages, in order for each peer. The data may be reused after the call
  /// returns. Messages must not be empty. Throws RankLost.
  virtual void wait_for_transfer(std::span<const OutgoingBytes> sent,
                                 std::span<const IncomingBytes> received) = 0;

 private:
  std::vector<CollectiveCall> exchange(const std::vector<CollectiveCall>& for_each);
  void agree(Operation operation, const Tensor& values, std::int64_t detail);
  void enter_and_wait(std::span<const OutgoingBytes> sent, std::span<const IncomingBytes> received);
  void wait_for_data(const PeerMessages& messages);
  void gather_from_all(const Tensor& values, const std::vector<Shard>& by_rank);

  int rank_, size_;
  std::uint64_t collectives_ = 0;
  std::atomic<std::uint64_t> bytes_sent_ = 0, bytes_received_ = 0, calls_ = 0;
  /// Numbers of calls that wait for messages: entered and left.
  std::atomic<std::uint64_t> entered_ = 0, left_ = 0;
};

}  // namespace hybrid_trainer
