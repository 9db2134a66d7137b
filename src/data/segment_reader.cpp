#include "hybrid_trainer/data/segment_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/data/text_cuts.h"

namespace hybrid_trainer {

SegmentReader::SegmentReader(std::vector<TextPiece> pieces, Cut cut, std::int64_t segment_bytes)
    : pieces_(std::move(pieces)), cut_(std::move(cut)), segment_bytes_(segment_bytes) {}

std::vector<TextSegment> SegmentReader::next(std::int64_t bytes) {
  std::vector<TextSegment> segments;
  while (bytes > 0) {
    auto segment = next_segment();
    if (!segment) break;
    bytes -= static_cast<std::int64_t>(segment->text.size());
    segments.push_back(std::move(*segment));
  }
  return segments;
}

void SegmentReader::open_piece() {
  const TextPiece& piece = pieces_[piece_];
  if (opened_ != piece.path) {
    file_.close();
    file_.clear();
    file_.open(*piece.path, std::ios::binary);
    if (!file_)
      throw MissingInput(concat("cannot read ", piece.path->string(), ": ", std::strerror(errno)));
    opened_ = piece.path;
    read_to_ = 0;
  }
  if (read_to_ != piece.begin) file_.seekg(piece.begin);
  read_to_ = position_ = piece.begin;
  is_in_piece_ = true;
}

std::optional<TextSegment> SegmentReader::next_segment() {
  if (piece_ == pieces_.size()) return {};
  const TextPiece& piece = pieces_[piece_];
  if (!is_in_piece_) open_piece();
  TextSegment segment{std::exchange(rest_, {}), position_ == piece.document_begin,
                      piece.table ? concat("row ", piece.row, " of ", piece.table->string())
                                  : concat(piece.path->string(), " from byte ", position_, " on")};
  while (true) {
    const std::size_t kept = segment.text.size();
    const std::int64_t left = piece.end - position_ - static_cast<std::int64_t>(kept);
    const std::int64_t wanted = std::min(left, segment_bytes_);
    segment.text.resize(kept + static_cast<std::size_t>(wanted));
    if (!file_.read(segment.text.data() + kept, wanted)) {
      throw IoError(concat("reading ", piece.path->string(), " failed after byte ", position_,
                           ": the file has changed or the disk fails"));
    }
    read_to_ += wanted;
    if (wanted == left) break;
    std::size_t cut = cut_(segment.text, kept);
    segment.is_divided =
        cut == 0 && segment.text.size() >= static_cast<std::size_t>(kLongestSegment);
    if (segment.is_divided) cut = last_character(segment.text, 1);
    if (cut == 0) continue;
    rest_ = segment.text.substr(cut);
    segment.text.resize(cut);
    position_ += static_cast<std::int64_t>(cut);
    return segment;
  }
  is_in_piece_ = false;
  ++piece_;
  return segment;
}

}  // namespace hybrid_trainer
