#include "src/data/parquet/footer.h"

#include <array>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/parquet/thrift_reader.h"

namespace hybrid_trainer {

namespace {

/// An element of the schema. The file stores each node before its children.
struct SchemaElement {
  std::string_view name;
  int type = -1;       // physical type of a leaf
  int repetition = 0;  // 0 required, 1 optional, 2 repeated
  int children = -1;   // number of children of a group
  int converted = -1,
      logical = 0;  // value of ConvertedType; field number in LogicalType
  bool is_unsigned = false;
};

struct SchemaTree {
  std::vector<ParquetNode> nodes;      // below the root
  std::vector<ParquetColumn> columns;  // supported columns
  std::size_t all_columns = 0;
};

constexpr int kDeepest = 32;
constexpr std::size_t kLongestPath = 4096;  // columns of a group repeat its name
enum { kOptional = 1, kRepeated = 2 };

/// Returns the reason why values of an element are not supported, or "" if they are.
std::string problem_of(const SchemaElement& element) {
  static constexpr std::array kOfLogical{"",          "", "", "", "", "DECIMAL", "DATE", "TIME",
                                         "TIMESTAMP", "", "", "", "", "BSON",    "UUID", "FLOAT16"};
  static constexpr std::array kOfConverted{
      "", "", "", "", "", "DECIMAL", "DATE", "TIME", "TIME", "TIMESTAMP", "TIMESTAMP",
      "", "", "", "", "", "",        "",     "",     "",     "BSON",      "INTERVAL"};
  const auto named = [](const auto& names, int number) -> std::string {
    const auto place = static_cast<std::size_t>(number);  // huge if negative
    return place < names.size() ? names[place] : "";
  };
  std::string name = named(kOfLogical, element.logical);
  if (name.empty()) name = named(kOfConverted, element.converted);
  if (name.empty() && element.type == narrow<int>(ParquetType::kInt96)) name = "INT96";
  if (name.empty() && element.type == narrow<int>(ParquetType::kFixedLenByteArray))
    name = "FIXED_LEN_BYTE_ARRAY";
  return name.empty() ? "" : "of type " + name;
}

ParquetNode::Type type_of(ParquetType type) {
  switch (type) {
    case ParquetType::kBoolean: return ParquetNode::Type::kBoolean;
    case ParquetType::kInt32:
    case ParquetType::kInt64: return ParquetNode::Type::kInteger;
    case ParquetType::kFloat:
    case ParquetType::kDouble: return ParquetNode::Type::kReal;
    default: return ParquetNode::Type::kText;
  }
}

/// Builds the tree from a list of elements, the first of which is the root. Throws DataError.
class TreeBuilder {
 public:
  explicit TreeBuilder(const std::vector<SchemaElement>& elements) : elements_(elements) {}

  SchemaTree run() {
    const SchemaElement& root = next();
    for (int i = 0; i < root.children; ++i) tree_.nodes.push_back(node({}, {"", 0}));
    if (at_ != elements_.size()) throw DataError("its schema has elements without a parent");
    return std::move(tree_);
  }

 private:
  struct Levels {
    int definition = 0, repetition = 0;
  };
  struct Above {
    std::string path;
    int depth = 0;
  };

  const SchemaElement& next() {
    if (at_ == elements_.size()) throw DataError("its schema ends early");
    return elements_[at_++];
  }

  ParquetNode node(Levels levels, const Above& above) {
    const SchemaElement& element = next();
    if (element.repetition != kRepeated)
      return required(element, with_null(levels, element), above);
    ParquetNode list{.name = std::string(element.name), .kind = ParquetNode::Kind::kList};
    return filled(std::move(list), levels, [&](ParquetNode& of, Levels inner) {
      of.children.push_back(required(element, inner, above));
    });
  }

  static Levels with_null(Levels levels, const SchemaElement& element) {
    return {levels.definition + (element.repetition == kOptional ? 1 : 0), levels.repetition};
  }

  /// Fills in a list or map at these levels. `fill` adds its elements.
  template <class F>
  ParquetNode filled(ParquetNode list, Levels levels, const F& fill) {
    list.present = levels.definition;
    list.has_element = levels.definition + 1;
    list.repeated = levels.repetition + 1;
    begin(list);
    fill(list, Levels{list.has_element, list.repeated});
    for (const ParquetNode& child : list.children)
      if (list.problem.empty()) list.problem = child.problem;
    end(list);
    return list;
  }

  ParquetNode required(const SchemaElement& element, Levels levels, const Above& above) {
    if (above.depth > kDeepest) throw DataError("its columns are nested too deeply");
    const Above here{concat(above.path, above.path.empty() ? "" : ".", element.name),
                     above.depth + 1};
    if (here.path.size() > kLongestPath)
      throw DataError(concat("has a column whose name, including its groups, has ",
                             here.path.size(), " bytes; want at most ", kLongestPath));
    if (element.children < 0) return leaf(element, levels, here);
    const bool has_one =
        element.children == 1 && at_ < elements_.size() && elements_[at_].repetition == kRepeated;
    const bool is_list = element.converted == 3 || element.logical == 3;
    const bool is_map = element.converted == 1 || element.converted == 2 || element.logical == 2;
    if (has_one && is_list) return list_of(element, levels, here);
    if (has_one && is_map && elements_[at_].children == 2) return map_of(element, levels, here);
    ParquetNode group{.name = std::string(element.name), .kind = ParquetNode::Kind::kStruct};
    group.present = levels.definition;
    begin(group);
    std::string problem = "without columns";
    for (int i = 0; i < element.children; ++i) {
      ParquetNode child = node(levels, here);
      if (child.problem.empty())
        group.children.push_back(std::move(child));
      else
        problem = child.problem;
    }
    if (group.children.empty()) group.problem = problem;
    end(group);
    return group;
  }

  /// Builds a list. Its repeated group is not an element, except in older files.
  ParquetNode list_of(const SchemaElement& element, Levels levels, const Above& here) {
    ParquetNode list{.name = std::string(element.name), .kind = ParquetNode::Kind::kList};
    return filled(std::move(list), levels, [&](ParquetNode& of, Levels inner) {
      const SchemaElement& repeated = elements_[at_];
      const bool is_element = repeated.children != 1 || repeated.name == "array" ||
                              repeated.name == std::string(element.name) + "_tuple";
      const Above inside{concat(here.path, ".", repeated.name), here.depth + 1};
      ++at_;
      of.children.push_back(is_element ? required(repeated, inner, here) : node(inner, inside));
    });
  }

  ParquetNode map_of(const SchemaElement& element, Levels levels, const Above& here) {
    ParquetNode map{.name = std::string(element.name), .kind = ParquetNode::Kind::kMap};
    return filled(std::move(map), levels, [&](ParquetNode& of, Levels inner) {
      ++at_;  // the repeated group
      for (int i = 0; i < 2; ++i) of.children.push_back(node(inner, here));
      const ParquetNode& key = of.children.front();
      if (key.kind != ParquetNode::Kind::kLeaf || key.type != ParquetNode::Type::kText)
        of.problem = "a map with keys that are not strings";
    });
  }

  ParquetNode leaf(const SchemaElement& element, Levels levels, const Above& here) {
    ParquetNode node{.name = std::string(element.name)};
    node.present = levels.definition;
    node.problem = problem_of(element);
    begin(node);
    const std::size_t chunk = tree_.all_columns++;
    if (node.problem.empty()) {
      const auto type = static_cast<ParquetType>(element.type);
      node.type = type_of(type);
      tree_.columns.push_back(
          {here.path, chunk, type, element.is_unsigned, levels.repetition, levels.definition});
    }
    end(node);
    return node;
  }

  void begin(ParquetNode& node) const { node.leaf = tree_.columns.size(); }
  void end(ParquetNode& node) {
    if (!node.problem.empty()) {
      tree_.columns.resize(node.leaf);
      node.children.clear();
    }
    node.leaves = tree_.columns.size() - node.leaf;
  }

  const std::vector<SchemaElement>& elements_;
  std::size_t at_ = 0;
  SchemaTree tree_;
};

constexpr std::size_t kMaxSchemaElements = 10'000;

int small(std::int64_t value) {
  if (value < 0 || value > 1 << 20) throw DataError("its metadata has a number out of range");
  return narrow<int>(value);
}

bool is_integer(int type) {
  return type == ThriftReader::kI16 || type == ThriftReader::kI32 || type == ThriftReader::kI64;
}

/// Reads the only field of a union. For the field INTEGER, also reads whether it is signed.
void read_logical_type(ThriftReader& reader, SchemaElement& element) {
  reader.read_struct([&](int id, int type) {
    element.logical = id;
    if (id != 10 || type != ThriftReader::kStruct) return false;
    reader.read_struct([&](int of_integer, int of_type) {
      if (of_integer == 2) element.is_unsigned = of_type == ThriftReader::kFalse;
      return false;
    });
    return true;
  });
}

SchemaElement read_element(ThriftReader& reader) {
  SchemaElement element;
  bool has_name = false;
  reader.read_struct([&](int id, int type) {
    if (id == 4 && type == ThriftReader::kBinary) {
      element.name = reader.read_text();
      has_name = true;
      return true;
    }
    if (id == 10 && type == ThriftReader::kStruct) {
      read_logical_type(reader, element);
      return true;
    }
    int* const number = id == 1   ? &element.type
                        : id == 3 ? &element.repetition
                        : id == 5 ? &element.children
                        : id == 6 ? &element.converted
                                  : nullptr;
    if (number == nullptr || !is_integer(type)) return false;
    *number = small(reader.read_integer());
    return true;
  });
  if (element.converted >= 11 && element.converted <= 14) element.is_unsigned = true;
  const bool is_group = element.children > 0;
  if (!is_group) element.children = -1;
  constexpr int kTypes = narrow<int>(ParquetType::kFixedLenByteArray) + 1;
  if (!has_name || element.repetition > 2 ||
      (!is_group && (element.type < 0 || element.type >= kTypes)))
    throw DataError("its schema has an element that is neither a column nor a group of columns");
  return element;
}

std::pair<std::string_view, std::string_view> read_property(ThriftReader& reader) {
  std::pair<std::string_view, std::string_view> property;
  reader.read_struct([&](int id, int type) {
    if ((id != 1 && id != 2) || type != ThriftReader::kBinary) return false;
    (id == 1 ? property.first : property.second) = reader.read_text();
    return true;
  });
  return property;
}

}  // namespace

Footer::Footer(std::string_view bytes, std::uint64_t pages_end) : pages_end_(pages_end) {
  ThriftReader reader(bytes);
  std::vector<SchemaElement> elements;
  std::int64_t declared = 0;  // rows
  reader.read_struct([&](int id, int type) {
    if (id == 2 && type == ThriftReader::kList) {
      reader.read_list([&](int) {
        if (elements.size() == kMaxSchemaElements)
          throw DataError(concat("has more than ", kMaxSchemaElements, " columns"));
        elements.push_back(read_element(reader));
      });
      const SchemaTree tree = TreeBuilder(elements).run();
      nodes_ = tree.nodes;
      columns_ = tree.columns;
      all_columns_ = tree.all_columns;
      return true;
    }
    if (id == 3 && is_integer(type)) {
      declared = reader.read_integer();
      return true;
    }
    if (id == 5 && type == ThriftReader::kList) {
      reader.read_list([&](int) { properties_.push_back(read_property(reader)); });
      return true;
    }
    if (id == 8) throw DataError("is encrypted");
    if (id != 4 || type != ThriftReader::kList) return false;
    reader.read_list([&](int) {
      const std::size_t begin = reader.position();
      reader.skip(ThriftReader::kStruct);
      add_group(bytes.substr(begin, reader.position() - begin));
    });
    return true;
  });
  if (nodes_.empty()) throw DataError("has no columns");
  std::int64_t rows = 0;
  for (const Group& group : groups_) check_count(rows += group.rows, "rows");
  if (rows != declared)
    throw DataError(concat("declares ", declared, " rows, but its row groups have ", rows));
}

std::string_view Footer::property(std::string_view key) const {
  for (const auto& [name, value] : properties_)
    if (name == key) return value;
  return {};
}

void Footer::check_count(std::int64_t count, const char* what) const {
  constexpr std::uint64_t kAlwaysAllowed = 1'000'000, kMaxPerByte = 64;
  const std::uint64_t most = kAlwaysAllowed + kMaxPerByte * pages_end_;
  if (count < 0 || static_cast<std::uint64_t>(count) > most)
    throw DataError(concat("is damaged: it declares ", count, " ", what, " in ", pages_end_,
                           " bytes; want at most ", most, ", ", kMaxPerByte, " per byte"));
}

void Footer::add_group(std::string_view bytes) {
  Group group{bytes};
  ThriftReader reader(bytes);
  reader.read_struct([&](int id, int type) {
    if (id == 1 && type == ThriftReader::kList) {
      reader.read_list([&](int of_list) {
        if (of_list != ThriftReader::kStruct || group.chunks.size() == all_columns_)
          throw DataError(concat("has a row group whose columns differ from the ", all_columns_,
                                 " columns of its schema"));
        group.chunks.push_back(narrow<std::uint32_t>(reader.position()));
        reader.skip(of_list);
      });
      return true;
    }
    if (id != 3 || !is_integer(type)) return false;
    group.rows = reader.read_integer();
    return true;
  });
  if (group.rows < 0 || group.chunks.size() != all_columns_)
    throw DataError(concat("has a row group with ", group.rows, " rows and ", group.chunks.size(),
                           " columns, but the schema has ", all_columns_));
  check_count(group.rows, "rows");
  groups_.push_back(std::move(group));
}

ColumnChunk Footer::chunk(std::size_t group, const ParquetColumn& column) const {
  const Group& of_group = groups_.at(group);
  ThriftReader reader(of_group.bytes.substr(of_group.chunks.at(column.chunk)));
  ColumnChunk chunk;
  std::int64_t data = -1, dictionary = -1, bytes = -1;
  int type_in_file = -1;
  const auto read_metadata = [&](int id, int type) {
    if (!is_integer(type)) return false;
    const std::int64_t value = reader.read_integer();
    if (id == 1) type_in_file = small(value);
    if (id == 4) chunk.codec = small(value);
    if (id == 5) chunk.values = value;
    if (id == 7) bytes = value;
    if (id == 9) data = value;
    if (id == 11) dictionary = value;
    return true;
  };
  const auto read_chunk = [&](int id, int type) {
    if (id == 1 && type == ThriftReader::kBinary && !reader.read_text().empty())
      throw DataError("has columns in other files, which is not supported");
    if (id == 1) return type == ThriftReader::kBinary;
    if (id == 8) throw DataError(concat("has the encrypted column ", column.name));
    if (id != 3 || type != ThriftReader::kStruct) return false;
    reader.read_struct(read_metadata);
    return true;
  };
  reader.read_struct(read_chunk);
  if (of_group.rows == 0 && chunk.values == 0) return {chunk.codec};
  check_count(chunk.values, "values of a column");
  const bool begins_with_dictionary = dictionary > 0 && dictionary < data;
  const std::int64_t begin = begins_with_dictionary ? dictionary : data;
  const auto end = static_cast<std::int64_t>(pages_end_);
  if (begin < 4 || bytes < 0 || begin > end || bytes > end - begin ||
      (column.max_repetition == 0 && chunk.values != of_group.rows) ||
      type_in_file != narrow<int>(column.type))
    throw DataError(concat("is damaged: the pages of column ", column.name,
                           " are not where its metadata says"));
  chunk.begin = static_cast<std::uint64_t>(begin);
  chunk.end = static_cast<std::uint64_t>(begin + bytes);
  return chunk;
}

}  // namespace hybrid_trainer
