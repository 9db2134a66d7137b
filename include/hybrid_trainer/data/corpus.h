#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Bytes [begin, end) of a file: one document, or part of one.
struct TextPiece {
  std::filesystem::path path;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t bytes() const { return end - begin; }
};

/// Text files, one document each.
struct Corpus {
  std::vector<TextPiece> documents;  // none is empty
  std::int64_t bytes = 0;
  std::int64_t skipped_binary_files = 0;  // in folders: a NUL in the first 8 KB
  std::int64_t repeated_files = 0;        // how often a file came again; it counts once
  /// How messages call it: the first input, and how many more there are.
  std::string name;
};

/// The files named, and all files below the folders named, sorted within each folder. A named file
/// is always taken, a file in a folder is skipped where it is binary. A file that comes again, by
/// another spelling or a link too, counts once, so that it is in one split only. Links to folders
/// inside a folder are not followed. Throws MissingInput that names an input that is not there,
/// DataError where there is no text at all.
Corpus find_corpus(const std::vector<std::filesystem::path>& inputs);

struct CorpusSplit {
  std::vector<TextPiece> train;
  std::vector<TextPiece> validation;
};

/// About `validation` of the bytes, 0 < validation < 1, as validation text. With several documents
/// each is whole in one split, spread evenly over the corpus, as long as the share so reached lies
/// within half and one and a half of what was asked for. Else, and always with one document, the
/// last `validation` of the characters of the corpus is cut off.
CorpusSplit split_corpus(const Corpus& corpus, double validation);

/// Part of a document, small enough for memory.
struct TextSegment {
  std::string text;
  bool starts_document = false;
  std::filesystem::path path;
  std::int64_t begin = 0;  // of the text in the file
};

/// Reads pieces in order as segments of about `segment_bytes`. A document is cut where no word of
/// any tokenizer is, or where an overlong one is cut anyway, so its segments' tokens are the
/// document's tokens.
class SegmentReader {
 public:
  static constexpr std::int64_t kSegmentBytes = 256 << 10;
  explicit SegmentReader(std::vector<TextPiece> pieces, std::int64_t segment_bytes = kSegmentBytes);
  /// The next segments, together about `bytes` long; empty at the end. Throws IoError.
  std::vector<TextSegment> next(std::int64_t bytes);

 private:
  std::optional<TextSegment> next_segment();
  void open_piece();
  std::vector<TextPiece> pieces_;
  std::int64_t segment_bytes_;
  std::size_t piece_ = 0;
  std::int64_t position_ = 0;  // of rest_ in the file; meaningful while file_ is open
  std::ifstream file_;
  std::string rest_;  // read, but behind the last cut
};

}  // namespace hybrid_trainer
