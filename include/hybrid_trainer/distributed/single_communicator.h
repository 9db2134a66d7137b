#pragma once

#include "hybrid_trainer/distributed/communicator.h"

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

}  // namespace hybrid_trainer
