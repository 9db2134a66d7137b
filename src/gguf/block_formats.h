#pragma once

#include "kernels/quantized/weight_blocks.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

/// Returns the format of a type that stores numbers in blocks; nullopt for other types.
std::optional<kernels::BlockFormat> block_format_of(GgufType type);

/// Encodes values to a type that can be written: f32, f16, bf16, q8_0, q4_0. `values` must be whole
/// blocks, and `to` has block_of(type).bytes bytes for each block. Rounds to nearest, like ggml's
/// reference. Throws DataError if f16 cannot represent a value.
void encode_blocks(GgufType type, std::span<const float> values, std::byte* to);

/// Decodes blocks of any type, in ggml's order of operations. Source: ggml, ggml-quants.c.
void decode_blocks(GgufType type, const std::byte* from, std::span<float> values);

}  // namespace hybrid_trainer
