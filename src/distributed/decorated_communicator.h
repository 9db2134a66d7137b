#pragma once

#include <atomic>
#include <chrono>

#include "hybrid_trainer/core/stream.h"
#include "src/core/threads.h"
#include "src/distributed/communicator.h"

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

/// The ranks of another communicator on a processor, whose calls that `begin` go on in a thread of
/// their own. Any other call waits for these first, and is made by its caller. Counts the time that
/// the caller waited: CommunicationUse::exposed_seconds.
class BackgroundCommunicator final : public DecoratedCommunicator {
 public:
  /// `ranks` must outlive it. Not `beside`: what begins is done at once.
  BackgroundCommunicator(Communicator& ranks, bool beside)
      : DecoratedCommunicator(ranks), beside_(beside), worker_(1, beside) {}
  /// Waits for what began; during an exception it interrupts that instead.
  ~BackgroundCommunicator() override;
  CollectiveTicket begin(CollectiveJob job, const Stream& stream) override;
  void wait_for(CollectiveTicket job, const Stream& stream) override;
  CommunicationUse use() const override;

 protected:
  void make(const Stream* stream, const std::function<void()>& call) override;

 private:
  const bool beside_;
  const int exceptions_ = std::uncaught_exceptions();
  std::atomic<double> exposed_seconds_ = 0;
  BackgroundWorker worker_;
};

/// The ranks of another communicator between CUDA devices, whose calls that `begin` go on in a stream
/// of their own: after what their caller's stream had been given, beside what it is given next. Any
/// other call on that device comes after all of these, since one communicator's calls must be in one
/// order on all ranks. Blocks in none of that. Where nothing is beside, leave it out.
class SideStreamCommunicator final : public DecoratedCommunicator {
 public:
  /// `ranks` must outlive it.
  explicit SideStreamCommunicator(Communicator& ranks) : DecoratedCommunicator(ranks) {}
  /// Waits for pending calls, except during an exception.
  ~SideStreamCommunicator() override;
  CollectiveTicket begin(CollectiveJob job, const Stream& stream) override;
  void wait_for(CollectiveTicket job, const Stream& stream) override;

 protected:
  void make(const Stream* stream, const std::function<void()>& call) override;

 private:
  /// The job keeps its tensors until its caller's stream waits for it: freed earlier, their memory
  /// would be given to work that does not wait.
  struct Begun {
    CollectiveTicket ticket;
    const CUstream_st* caller;
    CollectiveJob job;
    Event end;
  };

  const int exceptions_ = std::uncaught_exceptions();
  std::optional<Stream> side_;  // from the first job on
  Event begin_;
  CollectiveTicket last_ = 0;
  std::deque<Begun> begun_;  // in their order: what is waited for, and the last one
};

/// Time of a message over a link: a part that is always there, and one by its bytes. Each direction
/// has the whole rate.
struct LinkSpeed {
  double bytes_per_second = 0;  // 0: bytes take no time
  std::chrono::duration<double> latency{0};
};

/// Another communicator, each of whose calls takes in addition what it would over a slower link: the
/// latency, and the bytes that this rank sends or receives, whichever are more, at the link's rate.
/// Imitates a network on one machine, to measure what hides it; no bit depends on it.
class ImitatedLink final : public DecoratedCommunicator {
 public:
  /// `ranks` must outlive it.
  ImitatedLink(Communicator& ranks, LinkSpeed speed)
      : DecoratedCommunicator(ranks), speed_(speed) {}

 protected:
  void make(const Stream* stream, const std::function<void()>& call) override;

 private:
  LinkSpeed speed_;
};

/// Measures messages while all ranks send at once: the median of barriers, and the bytes a second
/// that the slowest rank sends by all_to_all at its best. A collective of two ranks or more;
/// blocks. The same on all ranks.
LinkSpeed measure_link(Communicator& ranks, const Stream& stream);

}  // namespace hybrid_trainer
