#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/cuda_libraries.h"

namespace hybrid_trainer {

/// What is known in advance of a library that is opened on demand.
struct KnownLibrary {
  const char* title;
  const char* stem;  // "libcudnn.so"
  int major;         // of the file's name
  /// The version that the opened library reports; empty if none.
  std::string (*version)(const SharedLibrary&);
  bool version_is_its_own;  // and starts with `major`; else it is the driver's
  const char* way_out;
  int minor = 0;  // the oldest of `major` that will do, where the version is its own
};

WantedLibrary wanted(const KnownLibrary& known, const std::vector<std::string>& folders);

/// What this machine has of it, even of a wrong major version.
CudaLibrary describe(const KnownLibrary& known, const std::vector<std::string>& folders);

}  // namespace hybrid_trainer
