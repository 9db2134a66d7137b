#pragma once

#include <string>

#include "hybrid_trainer/core/device.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Declares --device, bound to `name`, which must live until the command line is parsed.
void add_device_option(po::options_description& options, std::string& name);

/// The name itself. Throws UsageError if it names no device.
const std::string& checked_device_name(const std::string& name);

/// The device that --device names. Throws UsageError if the name is not a device's, DeviceError if
/// this machine does not have it.
Device device_of_option(const std::string& name);

}  // namespace hybrid_trainer
