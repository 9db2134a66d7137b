#include "src/data/parquet/parquet_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/parquet/encodings.h"
#include "src/data/parquet/thrift_reader.h"

namespace hybrid_trainer {

namespace {

class LeafReader final : public ParquetLeaf {
 public:
  /// `file` and `column` must outlive this object.
  LeafReader(const InputFile& file, const ParquetColumn& column, const ColumnChunk& chunk)
      : file_(file), column_(column), chunk_(chunk), left_(chunk.values) {
    check_codec(chunk.codec);
  }

  bool at_end() override { return left_ == 0; }
  int repetition() override {
    load();
    return repetition_;
  }
  int definition() override {
    load();
    return definition_;
  }
  bool take(ParquetValue& value) override {
    load();
    has_place_ = false;
    --left_;
    --left_in_page_;
    if (definition_ < column_.max_definition) return false;
    value = values_();
    return true;
  }

 private:
  struct Page;
  /// Reads the levels of the next place, unless already read.
  void load();
  void read_page();
  Page read_header();
  void read_body(const Page& page);
  void begin_values(const Page& page, std::string_view values);
  void take_dictionary(const Page& page);
  RunReader level_reader(std::string_view& bytes, int most) const;

  const InputFile& file_;
  const ParquetColumn& column_;
  ColumnChunk chunk_;  // begins after the data that were read
  std::int64_t left_, left_in_page_ = 0;
  std::string compressed_, page_;
  std::unique_ptr<ValueDictionary> dictionary_;
  ValueReader values_;
  RunReader repetitions_, definitions_;
  bool has_place_ = false;
  int repetition_ = 0, definition_ = 0;
};

enum PageType { kData = 0, kDictionary = 2, kData2 = 3 };

constexpr std::size_t kLongestPageHeader = 16 << 20;

int bits_of(int largest) { return narrow<int>(std::bit_width(narrow<unsigned>(largest))); }

struct LeafReader::Page {
  int type = -1;
  std::int64_t bytes = -1, compressed = -1;
  std::optional<std::uint32_t> checksum;
  std::int64_t values = -1, encoding = -1;
  std::int64_t definition_encoding = 3, repetition_encoding = 3;  // RLE
  std::int64_t definition_bytes = 0, repetition_bytes = 0;        // level bytes of a version 2 page
  bool is_compressed = true;
};

void LeafReader::load() {
  if (has_place_) return;
  if (left_ == 0)
    throw DataError(concat("column ", column_.name, " has fewer values than the others"));
  while (left_in_page_ == 0) read_page();
  const auto level = [&](RunReader& levels, int most) {
    const std::uint32_t read = most == 0 ? 0 : levels.next();
    if (std::cmp_greater(read, most))
      throw DataError(
          concat("column ", column_.name, " is damaged: it is nested deeper than its schema"));
    return narrow<int>(read);
  };
  repetition_ = level(repetitions_, column_.max_repetition);
  definition_ = level(definitions_, column_.max_definition);
  has_place_ = true;
}

void LeafReader::read_page() {
  const Page page = read_header();
  const auto bytes = static_cast<std::uint64_t>(page.compressed);
  if (page.compressed < 0 || page.bytes < 0 || bytes > chunk_.end - chunk_.begin)
    throw DataError(concat("column ", column_.name, " has a page of ", page.compressed,
                           " bytes, more than its column has left"));
  if (page.type != kData && page.type != kDictionary && page.type != kData2) {
    chunk_.begin += bytes;
    return;
  }
  if (page.values < 0 || (page.type != kDictionary && page.values > left_))
    throw DataError(concat("column ", column_.name, " has a page of ", page.values,
                           " values, but only ", left_, " are left"));
  compressed_.resize(bytes);
  file_.read_at(compressed_.data(), bytes, chunk_.begin);
  chunk_.begin += bytes;
  if (page.checksum && *page.checksum != page_checksum(compressed_))
    throw DataError(
        concat("column ", column_.name, " is damaged: the checksum of a page does not match"));
  if (page.type == kDictionary) {
    take_dictionary(page);
  } else {
    read_body(page);
  }
}

LeafReader::Page LeafReader::read_header() {
  constexpr std::size_t kUsual = 1024;
  const std::size_t most = std::min(kLongestPageHeader, chunk_.end - chunk_.begin);
  std::string bytes;
  for (std::size_t read = std::min(kUsual, most);; read = std::min(8 * read, most)) {
    bytes.resize(read);
    file_.read_at(bytes.data(), read, chunk_.begin);
    ThriftReader reader(bytes);
    Page page;
    const auto set = [&](std::int64_t& number, int type) {
      if (type != ThriftReader::kI32) return false;
      number = narrow<std::int32_t>(reader.read_integer(), "a number of a page's header");
      return true;
    };
    const auto read_data = [&](int id, int type) {
      return id == 1   ? set(page.values, type)
             : id == 2 ? set(page.encoding, type)
             : id == 3 ? set(page.definition_encoding, type)
             : id == 4 ? set(page.repetition_encoding, type)
                       : false;
    };
    const auto read_data_2 = [&](int id, int type) {
      if (id == 7) page.is_compressed = type == ThriftReader::kTrue;
      return id == 1   ? set(page.values, type)
             : id == 4 ? set(page.encoding, type)
             : id == 5 ? set(page.definition_bytes, type)
             : id == 6 ? set(page.repetition_bytes, type)
                       : false;
    };
    try {
      reader.read_struct([&](int id, int type) {
        std::int64_t number = 0;
        if (id == 1 && set(number, type))
          page.type = narrow<int>(number);
        else if (id == 2)
          return set(page.bytes, type);
        else if (id == 3)
          return set(page.compressed, type);
        else if (id == 4 && set(number, type))
          page.checksum = std::bit_cast<std::uint32_t>(narrow<std::int32_t>(number));
        else if ((id == 5 || id == 7) && type == ThriftReader::kStruct)
          reader.read_struct(read_data);
        else if (id == 8 && type == ThriftReader::kStruct)
          reader.read_struct(read_data_2);
        else
          return false;
        return true;
      });
    } catch (const ThriftEnds&) {
      if (read == most)
        throw DataError(concat("column ", column_.name, " is damaged: its pages end early"));
      continue;
    }
    chunk_.begin += reader.position();
    return page;
  }
}

void LeafReader::take_dictionary(const Page& page) {
  std::string bytes;
  decompress_page(chunk_.codec, compressed_, static_cast<std::size_t>(page.bytes), bytes);
  values_ = nullptr;  // may refer to the previous page
  dictionary_ = std::make_unique<ValueDictionary>(std::move(bytes),
                                                  static_cast<std::uint64_t>(page.values), column_);
}

/// Takes the levels of a page of version 1 from its bytes. Their size precedes them.
RunReader LeafReader::level_reader(std::string_view& bytes, int most) const {
  if (most == 0) return {};
  const std::uint32_t length = take_u32(bytes);
  return {take_bytes(bytes, length), bits_of(most)};
}

void LeafReader::read_body(const Page& page) {
  const auto size = static_cast<std::size_t>(page.bytes);
  if (page.type == kData) {
    const bool has_runs = (column_.max_repetition == 0 || page.repetition_encoding == 3) &&
                          (column_.max_definition == 0 || page.definition_encoding == 3);
    if (!has_runs)
      throw DataError(
          concat("column ", column_.name, " has levels that are not run-length encoded (RLE)"));
    decompress_page(chunk_.codec, compressed_, size, page_);
    std::string_view rest = page_;
    repetitions_ = level_reader(rest, column_.max_repetition);
    definitions_ = level_reader(rest, column_.max_definition);
    begin_values(page, rest);
    return;
  }
  std::string_view rest = compressed_;
  if (page.repetition_bytes < 0 || page.definition_bytes < 0 ||
      page.repetition_bytes + page.definition_bytes > page.bytes)
    throw DataError(
        concat("column ", column_.name, " has a page with levels larger than the page"));
  const auto repetitions = static_cast<std::uint64_t>(page.repetition_bytes);
  const auto definitions = static_cast<std::uint64_t>(page.definition_bytes);
  const std::string levels(take_bytes(rest, repetitions + definitions));
  std::string values;
  decompress_page(page.is_compressed ? chunk_.codec : 0, rest,
                  size - static_cast<std::size_t>(repetitions + definitions), values);
  compressed_ = levels;
  page_ = std::move(values);
  rest = compressed_;
  repetitions_ = RunReader(take_bytes(rest, repetitions), bits_of(column_.max_repetition));
  definitions_ = RunReader(rest, bits_of(column_.max_definition));
  begin_values(page, page_);
}

void LeafReader::begin_values(const Page& page, std::string_view values) {
  left_in_page_ = page.values;
  values_ = read_values(values, static_cast<std::uint64_t>(page.values), narrow<int>(page.encoding),
                        column_, dictionary_.get());
}

constexpr std::string_view kParquetMark = "PAR1", kEncryptedMark = "PARE";
constexpr std::size_t kTail = 8;  // the footer's length and the mark

std::string read_footer(const InputFile& file) {
  if (file.bytes() < kParquetMark.size() + kTail)
    throw DataError("is not a parquet file: it is too short");
  char tail[kTail];
  file.read_at(tail, kTail, file.bytes() - kTail);
  const std::string_view mark(tail + 4, 4);
  if (mark == kEncryptedMark)
    throw DataError("is an encrypted parquet file, which is not supported");
  if (mark != kParquetMark)
    throw DataError(
        "is not a parquet file, or is truncated: it does not end with PAR1; copy it again");
  std::uint32_t length = 0;
  std::memcpy(&length, tail, sizeof length);
  if (length > file.bytes() - kParquetMark.size() - kTail)
    throw DataError(concat("is damaged: its footer has ", length, " bytes, but the file has only ",
                           file.bytes()));
  std::string footer(length, '\0');
  file.read_at(footer.data(), length, file.bytes() - kTail - length);
  return footer;
}

}  // namespace

ParquetFile::ParquetFile(const std::filesystem::path& path, const std::string& called)
    : name_(called.empty() ? path.native() : called), file_(path) {
  try {
    footer_bytes_ = read_footer(file_);
    footer_.emplace(footer_bytes_, file_.bytes() - kTail - footer_bytes_.size());
  } catch (const DataError& error) {
    throw DataError(concat(name_, ": ", error.what()));
  }
}

std::vector<std::string> ParquetFile::columns() const {
  std::vector<std::string> names;
  for (const ParquetNode& node : footer_->nodes()) names.push_back(node.name);
  return names;
}

std::vector<std::unique_ptr<ParquetLeaf>> ParquetFile::open(std::size_t group,
                                                            const ParquetNode& node) const {
  std::vector<std::unique_ptr<ParquetLeaf>> leaves;
  for (std::size_t i = node.leaf; i < node.leaf + node.leaves; ++i) {
    const ParquetColumn& column = footer_->columns().at(i);
    leaves.push_back(std::make_unique<LeafReader>(file_, column, footer_->chunk(group, column)));
  }
  return leaves;
}

}  // namespace hybrid_trainer
