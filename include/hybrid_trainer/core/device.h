#pragma once

#include <string>

namespace hybrid_trainer {

/// kSimulated is a CUDA device that hands out memory and runs nothing, to find out what a step
/// takes before it runs. Whatever is read from it is zero.
enum class DeviceType { kCpu, kCuda, kSimulated };

/// Where tensors live and work runs.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;  // of the CUDA device, as `hybrid doctor` numbers them
  bool operator==(const Device&) const = default;
};

std::string name_of(Device device);  // "cpu", "cuda:0", "simulated:0"

/// True for "cpu", "cuda", "cuda:N" and "auto", whatever the machine has.
bool names_a_device(const std::string& name);

/// "cpu", "cuda", "cuda:N" or "auto": CUDA if this build and machine have it, else the processor.
/// Throws DeviceError, which says what is missing and how to fix that, or ConfigError.
Device find_device(const std::string& name);

}  // namespace hybrid_trainer
