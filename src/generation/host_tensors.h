#pragma once

#include <cstdint>
#include <span>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Tokens of a host's array as i32 on the stream's device.
Tensor device_tokens(std::span<const std::int32_t> tokens, const Shape& shape,
                     const Stream& stream);
/// The values as f32 in host memory. Waits for them.
Tensor host_f32(const Tensor& values, const Stream& stream);

}  // namespace hybrid_trainer
