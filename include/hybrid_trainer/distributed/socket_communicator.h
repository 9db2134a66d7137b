#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// Address at which the ranks of a job find each other.
struct RankMeeting {
  int rank = 0, size = 1;
  std::string address;          // of rank 0's host: a name or a number
  std::uint16_t port = 0;       // that rank 0 opens
  std::string job;              // who says another is turned away
  bool is_one_machine = false;  // so that no other one is listened to
  /// Secret that only this job's ranks know; never sent. Asked before each try: rank 0 may not have
  /// left it yet, which is "".
  std::function<std::string()> secret{};
  std::chrono::milliseconds limit{60000};  // until all have come
};

/// Processes as ranks, connected by TCP each with each. Tensors lie in host memory. abort() ends
/// this process; others notice. A collective of all ranks. Throws DeviceError where rank 0's port
/// is in use, or the ranks have not met within the limit.
std::unique_ptr<Communicator> meet_by_sockets(const RankMeeting& meeting);

}  // namespace hybrid_trainer
