#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/word_model.h"

namespace hybrid_trainer {

/// What a byte-level BPE within GPT-2's words consists of that was trained here; the last id is that
/// of the end-of-text token.
struct BpeModel {
  std::vector<std::string> tokens;  // the bytes of each id; the end-of-text token's text
  std::array<std::int32_t, 256> byte_ids{};
  std::vector<BpeMerge> merges;
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

}  // namespace hybrid_trainer
