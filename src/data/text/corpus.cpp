#include <sys/stat.h>
#include <unistd.h>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/tables/row_files.h"
#include "src/data/tables/table_reader.h"
#include "src/data/text/prepare.h"
#include "src/data/text/word_splitter.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{4} << 20;

/// Returns whether a file with this name may be plain text instead of a table.
bool may_be_text(const std::filesystem::path& path) {
  return path.extension() == ".json" || path.extension() == ".csv" || path.extension() == ".tsv";
}

constexpr std::size_t kProbedBytes = 8192;

std::string start_of(const fs::path& path) {
  std::string start(kProbedBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return start;
}

bool is_binary(const fs::path& path) { return start_of(path).find('\0') != std::string::npos; }

void require_text(const fs::path& path) {
  const std::string start = start_of(path);
  refuse_container(start, path);
  if (!is_utf16(start) && start.find('\0') != start.npos)
    warn(path.native(),
         "contains zero bytes, which is unusual for text; it is used without changes");
  if (!is_utf16(start)) return;
  throw DataError(concat(path.native(), ": is text in UTF-16; convert it to UTF-8 first: iconv -f ",
                         "UTF-16 -t UTF-8 ", shell_path(path), " > ",
                         shell_path(path.native() + ".utf8")));
}

std::int64_t mark_bytes(const fs::path& path) {
  return start_of(path).starts_with(kByteOrderMark) ? std::ssize(kByteOrderMark) : 0;
}

/// Collects files in the given order. Uses a file only once, even if it has several names or links.
class CorpusFinder {
 public:
  explicit CorpusFinder(TableTexts* tables) : tables_(tables) {}

  void add_named_file(const fs::path& path) {
    if (add_table(path)) return;
    require_text(path);
    add_file(path);
  }

  void add_file(const fs::path& path) {
    const struct stat file = status_of(path);
    const std::int64_t begin = mark_bytes(path);
    if (file.st_size == begin) return;
    skipped_.erase(key_of(file));
    if (!taken_.insert(key_of(file)).second) {
      ++corpus_.repeated_files;
      return;
    }
    corpus_.documents.push_back(
        {std::make_shared<const fs::path>(path), begin, file.st_size, begin});
    corpus_.bytes += file.st_size - begin;
  }

  void add_folder(const fs::path& folder) {
    check_readable(folder);
    std::vector<fs::path> paths;
    const auto options = fs::directory_options::skip_permission_denied;
    for (const auto& entry : fs::recursive_directory_iterator(folder, options)) {
      std::error_code dangling_link;
      const bool is_entered = entry.is_directory(dangling_link) && !entry.is_symlink();
      if (is_entered) check_readable(entry.path());
      if (entry.is_regular_file(dangling_link)) paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    const std::string mixed = mixed_splits_warning(paths);
    if (!mixed.empty()) warn(folder.string(), mixed);
    for (const fs::path& path : paths) {
      if (tables_ != nullptr && tables_->is_own(path)) continue;
      if (add_table(path)) continue;
      const Key key = key_of(status_of(path));
      if (taken_.contains(key) || !is_binary(path)) {
        add_file(path);
      } else {
        skipped_.insert(key);
      }
    }
  }

  Corpus take() {
    corpus_.skipped_binary_files = static_cast<std::int64_t>(skipped_.size());
    return std::move(corpus_);
  }

 private:
  /// Adds the rows of a table as documents. Returns false if the file is not a table.
  bool add_table(const fs::path& path) {
    if (tables_ == nullptr) return false;
    const Key key = key_of(status_of(path));
    if (tables_taken_.contains(key)) {
      ++corpus_.repeated_files;
      return true;
    }
    const std::size_t before = corpus_.documents.size();
    if (!tables_->add(path, corpus_.documents)) return false;
    tables_taken_.insert(key);
    for (std::size_t i = before; i < corpus_.documents.size(); ++i)
      corpus_.bytes += corpus_.documents[i].bytes();
    return true;
  }

  using Key = std::pair<dev_t, ino_t>;
  static Key key_of(const struct stat& file) { return {file.st_dev, file.st_ino}; }
  static void check_readable(const fs::path& folder) {
    if (::access(folder.c_str(), R_OK | X_OK) == 0) return;
    throw MissingInput(concat("cannot read the folder ", folder.string(), ": ",
                              std::strerror(errno), "; give the readable files in it instead"));
  }
  static struct stat status_of(const fs::path& path) {
    struct stat file {};
    if (::stat(path.c_str(), &file) == 0) return file;
    throw MissingInput(concat("cannot read ", path.string(), ": ", std::strerror(errno)));
  }

  TableTexts* tables_;
  Corpus corpus_;
  std::set<Key> taken_, tables_taken_, skipped_;
};

/// Returns `offset` in a file, moved back to the start of its UTF-8 character.
std::int64_t character_start(const fs::path& path, std::int64_t offset) {
  constexpr std::int64_t kLongestTail = 3;
  std::array<char, kLongestTail + 1> bytes{};
  const std::int64_t begin = std::max<std::int64_t>(offset - kLongestTail, 0);
  std::ifstream file(path, std::ios::binary);
  file.seekg(begin);
  file.read(bytes.data(), offset - begin + 1);
  std::int64_t start = offset;
  while (start > begin && is_continuation(bytes[static_cast<std::size_t>(start - begin)])) {
    --start;
  }
  return start;
}

CorpusSplit cut_at(const Corpus& corpus, std::int64_t cut) {
  CorpusSplit split;
  std::int64_t begin = 0;
  for (const TextPiece& document : corpus.documents) {
    const std::int64_t end = begin + document.bytes();
    if (end <= cut) {
      split.train.push_back(document);
    } else if (begin >= cut) {
      split.validation.push_back(document);
    } else {
      TextPiece before = document, behind = document;
      before.end = behind.begin = character_start(*document.path, document.begin + cut - begin);
      if (before.bytes() > 0) split.train.push_back(before);
      split.validation.push_back(behind);
    }
    begin = end;
  }
  return split;
}

}  // namespace

bool TableTexts::add(const std::filesystem::path& path, std::vector<TextPiece>& documents) {
  if (!has_name_of_rows(path)) return false;
  const auto table = std::make_shared<const std::filesystem::path>(path);
  const std::size_t before = documents.size();
  SkippedRows left_out = left_out_;
  const auto leave_out = [&](std::int64_t row, const std::string& why) {
    if (left_out.rows++ == 0)
      left_out.first = concat("row ", row, " of ", path.string(), ": ", why);
  };
  const TableVisitor visitor{
      [&](std::int64_t row, const json::object& values, const WideIntegers&) {
        const json::value* const text = values.if_contains("text");
        if (text == nullptr || !text->is_string())
          return leave_out(row, concat("\"", settings_.column, "\" is not a string"));
        const json::string& held = text->get_string();
        if (held.empty()) return leave_out(row, concat("\"", settings_.column, "\" is empty"));
        TextPiece piece;
        piece.table = table;
        piece.row = row;
        add_text({held.data(), held.size()}, std::move(piece), documents);
      },
      leave_out};
  try {
    visit_rows(path,
               {ColumnNames(std::vector{ColumnNames::Name{"text", settings_.column}}), {"text"}},
               visitor);
  } catch (const MissingColumn& error) {
    if (!settings_.is_requested && may_be_text(path)) return false;
    throw DataError(concat(error.what(), "; --column NAME selects the column with the text"));
  } catch (const DataError&) {
    if (settings_.is_requested || !may_be_text(path) || documents.size() > before) throw;
    return false;
  }
  const bool has_texts = documents.size() > before;
  if (!has_texts && !settings_.is_requested && may_be_text(path)) return false;
  left_out_ = left_out;
  return true;
}

void TableTexts::add_text(std::string_view text, TextPiece piece,
                          std::vector<TextPiece>& documents) {
  if (!file_) {
    place_ = std::make_shared<const std::filesystem::path>(settings_.place());
    file_.emplace(*place_);
  }
  piece.path = place_;
  piece.begin = piece.document_begin = bytes_;
  bytes_ += static_cast<std::int64_t>(text.size());
  piece.end = bytes_;
  documents.push_back(std::move(piece));
  buffer_ += text;
  if (buffer_.size() < kBuffer) return;
  file_->write(buffer_);
  buffer_.clear();
}

void TableTexts::finish() {
  if (!file_) return;
  file_->write(buffer_);
  file_->close();
}

void TableTexts::remove() {
  if (file_) std::filesystem::remove(*place_);
}

Corpus find_corpus(const std::vector<fs::path>& inputs, TableTexts* tables) {
  if (inputs.empty()) throw UsageError("no input; want at least one text file or folder");
  CorpusFinder finder(tables);
  for (const fs::path& input : inputs) {
    if (!fs::exists(input)) throw MissingInput(input.string() + ": does not exist");
    if (fs::is_directory(input)) {
      finder.add_folder(input);
    } else if (fs::is_regular_file(input)) {
      finder.add_named_file(input);
    } else {
      throw MissingInput(concat("input ", input.string(), " is neither a file nor a folder"));
    }
  }
  Corpus corpus = finder.take();
  corpus.name = inputs.front().string();
  if (inputs.size() > 1) corpus.name += concat(" and ", inputs.size() - 1, " more");
  if (corpus.bytes == 0) {
    const std::string skipped = concat(", only ", corpus.skipped_binary_files, " binary files");
    const bool has_rows = tables != nullptr && tables->left_out().rows > 0;
    throw DataError(concat(corpus.name, " is empty: it contains no text",
                           corpus.skipped_binary_files > 0 ? skipped : "",
                           has_rows ? "; " + tables->left_out().first : ""));
  }
  return corpus;
}

CorpusSplit split_corpus(const Corpus& corpus, double validation) {
  CorpusSplit split;
  double seen = 0, chosen = 0;
  for (const TextPiece& document : corpus.documents) {
    const auto bytes = static_cast<double>(document.bytes());
    seen += bytes;
    if (chosen + bytes / 2 <= validation * seen) {
      chosen += bytes;
      split.validation.push_back(document);
    } else {
      split.train.push_back(document);
    }
  }
  const double share = chosen / seen;
  if (share >= 0.5 * validation && share <= 1.5 * validation && !split.train.empty()) return split;
  return cut_at(corpus, static_cast<std::int64_t>((1 - validation) * seen));
}

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
                           ": the file has changed, or the disk has failed"));
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
