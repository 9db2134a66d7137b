#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace hybrid_trainer {

/// What GPT-2's pattern calls \s: the 25 white-space characters of Unicode.
bool is_white_space(char32_t value);

/// Cuts a text into the words that GPT-2's byte-level BPE works within. A run of bytes that are not
/// UTF-8 is a word, and the text before it is matched as if it ended there. Not thread-safe; takes
/// some 100 µs to construct.
class WordSplitter {
 public:
  /// A longer word, such as a line of one million dashes, comes in pieces of at most this many
  /// bytes, each as long as whole characters allow. A leading space is not counted, so that a
  /// prefix space moves no piece.
  static constexpr std::size_t kLongestWord = std::size_t{64} << 10;

  WordSplitter();
  ~WordSplitter();
  /// Starts on a text, which must stay alive.
  void start(std::string_view text);
  /// The next word; empty at the end.
  std::string_view next();
  /// Whether the last result of next() is a piece of a word that continues.
  bool goes_on() const { return position_ < word_end_; }
  /// Bytes of the words since start() that were returned in pieces.
  std::int64_t divided_bytes() const { return divided_bytes_; }

 private:
  struct Pattern;
  std::size_t find_word_end();
  std::unique_ptr<Pattern> pattern_;
  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t word_end_ = 0;  // of the word that the position is in or at the end of
  std::int64_t divided_bytes_ = 0;
  std::size_t run_begin_ = 0;  // of the UTF-8 around the position
  std::size_t run_end_ = 0;
};

}  // namespace hybrid_trainer
