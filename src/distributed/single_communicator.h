#pragma once

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// A single rank on any device. Gathering returns the data of this rank.
class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const char* name() const override { return "single"; }
  void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) override;
  void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                    const Stream& stream) override;
  void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                  const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                  const Stream& stream) override;
  void barrier() override;
  std::vector<std::string> host_gather(std::string_view bytes) override;
  void abort(const std::string& reason) override;  // throws RankLost
  CommunicationUse use() const override { return use_; }

 private:
  CommunicationUse use_;
};

/// One rank of a job without the other ranks, for simulated devices. Sends no data and leaves
/// tensors unchanged. use() counts the bytes that would be sent.
class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* name() const override { return "absent"; }
  void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) override;
  void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                    const Stream& stream) override;
  void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                  const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                  const Stream& stream) override;
  void barrier() override { count(0, 0); }
  std::vector<std::string> host_gather(std::string_view bytes) override;
  void abort(const std::string& reason) override;  // throws RankLost
  CommunicationUse use() const override { return use_; }

  /// Returns the bytes that occupy this rank's link: per call, the larger of sent and received.
  std::uint64_t link_bytes() const { return link_bytes_; }

 private:
  void count(std::uint64_t sent, std::uint64_t received);

  int rank_, size_;
  std::uint64_t link_bytes_ = 0;
  CommunicationUse use_;
};

}  // namespace hybrid_trainer
