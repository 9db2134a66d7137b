#include "src/images/picture_size.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

void check_picture_size(std::int64_t height, std::int64_t width, const std::string& path) {
  if (height < 1 || width < 1)
    throw DataError(concat(path, ": has ", height, " rows of ", width, " pixels; want some"));
  if (width > kMostPixels / height)
    throw DataError(concat(path, ": says that it has ", height, " x ", width,
                           " pixels; want at most ", kMostPixels, " of them"));
}

void check_compressed_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                           const std::string& path) {
  constexpr std::int64_t kAlwaysAllowed = 1 << 24, kPerByte = 1024;
  check_picture_size(height, width, path);
  const std::int64_t most = kAlwaysAllowed + kPerByte * static_cast<std::int64_t>(bytes);
  if (height * width > most)
    throw DataError(concat(path, ": says that its ", bytes, " bytes hold ", height, " x ", width,
                           " pixels; want at most ", most, ", so ", kPerByte, " for each byte"));
}

}  // namespace hybrid_trainer
