#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hybrid_trainer {

/// Pixels of the largest picture that is read: what PIL takes for an attack beyond.
inline constexpr std::int64_t kMostPixels = 178'956'970;

/// Throws DataError where a picture has no pixels or more than that.
void check_picture_size(std::int64_t height, std::int64_t width, const std::string& path);
/// Throws DataError, too, if a compressed file of so many bytes claims far more pixels than pictures of
/// anything have.
void check_compressed_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                           const std::string& path);

}  // namespace hybrid_trainer
