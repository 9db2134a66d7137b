#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/cuda_libraries.h"

namespace hybrid_trainer {

/// What is known beforehand of a library that is opened when it is needed.
struct KnownLibrary {
  const char* title;
  const char* stem;  // "libcudnn.so"
  int major;         // of the file's name
  /// What the opened library says; empty where it says nothing.
  std::string (*version)(const SharedLibrary&);
  bool version_is_its_own;  // and begins with the major one; else it is that of the driver
  const char* way_out;
};

WantedLibrary wanted(const KnownLibrary& known, const std::vector<std::string>& folders);

/// What this machine has of it, a wrong major version too.
CudaLibrary describe(const KnownLibrary& known, const std::vector<std::string>& folders);

}  // namespace hybrid_trainer
