#pragma once

#include <string>

namespace hybrid_trainer {

enum class DeviceType { kCpu, kCuda };

/// A device that stores tensors and runs kernels.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;  // of the CUDA device, as `hybrid doctor` numbers them
  /// A simulated device allocates addresses without memory and runs no kernels, to measure a step's
  /// memory in advance. It makes the same choices as a real device; every read returns zero.
  bool simulated = false;
  bool operator==(const Device&) const = default;
};

std::string name_of(Device device);  // "cpu", "cuda:0", "simulated cpu"

/// Returns "cpu" or the product name of the CUDA device.
std::string hardware_name_of(Device device);

/// Returns whether `name` is "cpu", "cuda", "cuda:N" or "auto", regardless of the machine.
bool is_device_name(const std::string& name);

/// Parses "cpu", "cuda", "cuda:N" or "auto" (CUDA if build and machine support it, else the CPU).
/// Without N, the device number is `unnamed` modulo the number of devices. Throws ConfigError for
/// other names, and DeviceError naming the missing part and a remedy if there is no such device.
Device find_device(const std::string& name, int unnamed = 0);

}  // namespace hybrid_trainer
