#pragma once

#include <cstdint>
#include <span>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Tokens of a host's array as i32 on the stream's device.
Tensor device_tokens(std::span<const std::int32_t> tokens, const Shape& shape,
                     const Stream& stream);
/// The values as f32 in the memory of `host`, see make_host_pool, or where they are there. Waits for
/// them. From pinned memory that the pool reuses, a copy takes no pages to lock for each token.
Tensor host_f32(const Tensor& values, const Stream& host, const Stream& stream);

}  // namespace hybrid_trainer
