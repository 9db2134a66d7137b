#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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

/// Physical types, with their values in the file.
enum class ParquetType {
  kBoolean,
  kInt32,
  kInt64,
  kInt96,
  kFloat,
  kDouble,
  kByteArray,
  kFixedLenByteArray
};

struct ParquetColumn {
  std::string name;       // "messages.list.element.role"
  std::size_t chunk = 0;  // index in a row group
  ParquetType type = ParquetType::kByteArray;
  bool is_unsigned = false;
  int max_repetition = 0, max_definition = 0;
};

struct ColumnChunk {
  int codec = 0;
  std::int64_t values = 0;
  std::uint64_t begin = 0, end = 0;  // offsets in the file
};

/// Metadata of a Parquet file. Stores the metadata of row groups as bytes, to limit the memory.
class Footer {
 public:
  /// `bytes` must outlive this; pages end before `pages_end`. Throws DataError.
  Footer(std::string_view bytes, std::uint64_t pages_end);

  const std::vector<ParquetNode>& nodes() const { return nodes_; }
  const std::vector<ParquetColumn>& columns() const { return columns_; }
  std::size_t row_groups() const { return groups_.size(); }
  std::string_view property(std::string_view key) const;
  std::int64_t rows_of_group(std::size_t group) const { return groups_.at(group).rows; }
  ColumnChunk chunk(std::size_t group, const ParquetColumn& column) const;

 private:
  struct Group {
    std::string_view bytes;
    std::int64_t rows = 0;
    std::vector<std::uint32_t> chunks{};  // start of the metadata of each column in `bytes`
  };
  void add_group(std::string_view bytes);
  /// Throws DataError if the file is too small for `count` rows, or `count` values of a column.
  void check_count(std::int64_t count, const char* what) const;

  std::uint64_t pages_end_;
  std::size_t all_columns_ = 0;  // number of columns, including unsupported columns
  std::vector<ParquetNode> nodes_;
  std::vector<ParquetColumn> columns_;
  std::vector<Group> groups_;
  std::vector<std::pair<std::string_view, std::string_view>> properties_;
};

}  // namespace hybrid_trainer
