#pragma once

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// The pool "device" on a device, for tensors used in computation. Throws DeviceError.
std::shared_ptr<MemoryPool> make_device_pool(Device device = {},
                                             std::optional<std::size_t> budget_bytes = {});

/// The pool "host" for what is kept out of device memory, and for batches to be uploaded: plain
/// memory beside a processor, pinned memory beside a CUDA device, at most half of what the system
/// has available.
std::shared_ptr<MemoryPool> make_host_pool(Device device = {},
                                           std::optional<std::size_t> budget_bytes = {});

/// A pool whose blocks lie in an unnamed file in the folder that the config's `key` names; beside a
/// simulated device there is none. Throws CannotCreate.
std::shared_ptr<MemoryPool> make_file_pool(Device device, const std::string& folder,
                                           const char* key);

}  // namespace hybrid_trainer
