#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace hybrid_trainer {

/// Types of tensors, with ggml's numbers. All but the first three are blocks of elements of a row.
enum class GgufType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
  kMXFP4 = 39
};
const char* name_of(GgufType type);  // "q8_0"

/// The bytes of so many elements of a row, which whole blocks hold.
struct GgufBlock {
  std::int64_t elements = 1;
  std::size_t bytes = 4;
};
GgufBlock block_of(GgufType type);

/// The type of a number of ggml's, where it is one of these.
std::optional<GgufType> gguf_type_of(std::uint32_t number);
/// ggml's name of another number, or "number 99".
std::string unread_gguf_type(std::uint32_t number);
/// "f32, f16, …".
std::string gguf_types_text();

}  // namespace hybrid_trainer
