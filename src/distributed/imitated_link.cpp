#include "hybrid_trainer/distributed/imitated_link.h"

#include <algorithm>
#include <thread>

namespace hybrid_trainer {

void ImitatedLink::make(const std::function<void()>& call) {
  const CommunicationUse before = ranks().use();
  call();
  const CommunicationUse after = ranks().use();
  const auto bytes = static_cast<double>(
      std::max(after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received));
  const double seconds = speed_.bytes_per_second > 0 ? bytes / speed_.bytes_per_second : 0;
  std::this_thread::sleep_for(speed_.latency + std::chrono::duration<double>(seconds));
}

}  // namespace hybrid_trainer
