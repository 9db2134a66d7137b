#pragma once

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// One rank of a job whose others are not there: nothing is sent, and tensors keep what they have.
/// For devices that compute nothing, to see what a rank takes.
class AbsentCommunicator final : public Communicator {
 public:
  AbsentCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* name() const override { return "absent"; }
  void all_reduce(const Tensor&, Reduction, const Stream&) override {}
  void reduce_scatter(const Tensor&, const Tensor&, Reduction, const Stream&) override {}
  void all_gather(const Tensor&, const Tensor&, const Stream&) override {}
  void all_to_all(const Tensor&, const std::vector<std::int64_t>&, const Tensor&,
                  const std::vector<std::int64_t>&, const Stream&) override {}
  void broadcast(const Tensor&, int, const Stream&) override {}
  void barrier() override {}
  void send(const Tensor&, int, const Stream&) override {}
  void receive(const Tensor&, int, const Stream&) override {}
  /// As if all had given the same.
  std::vector<std::string> host_gather(std::string_view bytes) override;
  /// Throws RankLost.
  void abort(const std::string& reason) override;
  CommunicationUse use() const override { return use_; }

 private:
  int rank_, size_;
  CommunicationUse use_;
};

}  // namespace hybrid_trainer
