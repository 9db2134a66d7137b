#pragma once

#include <string_view>
#include <vector>

#include "src/parquet/footer.h"

namespace hybrid_trainer {

/// An element of the schema as the file lists it: a node before those below it.
struct SchemaElement {
  std::string_view name;
  int type = -1;       // of a leaf
  int repetition = 0;  // 0 required, 1 optional, 2 repeated
  int children = -1;   // of a group
  int converted = -1,
      logical = 0;  // meanings: numbers of ConvertedType and of LogicalType's fields
  bool is_unsigned = false;
};

struct SchemaTree {
  std::vector<ParquetNode> nodes;      // below the root
  std::vector<ParquetColumn> columns;  // that can be read
  std::size_t all_columns = 0;
};

/// Makes the tree of a list of elements, whose first is the root. Throws DataError.
SchemaTree schema_tree(const std::vector<SchemaElement>& elements);

}  // namespace hybrid_trainer
