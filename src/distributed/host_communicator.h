#pragma once

#include <atomic>
#include <span>

#include "hybrid_trainer/distributed/communicator.h"
#include "src/distributed/collective_call.h"
#include "src/distributed/peer_messages.h"

namespace hybrid_trainer {

/// Collectives on tensors in host memory, made of messages between two ranks. Before data follow,
/// each rank tells the others what it calls, so that no message meets memory of another size.
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
  /// Sends and receives all of them, in any order of peers, but each peer's in the order given;
  /// data may be used again when it returns. No message is empty. Throws RankLost.
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
  std::atomic<std::uint64_t> entered_ = 0, left_ = 0;  // waits for messages
};

}  // namespace hybrid_trainer
