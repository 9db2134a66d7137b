#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hybrid_trainer {

struct ParquetNode {
  enum class Kind { kLeaf, kStruct, kList, kMap };
  enum class Type { kText, kBoolean, kInteger, kReal };
  std::string name;
  Kind kind = Kind::kLeaf;
  Type type = Type::kText;  // type of a leaf
  /// Levels that determine which nodes are present at a place in the file. A value or struct is
  /// present if the definition level is at least `present`, and a list has an element if this level
  /// is at least `has_element`. Another element follows if the repetition level is `repeated`.
  int present = 0, has_element = 0, repeated = 0;
  std::size_t leaf = 0;  // index of the first supported leaf at or below this node
  std::size_t leaves = 1;
  std::vector<ParquetNode> children{};  // the only element of a list, or the key and value of a map
  /// Reason why the node is not supported, such as "of type INT96"; otherwise empty.
  std::string problem{};
};

class ParquetLeaf;

/// Reads a parquet table by row groups, each column by pages. Does not trust lengths in the file.
class ParquetFile {
 public:
  /// Opens a table. `called` is its name in messages, by default the path. Throws DataError if the
  /// file is not a Parquet table, or is damaged or encrypted. Also throws MissingInput and IoError.
  explicit ParquetFile(const std::filesystem::path& path, const std::string& called = {});
  ~ParquetFile();
  ParquetFile(const ParquetFile&) = delete;
  ParquetFile& operator=(const ParquetFile&) = delete;

  const std::string& name() const;
  std::size_t bytes() const;
  std::int64_t rows() const;
  std::vector<std::string> columns() const;
  const std::vector<ParquetNode>& nodes() const;
  std::string_view property(std::string_view key) const;

  std::size_t row_groups() const;
  std::int64_t rows_of_group(std::size_t group) const;
  /// Opens all leaves of a node for the rows of a group. The first leaf of a descendant `inner` of
  /// the node is at index inner.leaf - node.leaf of the result. Throws DataError.
  std::vector<std::unique_ptr<ParquetLeaf>> open(std::size_t group, const ParquetNode& node) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
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
