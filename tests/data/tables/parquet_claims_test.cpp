#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/data/tables/row_formats.h"
#include "tests/data/tables/allocations.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string little_endian(std::uint32_t value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

/// A struct in Thrift's compact protocol. Fields must be added in ascending order.
class Struct {
 public:
  Struct& number(int id, std::int64_t value, int type = 5) {
    head(id, type) +=
        varint(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
    return *this;
  }
  Struct& long_number(int id, std::int64_t value) { return number(id, value, 6); }
  Struct& text(int id, const std::string& value) {
    head(id, 8) += varint(value.size()) + value;
    return *this;
  }
  Struct& part(int id, const Struct& value) {
    head(id, 12) += value.bytes();
    return *this;
  }
  Struct& list(int id, const std::vector<Struct>& values) {
    head(id, 9) += '\xFC' + varint(values.size());
    for (const Struct& value : values) bytes_ += value.bytes();
    return *this;
  }
  std::string bytes() const { return bytes_ + '\0'; }

 private:
  std::string& head(int id, int type) {
    bytes_ += static_cast<char>((id - last_) << 4 | type);
    last_ = id;
    return bytes_;
  }
  std::string bytes_;
  int last_ = 0;
};

/// A Parquet table with one text column: a data page and a dictionary page.
struct Table {
  std::int64_t rows = 1, values = 1, page_values = 1, page_bytes = -1;
  int codec = 0, encoding = 0;
  std::string page = little_endian(2) + "ab";
  std::string dictionary{};  // with one text
  std::string group{};       // that contains the column
  int columns = 1;

  std::string bytes() const {
    std::string file = "PAR1";
    const auto add = [&](const Struct& header, const std::string& content) {
      file += header.bytes() + content;
    };
    if (!dictionary.empty()) {
      const std::string page =
          little_endian(static_cast<std::uint32_t>(dictionary.size())) + dictionary;
      add(Struct()
              .number(1, 2)
              .number(2, std::ssize(page))
              .number(3, std::ssize(page))
              .part(7, Struct().number(1, 1).number(2, 0)),
          page);
    }
    const std::int64_t data = std::ssize(file);
    add(Struct()
            .number(1, 0)
            .number(2, page_bytes < 0 ? std::ssize(page) : page_bytes)
            .number(3, std::ssize(page))
            .part(5, Struct().number(1, page_values).number(2, encoding).number(3, 3).number(4, 3)),
        page);
    const std::int64_t end = std::ssize(file);
    std::vector<Struct> schema{Struct().text(4, "schema").number(5, group.empty() ? columns : 1)};
    if (!group.empty()) schema.push_back(Struct().number(3, 0).text(4, group).number(5, columns));
    Struct metadata;
    metadata.number(1, 6).number(4, codec).long_number(5, values).long_number(7, end - 4);
    metadata.long_number(9, data);
    if (!dictionary.empty()) metadata.long_number(11, 4);
    std::vector<Struct> chunks;
    for (int i = 0; i < columns; ++i) {
      schema.push_back(
          Struct().number(1, 6).number(3, 0).text(4, i == 0 ? "text" : concat("c", i)));
      chunks.push_back(Struct().part(3, metadata));
    }
    const std::string footer = Struct()
                                   .number(1, 2)
                                   .list(2, schema)
                                   .long_number(3, rows)
                                   .list(4, {Struct().list(1, chunks).long_number(3, rows)})
                                   .bytes();
    return file + footer + little_endian(static_cast<std::uint32_t>(footer.size())) + "PAR1";
  }
};

/// A run of `count` indices of 0 bits, all of which refer to the dictionary's only text.
std::string run_of(std::int64_t count) {
  return '\0' + varint(static_cast<std::uint64_t>(count) << 1);
}

class ParquetDeclaredSizes : public ::testing::Test {
 protected:
  std::int64_t rows_of(const Table& table) const {
    std::int64_t rows = 0;
    const ParquetFile file(folder_.write("t.parquet", table.bytes()));
    read_parquet_rows(file, {"text"}, [&](std::int64_t, const boost::json::object&) { ++rows; });
    return rows;
  }
  const TemporaryFolder folder_;
};

TEST_F(ParquetDeclaredSizes, AcceptsConsistentSizes) {
  EXPECT_EQ(rows_of({}), 1);
  EXPECT_EQ(rows_of({.rows = 100'000,
                     .values = 100'000,
                     .page_values = 100'000,
                     .encoding = 8,
                     .page = run_of(100'000),
                     .dictionary = "said in each row"}),
            100'000);
  EXPECT_THROW(rows_of({.group = std::string(2000, 'g')}), DataError)
      << "the column text is missing";
}

/// The file's size bounds memory and time, whatever sizes the file declares.
TEST_F(ParquetDeclaredSizes, RejectsInflatedSizesWithBoundedMemory) {
  const auto many = [](std::int64_t rows, const std::string& text) {
    return Table{.rows = rows,
                 .values = rows,
                 .page_values = rows,
                 .encoding = 8,
                 .page = run_of(rows),
                 .dictionary = text};
  };
  // A delta-encoded page of 0-bit numbers in blocks of 2^20: two billion in 6 kB.
  Table deltas{
      .page_values = 2'000'000'000,
      .encoding = 6,
      .page = varint(1 << 20) + varint(1) + varint(2'000'000'000) + std::string(6000, '\0')};
  Table all_deltas = deltas;
  all_deltas.values = all_deltas.rows = all_deltas.page_values;
  const std::string noise = "\x28\xB5\x2F\xFD" + std::string(40, '\xFF');
  const std::vector<std::pair<Table, std::vector<std::string>>> cases{
      {{.page_bytes = INT32_MAX, .codec = 6, .page = noise},
       {"2147483647 bytes in 44 compressed bytes"}},
      {{.page_bytes = 3LL << 30, .codec = 6, .page = noise}, {"header is 3221225472"}},
      {{.page_bytes = 16 << 20, .codec = 6, .page = noise}, {"zstd"}},
      {{.page_bytes = INT32_MAX, .codec = 2, .page = noise}, {"in 44 compressed bytes"}},
      {{.page_bytes = INT32_MAX, .codec = 1, .page = noise}, {"in 44 compressed bytes"}},
      {many(20'000'000, std::string(100, 'a')), {"declares 20000000 rows", "64 per byte"}},
      {many(900'000, std::string(10'000, 'a')), {"more than 64 MiB plus 256 times"}},
      {deltas, {"page of 2000000000 values, but only 1 are left"}},
      {all_deltas, {"declares 2000000000 rows"}},
      {{.values = 1'000'000'000'000}, {"declares 1000000000000 values"}},
      {{.values = -1}, {"declares -1 values"}},
      {{.group = std::string(400'000, 'g'), .columns = 9'000}, {"has 400000 bytes", "4096"}}};
  for (const auto& [table, words] : cases) {
    forget_allocations();
    const std::string message = message_of<DataError>([&] { rows_of(table); });
    EXPECT_LE(largest_allocation(), (32u << 20)) << message;
    for (const std::string& word : words) EXPECT_NE(message.find(word), message.npos) << message;
  }
}

}  // namespace
}  // namespace hybrid_trainer
