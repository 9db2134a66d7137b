#include "src/tools/columns_option.h"

namespace hybrid_trainer {

void add_columns_option(po::options_description& options, std::string& columns) {
  options.add_options()(
      "columns", po::value(&columns)->value_name("NAME=COLUMN,..."),
      "Columns of the examples that go by other names: prompt=question,completion=answer; NAME= "
      "leaves NAME out (data.columns).");
}

}  // namespace hybrid_trainer
