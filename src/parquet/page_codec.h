#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Decompresses a page to exactly `size` bytes, which the file claims: `out` grows with what is
/// decompressed. `codec` is the file's number. Throws DataError, which names a codec that is not read,
/// and if the claim is out of proportion to the page.
void decompress_page(int codec, std::string_view in, std::size_t size, std::string& out);

/// Throws DataError unless decompress_page reads the codec.
void check_codec(int codec);

/// CRC-32 as page headers have it.
unsigned page_checksum(std::string_view page);

}  // namespace hybrid_trainer
