#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Decompresses raw snappy (format_description.txt of google/snappy) to exactly `size` bytes. `out`
/// grows with what is decompressed. Throws DataError.
void decompress_snappy(std::string_view in, std::size_t size, std::string& out);

}  // namespace hybrid_trainer
