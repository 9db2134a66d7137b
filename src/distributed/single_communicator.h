#pragma once

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// One rank, on any device: what is gathered is what it gave.
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
  /// Throws RankLost.
  void abort(const std::string& reason) override;
  CommunicationUse use() const override { return use_; }

 private:
  CommunicationUse use_;
};

/// One rank of a job whose others are not there: nothing is sent, and tensors keep what they have;
/// use() says what would have been. For devices that compute nothing, to see what a rank takes.
class AbsentCommunicator final : public Communicator {
 public:
  AbsentCommunicator(int rank, int size) : rank_(rank), size_(size) {}
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
  /// Returns what this rank gave, once for each rank.
  std::vector<std::string> host_gather(std::string_view bytes) override;
  /// Throws RankLost.
  void abort(const std::string& reason) override;
  CommunicationUse use() const override { return use_; }

  /// Bytes that a link of this rank's is busy with: of each call those sent or received, whichever
  /// are more.
  std::uint64_t link_bytes() const { return link_bytes_; }

 private:
  void count(std::uint64_t sent, std::uint64_t received);

  int rank_, size_;
  std::uint64_t link_bytes_ = 0;
  CommunicationUse use_;
};

}  // namespace hybrid_trainer
