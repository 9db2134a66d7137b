#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/data/corpus.h"

namespace hybrid_trainer {

/// Part of a document, small enough for memory.
struct TextSegment {
  std::string text;
  bool starts_document = false;
  std::string place;        // "book.txt from byte 7 on", or "row 3 of t.csv"
  bool is_divided = false;  // cut where it is one word, for its length
};

/// Reads pieces in order as segments of about `segment_bytes`. A document is only cut where `cut`
/// says, as Tokenizer::last_cut does, so that its segments' tokens are the document's tokens; but a
/// text of kLongestSegment without such a place is cut between any two characters.
class SegmentReader {
 public:
  using Cut = std::function<std::size_t(std::string_view text, std::size_t first)>;
  static constexpr std::int64_t kSegmentBytes = 256 << 10;
  static constexpr std::int64_t kLongestSegment = 16 << 20;
  SegmentReader(std::vector<TextPiece> pieces, Cut cut, std::int64_t segment_bytes = kSegmentBytes);
  /// The next segments, together about `bytes` long; empty at the end. Throws IoError.
  std::vector<TextSegment> next(std::int64_t bytes);

 private:
  std::optional<TextSegment> next_segment();
  void open_piece();
  std::vector<TextPiece> pieces_;
  Cut cut_;
  std::int64_t segment_bytes_;
  std::size_t piece_ = 0;
  bool is_in_piece_ = false;
  std::int64_t position_ = 0;  // of rest_ in the file; meaningful in a piece
  std::ifstream file_;
  std::shared_ptr<const std::filesystem::path> opened_;  // the file that is open
  std::int64_t read_to_ = 0;                             // in it
  std::string rest_;                                     // read, but after the last cut
};

}  // namespace hybrid_trainer
