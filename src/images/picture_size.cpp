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

}  // namespace hybrid_trainer
