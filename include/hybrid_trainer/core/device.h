#pragma once

#include <string>

namespace hybrid_trainer {

enum class DeviceType { kCpu, kCuda };

/// Where tensors live and work runs.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;  // of the CUDA device, as `hybrid doctor` numbers them
  /// It hands out addresses and runs nothing, to find out what memory a step takes before it runs:
  /// every choice is the real device's, and whatever is read is zero.
  bool simulated = false;
  bool operator==(const Device&) const = default;
};

std::string name_of(Device device);  // "cpu", "cuda:0", "simulated cpu"

/// "cpu", or the name of the CUDA device's model.
std::string hardware_name_of(Device device);

/// True for "cpu", "cuda", "cuda:N" and "auto", whatever the machine has.
bool names_a_device(const std::string& name);

/// "cpu", "cuda", "cuda:N" or "auto": CUDA if this build and machine have it, else the processor.
/// Without N it is device number `unnamed`, counted round. Throws DeviceError, which says what is
/// missing and how to fix that, or ConfigError.
Device find_device(const std::string& name, int unnamed = 0);

}  // namespace hybrid_trainer
