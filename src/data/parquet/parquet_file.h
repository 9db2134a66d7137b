#pragma once

#include <variant>

#include "hybrid_trainer/files/input_file.h"
#include "src/data/parquet/footer.h"

namespace hybrid_trainer {

class ParquetLeaf;

/// Reads a parquet table by row groups, each column by pages. Does not trust lengths in the file.
class ParquetFile {
 public:
  /// Opens a table. `called` is its name in messages, by default the path. Throws DataError if the
  /// file is not a Parquet table, or is damaged or encrypted. Also throws MissingInput and IoError.
  explicit ParquetFile(const std::filesystem::path& path, const std::string& called = {});
  ParquetFile(const ParquetFile&) = delete;
  ParquetFile& operator=(const ParquetFile&) = delete;

  const std::string& name() const { return name_; }
  std::size_t bytes() const { return file_.bytes(); }
  const Footer& footer() const { return *footer_; }
  std::vector<std::string> columns() const;
  /// Opens all leaves of a node for the rows of a group. The first leaf of a descendant `inner` of
  /// the node is at index inner.leaf - node.leaf of the result. Throws DataError.
  std::vector<std::unique_ptr<ParquetLeaf>> open(std::size_t group, const ParquetNode& node) const;

 private:
  std::string name_;
  InputFile file_;
  std::string footer_bytes_;
  std::optional<Footer> footer_;
};

/// A value of a leaf; a text is valid until the leaf advances.
using ParquetValue = std::variant<std::string_view, bool, std::int64_t, double>;

/// Iterates over the places of a leaf in a row group.
class ParquetLeaf {
 public:
  virtual ~ParquetLeaf() = default;
  virtual bool at_end() = 0;
  /// Return the levels of the next place. Throw DataError at the end.
  virtual int repetition() = 0;
  virtual int definition() = 0;
  /// Moves past the next place. At the largest definition level, sets `value` and returns true.
  virtual bool take(ParquetValue& value) = 0;
};

}  // namespace hybrid_trainer
