#pragma once

#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Characters before this one are in form C, whatever of them follow each other.
inline constexpr char32_t kFirstComposing = 0x300;

/// A text in Unicode's normalization form C as Hugging Face's tokenizers makes it, whose Unicode is
/// 9: newer characters stay where they are. Bytes that are not UTF-8 are left alone.
std::string to_nfc(std::string_view text);

}  // namespace hybrid_trainer
