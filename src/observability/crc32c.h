#pragma once

#include <cstdint>
#include <string_view>

namespace hybrid_trainer {

/// CRC-32C (Castagnoli) of the bytes, as iSCSI, ext4 and TensorBoard's files have it.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace hybrid_trainer
