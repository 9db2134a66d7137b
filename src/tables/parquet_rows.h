#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/parquet/parquet_file.h"

namespace hybrid_trainer {

/// "has the columns a, b, and none of text, …; …".
std::string no_wanted_column(const std::vector<std::string>& columns,
                             const std::vector<std::string>& wanted, const std::string& renaming);

/// Calls f(number, row) for each row of a table, from 1 on; of its columns those that are wanted, or
/// all if `wanted` is empty. `renaming`: see TableReading. A struct becomes an object, a map whose keys are texts too; what
/// cannot be read inside a column is left out. Throws DataError, which names the file: where a wanted
/// column cannot be read or none is there, a text is not UTF-8 unless takes_bytes, or the file is damaged.
void read_parquet_rows(const ParquetFile& file, const std::vector<std::string>& wanted,
                       const std::function<void(std::int64_t, boost::json::object&)>& f,
                       const std::string& renaming = {}, bool takes_bytes = false);

}  // namespace hybrid_trainer
