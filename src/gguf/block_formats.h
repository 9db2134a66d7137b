#pragma once

#include "kernels/quantized/weight_blocks.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

/// The format of a type that holds numbers in blocks; none of a type that holds them one by one.
std::optional<kernels::BlockFormat> block_format_of(GgufType type);

/// The types that are written: f32, f16, bf16, q8_0, q4_0.
/// `values` are whole blocks; `to` has block_of(type).bytes for each. Rounds to the nearest, as
/// ggml's reference does. Throws DataError where f16 cannot hold a value.
void encode_blocks(GgufType type, std::span<const float> values, std::byte* to);

/// What blocks of any type stand for, in ggml's order of operations. Source: ggml, ggml-quants.c.
void decode_blocks(GgufType type, const std::byte* from, std::span<float> values);

}  // namespace hybrid_trainer
