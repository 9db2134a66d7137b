#pragma once

#include <cstdint>
#include <string>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// An unnamed file, which disappears with the process in any case. Errors name the folder and
/// `key`, the config's key that chose it.
class ScratchFile {
 public:
  /// Throws CannotCreate where no file can be made in `folder`.
  ScratchFile(std::string folder, const char* key);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  /// Blocks until what is in the tensor in stream order lies in the file. Throws IoError.
  void wait_for_write(const Tensor& from, std::int64_t at, const Stream& stream);
  /// Blocks until the tensor holds what lies there. Throws IoError.
  void wait_for_read(const Tensor& to, std::int64_t at, const Stream& stream) const;
  /// Frees the space.
  void clear();

 private:
  std::string folder_;
  const char* key_;
  int file_ = -1;
};

}  // namespace hybrid_trainer
