#pragma once

#include <deque>
#include <exception>
#include <optional>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/distributed/decorated_communicator.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
