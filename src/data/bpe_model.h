#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// Joins the neighbours left and right into the token `joined`. The rank is the place in the list.
struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t joined = 0;
};

/// What a byte-level BPE tokenizer consists of.
struct BpeModel {
  std::vector<std::string> tokens;  // the bytes of each id; for special tokens their text
  std::array<std::int32_t, 256> byte_ids{};
  std::vector<BpeMerge> merges;
  std::vector<std::int32_t> special;  // ids that no text is encoded as
  std::optional<std::int32_t> end_of_text;
  bool adds_prefix_space = false;
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeModel model);

}  // namespace hybrid_trainer
