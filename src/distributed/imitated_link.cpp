#include "hybrid_trainer/distributed/imitated_link.h"

#include <algorithm>
#include <thread>

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/progress.h"

namespace hybrid_trainer {
namespace {

/// A slow link is no rank that is stuck.
constexpr std::chrono::milliseconds kSlice{500};

}  // namespace

void ImitatedLink::make(const Stream*, const std::function<void()>& call) {
  const CommunicationUse before = ranks().use();
  call();
  const CommunicationUse after = ranks().use();
  const auto bytes = static_cast<double>(
      std::max(after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received));
  const double seconds = speed_.bytes_per_second > 0 ? bytes / speed_.bytes_per_second : 0;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      speed_.latency + std::chrono::duration<double>(seconds));
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    std::this_thread::sleep_for(std::min<Clock::duration>(end - now, kSlice));
    count_progress();
  }
}

}  // namespace hybrid_trainer
