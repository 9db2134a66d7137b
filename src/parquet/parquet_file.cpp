#include "hybrid_trainer/parquet/parquet_file.h"

#include <cstring>
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/parquet/footer.h"
#include "src/parquet/leaf_reader.h"

namespace hybrid_trainer {
namespace {

constexpr std::string_view kParquetMark = "PAR1", kEncryptedMark = "PARE";
constexpr std::size_t kTail = 8;  // the footer's length and the mark

/// The bytes of the footer. Throws DataError.
std::string read_footer(const InputFile& file) {
  if (file.bytes() < kParquetMark.size() + kTail)
    throw DataError("is no parquet file: it is too short");
  char tail[kTail];
  file.read_at(tail, kTail, file.bytes() - kTail);
  const std::string_view mark(tail + 4, 4);
  if (mark == kEncryptedMark) throw DataError("is an encrypted parquet file, which is not read");
  if (mark != kParquetMark)
    throw DataError("is no parquet file, or is cut off: it does not end with PAR1; copy it anew");
  std::uint32_t length = 0;
  std::memcpy(&length, tail, sizeof length);
  if (length > file.bytes() - kParquetMark.size() - kTail)
    throw DataError(
        concat("is damaged: its footer has ", length, " bytes, and the file ", file.bytes()));
  std::string footer(length, '\0');
  file.read_at(footer.data(), length, file.bytes() - kTail - length);
  return footer;
}

}  // namespace

struct ParquetFile::Content {
  Content(const std::filesystem::path& path, const std::string& called)
      : name(called.empty() ? path.native() : called), file(path) {
    try {
      bytes = read_footer(file);
      footer.emplace(bytes, file.bytes() - kTail - bytes.size());
    } catch (const DataError& error) {
      throw DataError(concat(name, ": ", error.what()));
    }
  }
  std::string name;
  InputFile file;
  std::string bytes;
  std::optional<Footer> footer;
};

ParquetFile::ParquetFile(const std::filesystem::path& path, const std::string& called)
    : content_(std::make_unique<Content>(path, called)) {}
ParquetFile::~ParquetFile() = default;

const std::string& ParquetFile::name() const { return content_->name; }
std::size_t ParquetFile::bytes() const { return content_->file.bytes(); }
std::int64_t ParquetFile::rows() const { return content_->footer->rows(); }
const std::vector<ParquetNode>& ParquetFile::nodes() const { return content_->footer->nodes(); }
std::size_t ParquetFile::row_groups() const { return content_->footer->row_groups(); }
std::int64_t ParquetFile::rows_of_group(std::size_t group) const {
  return content_->footer->rows_of_group(group);
}

std::vector<std::string> ParquetFile::columns() const {
  std::vector<std::string> names;
  for (const ParquetNode& node : nodes()) names.push_back(node.name);
  return names;
}

std::vector<std::unique_ptr<ParquetLeaf>> ParquetFile::open(std::size_t group,
                                                            const ParquetNode& node) const {
  const Footer& footer = *content_->footer;
  std::vector<std::unique_ptr<ParquetLeaf>> leaves;
  for (std::size_t i = node.leaf; i < node.leaf + node.leaves; ++i) {
    const ParquetColumn& column = footer.columns().at(i);
    leaves.push_back(
        std::make_unique<LeafReader>(content_->file, column, footer.chunk(group, column)));
  }
  return leaves;
}

}  // namespace hybrid_trainer
