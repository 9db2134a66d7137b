#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// Which tokens of a text stand for which of its bytes.
class TokenPlaces {
 public:
  /// `tokens` are those of `text` with special tokens meant; both must outlive this.
  TokenPlaces(std::string_view text, std::span<const std::int32_t> tokens,
              const Tokenizer& tokenizer);

  /// The tokens [first, last) that stand for bytes from `begin` to `end` and for none outside. None
  /// where that cannot be told.
  std::optional<std::pair<std::size_t, std::size_t>> within(std::size_t begin, std::size_t end);

 private:
  bool walk();
  std::optional<std::size_t> tokens_before(std::size_t byte);

  std::string_view text_;
  std::span<const std::int32_t> tokens_;
  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::size_t, std::size_t>> bytes_;  // of each token; empty: not known
  std::size_t known_byte_ = 0, known_tokens_ = 0;           // what is before a byte asked for last
};

}  // namespace hybrid_trainer
