#pragma once

#include <string>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// What a rank says of itself before ranks start to work together on devices.
struct RankIntroduction {
  std::string host;
  std::string device;   // what no other device is called
  std::string version;  // of the library that sends between them
  std::string problem;  // why it cannot take part
};

/// Throws DeviceError, the same on all ranks, where one has a problem or another version, or two
/// have one device. A collective.
void check_introductions(const RankIntroduction& mine, Communicator& ranks);

std::string own_host_name();

}  // namespace hybrid_trainer
