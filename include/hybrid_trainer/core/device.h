#pragma once

#include <string>

namespace hybrid_trainer {

enum class DeviceType { kCpu, kCuda };

/// A device that stores tensors and runs kernels.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;  // CUDA device number, as shown by `hybrid doctor`
  /// A simulated device predicts the memory of a step. It allocates addresses without memory and
  /// runs no kernels; reads return zero. It chooses the same algorithms as a real device.
  bool simulated = false;
  bool operator==(const Device&) const = default;
};

std::string name_of(Device device);  // "cpu", "cuda:0", "simulated cpu"

/// Returns "cpu" or the product name of the CUDA device.
std::string hardware_name_of(Device device);

/// Returns whether `name` is "cpu", "cuda", "cuda:N" or "auto", regardless of the machine.
bool is_device_name(const std::string& name);

/// Parses "cpu", "cuda", "cuda:N" or "auto" (CUDA if possible). Without N, uses CUDA device
/// `unnamed` modulo the number of devices. Throws ConfigError for other names, DeviceError if there
/// is no such device.
Device find_device(const std::string& name, int unnamed = 0);

}  // namespace hybrid_trainer
