#include "src/parquet/footer.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "src/parquet/schema_tree.h"
#include "src/parquet/thrift_reader.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMostSchemaElements = 10'000;

int small(std::int64_t value) {
  if (value < 0 || value > 1 << 20) throw DataError("its metadata have a number out of range");
  return narrow<int>(value);
}

bool is_integer(int type) {
  return type == ThriftReader::kI16 || type == ThriftReader::kI32 || type == ThriftReader::kI64;
}

/// The one field of a union, of which INTEGER says whether it has a sign.
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
    throw DataError("its schema has an element that is neither a column nor a group of them");
  return element;
}

}  // namespace

Footer::Footer(std::string_view bytes, std::uint64_t pages_end) : pages_end_(pages_end) {
  ThriftReader reader(bytes);
  std::vector<SchemaElement> elements;
  reader.read_struct([&](int id, int type) {
    if (id == 2 && type == ThriftReader::kList) {
      reader.read_list([&](int) {
        if (elements.size() == kMostSchemaElements)
          throw DataError(concat("has more than ", kMostSchemaElements, " columns"));
        elements.push_back(read_element(reader));
      });
      const SchemaTree tree = schema_tree(elements);
      nodes_ = tree.nodes;
      columns_ = tree.columns;
      all_columns_ = tree.all_columns;
      return true;
    }
    if (id == 3 && is_integer(type)) {
      rows_ = reader.read_integer();
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
  if (rows != rows_)
    throw DataError(concat("says that it has ", rows_, " rows, and its row groups have ", rows));
}

void Footer::check_count(std::int64_t count, const char* what) const {
  constexpr std::uint64_t kAlwaysAllowed = 1'000'000, kMostPerByte = 64;
  const std::uint64_t most = kAlwaysAllowed + kMostPerByte * pages_end_;
  if (count < 0 || static_cast<std::uint64_t>(count) > most)
    throw DataError(concat("is damaged: it says that its ", pages_end_, " bytes hold ", count, " ",
                           what, "; want at most ", most, ", so ", kMostPerByte, " for each byte"));
}

void Footer::add_group(std::string_view bytes) {
  Group group{bytes};
  ThriftReader reader(bytes);
  reader.read_struct([&](int id, int type) {
    if (id == 1 && type == ThriftReader::kList) {
      reader.read_list([&](int of_list) {
        if (of_list != ThriftReader::kStruct || group.chunks.size() == all_columns_)
          throw DataError(concat("has a row group with other columns than its schema, which has ",
                                 all_columns_));
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
                           " columns, and the schema ", all_columns_));
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
      throw DataError("has columns in other files, which are not read");
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
      (column.most_repetition == 0 && chunk.values != of_group.rows) ||
      type_in_file != narrow<int>(column.type))
    throw DataError(
        concat("is damaged: the pages of column ", column.name, " are not where its metadata say"));
  chunk.begin = static_cast<std::uint64_t>(begin);
  chunk.end = static_cast<std::uint64_t>(begin + bytes);
  return chunk;
}

}  // namespace hybrid_trainer
