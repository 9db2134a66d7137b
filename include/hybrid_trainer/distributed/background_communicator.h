#pragma once

#include <atomic>
#include <exception>

#include "hybrid_trainer/core/background_worker.h"
#include "hybrid_trainer/distributed/decorated_communicator.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
