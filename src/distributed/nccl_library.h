#pragma once

#include <string>

#include "hybrid_trainer/core/shared_library.h"
#include "src/distributed/nccl_api.h"

namespace hybrid_trainer {

/// NCCL, opened. Move-only.
class NcclLibrary {
 public:
  /// Throws DeviceError where there is none, or one that is too old.
  static NcclLibrary open(const WantedLibrary& wanted);
  const nccl::Functions& functions() const { return functions_; }
  int version() const { return version_; }  // 22809 is 2.28.9

 private:
  SharedLibrary library_;
  nccl::Functions functions_;
  int version_ = 0;
};

/// "2.28.9" of 22809.
std::string nccl_version_text(int version);

}  // namespace hybrid_trainer
