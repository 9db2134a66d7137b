#pragma once

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// Another communicator, with something done around each call that concerns other ranks.
class DecoratedCommunicator : public Communicator {
 public:
  int rank() const final { return ranks_.rank(); }
  int size() const final { return ranks_.size(); }
  const char* name() const final { return ranks_.name(); }
  void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) final;
  void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                    const Stream& stream) final;
  void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                  const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                  const Stream& stream) final;
  void barrier() final;
  std::vector<std::string> host_gather(std::string_view bytes) final;
  void abort(const std::string& reason) final { ranks_.abort(reason); }
  void interrupt() final { ranks_.interrupt(); }
  CommunicationUse use() const override { return ranks_.use(); }
  RankProgress call_progress() const final { return ranks_.call_progress(); }

 protected:
  /// `ranks` must outlive it.
  explicit DecoratedCommunicator(Communicator& ranks) : ranks_(ranks) {}
  Communicator& ranks() const { return ranks_; }
  /// Makes `call`, which is one of `ranks`; it is ordered as work of `stream`, if there is one.
  virtual void make(const Stream* stream, const std::function<void()>& call) = 0;

 private:
  Communicator& ranks_;
};

}  // namespace hybrid_trainer
