#include "hybrid_trainer/distributed/background_communicator.h"

#include <memory>
#include <utility>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/short_turns.h"

namespace hybrid_trainer {
namespace {

/// Adds the time until it ends.
class ExposedTime {
 public:
  explicit ExposedTime(std::atomic<double>& seconds) : seconds_(seconds) {}
  ~ExposedTime() { seconds_ = seconds_ + seconds_since(begin_); }
  ExposedTime(const ExposedTime&) = delete;
  ExposedTime& operator=(const ExposedTime&) = delete;

 private:
  std::atomic<double>& seconds_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

void BackgroundCommunicator::make(const Stream*, const std::function<void()>& call) {
  const ExposedTime exposed(exposed_seconds_);
  worker_.wait_until_idle();
  call();
}

BackgroundCommunicator::~BackgroundCommunicator() {
  if (std::uncaught_exceptions() > exceptions_) ranks().interrupt();
}

/// The caller's stream may be gone by then, where it ended by an error.
CollectiveTicket BackgroundCommunicator::begin(CollectiveJob job, const Stream& stream) {
  if (!beside_) {
    make(&stream, [&] { job(ranks(), stream); });
    return 0;
  }
  if (worker_.submitted() == 0) worker_.submit([] { take_short_turns(); });
  worker_.submit([this, job = std::move(job), own = std::make_shared<Stream>(stream.pool())] {
    job(ranks(), *own);
  });
  return worker_.submitted();
}

void BackgroundCommunicator::wait_for(CollectiveTicket job, const Stream&) {
  const ExposedTime exposed(exposed_seconds_);
  worker_.wait_until_done(job);
}

CommunicationUse BackgroundCommunicator::use() const {
  CommunicationUse use = ranks().use();
  use.exposed_seconds = exposed_seconds_;
  return use;
}

}  // namespace hybrid_trainer
