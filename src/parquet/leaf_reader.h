#pragma once

#include <memory>
#include <string>

#include "hybrid_trainer/files/input_file.h"
#include "src/parquet/footer.h"
#include "src/parquet/run_reader.h"
#include "src/parquet/value_reader.h"

namespace hybrid_trainer {

/// Reads a column of a row group page by page.
class LeafReader final : public ParquetLeaf {
 public:
  /// `file` and `column` must outlive this.
  LeafReader(const InputFile& file, const ParquetColumn& column, const ColumnChunk& chunk);

  bool at_end() override { return left_ == 0; }
  int repetition() override;
  int definition() override;
  bool take(ParquetValue& value) override;

 private:
  struct Page;
  /// Reads the levels of the next place, unless they are read.
  void load();
  void read_page();
  Page read_header();
  void read_body(const Page& page);
  void begin_values(const Page& page, std::string_view values);
  void take_dictionary(const Page& page);
  RunReader level_reader(std::string_view& bytes, int most) const;

  const InputFile& file_;
  const ParquetColumn& column_;
  ColumnChunk chunk_;  // begins behind what is read
  std::int64_t left_, left_in_page_ = 0;
  std::string compressed_, page_;
  std::unique_ptr<ValueDictionary> dictionary_;
  std::unique_ptr<ValueReader> values_;
  RunReader repetitions_, definitions_;
  bool has_place_ = false;
  int repetition_ = 0, definition_ = 0;
};

}  // namespace hybrid_trainer
