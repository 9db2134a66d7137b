#pragma once

#include <atomic>
#include <chrono>

#include "src/core/threads.h"
#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// A communicator that wraps another and adds behavior to each call that involves other ranks.
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
  explicit DecoratedCommunicator(Communicator& ranks) : ranks_(ranks) {}
  Communicator& ranks() const { return ranks_; }
  /// Runs `call`, which calls `ranks`. Orders it like other work of `stream`, unless that is null.
  virtual void make(const Stream* stream, const std::function<void()>& call) = 0;

 private:
  Communicator& ranks_;
};

/// Runs jobs of `begin` in a background thread, for communicators on a CPU. Other calls wait for
/// these jobs and run in the caller's thread. Measures exposed_seconds.
class BackgroundCommunicator final : public DecoratedCommunicator {
 public:
  /// `ranks` must outlive this object. If `background` is false, runs jobs synchronously.
  BackgroundCommunicator(Communicator& ranks, bool background)
      : DecoratedCommunicator(ranks), background_(background), worker_(1, background) {}
  /// Waits for pending jobs. During an exception, interrupts them instead.
  ~BackgroundCommunicator() override;
  CollectiveTicket begin(CollectiveJob job, const Stream& stream) override;
  void wait_for(CollectiveTicket job, const Stream& stream) override;
  CommunicationUse use() const override;

 protected:
  void make(const Stream* stream, const std::function<void()>& call) override;

 private:
  const bool background_;
  const int exceptions_ = std::uncaught_exceptions();
  std::atomic<double> exposed_seconds_ = 0;
  BackgroundWorker worker_;
};

/// Runs jobs of `begin` on a separate CUDA stream, after the caller's earlier work and overlapping
/// with its later work. Other calls on this device run after all jobs, because all ranks must run
/// calls in the same order. Does not block.
class SideStreamCommunicator final : public DecoratedCommunicator {
 public:
  explicit SideStreamCommunicator(Communicator& ranks) : DecoratedCommunicator(ranks) {}
  /// Waits for pending calls, except during an exception.
  ~SideStreamCommunicator() override;
  CollectiveTicket begin(CollectiveJob job, const Stream& stream) override;
  void wait_for(CollectiveTicket job, const Stream& stream) override;

 protected:
  void make(const Stream* stream, const std::function<void()>& call) override;

 private:
  /// A job that has been started. It keeps its tensors until the caller's stream waits for it. If
  /// the tensors were freed earlier, work that does not wait for the job could reuse their memory.
  struct Begun {
    CollectiveTicket ticket;
    const CUstream_st* caller;
    CollectiveJob job;
    Event end;
  };

  const int exceptions_ = std::uncaught_exceptions();
  std::optional<Stream> side_stream_;  // created with the first job
  Event begin_;
  CollectiveTicket last_ = 0;
  std::deque<Begun> begun_;  // jobs that no stream has waited for, and the last job, in order
};

/// Time of a message: a constant part, and one proportional to its bytes, in each direction.
struct LinkSpeed {
  double bytes_per_second = 0;  // 0 if unlimited
  std::chrono::duration<double> latency{0};
};

/// Simulates a slower link, to measure how much communication overlaps with computation. Each call
/// takes longer by the latency and the time for the larger of the sent and the received bytes.
class SimulatedLink final : public DecoratedCommunicator {
 public:
  SimulatedLink(Communicator& ranks, LinkSpeed speed)
      : DecoratedCommunicator(ranks), speed_(speed) {}

 protected:
  void make(const Stream* stream, const std::function<void()>& call) override;

 private:
  LinkSpeed speed_;
};

/// Measures a link while all ranks send at the same time. The latency is the median time of
/// barriers, and the rate is the best rate of the slowest rank in all_to_all. Returns the same
/// values on all ranks. Collective, for at least two ranks. Blocks.
LinkSpeed measure_link(Communicator& ranks, const Stream& stream);

}  // namespace hybrid_trainer
