#include "src/core/known_library.h"

#include <cstdio>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// A version that this program cannot use, found by its file name; not open if there is none.
SharedLibrary other_version(const KnownLibrary& known, const std::vector<std::string>& folders) {
  WantedLibrary any = wanted(known, folders);
  any.files = {known.stem};
  for (int distance = 1; distance <= 2; ++distance) {
    any.files.push_back(concat(known.stem, ".", known.major + distance));
    any.files.push_back(concat(known.stem, ".", known.major - distance));
  }
  return SharedLibrary::look_for(any);
}

}  // namespace

WantedLibrary wanted(const KnownLibrary& known, const std::vector<std::string>& folders) {
  return {.title = known.title,
          .files = {concat(known.stem, ".", known.major)},
          .folders = folders,
          .way_out = known.way_out};
}

CudaLibrary describe(const KnownLibrary& known, const std::vector<std::string>& folders) {
  SharedLibrary library = SharedLibrary::look_for(wanted(known, folders));
  CudaLibrary described;
  described.name = known.title;
  described.problem = library.problem();
  if (!library.opened()) library = other_version(known, folders);
  if (!library.opened()) return described;
  described.found = true;
  described.path = library.path();
  described.version = known.version(library);
  const auto because = [&](const std::string& what) {
    return concat(known.title, ": ", described.path, what, "; ", known.way_out);
  };
  int major = 0, minor = 0;
  std::sscanf(described.version.c_str(), "%d.%d", &major, &minor);
  const bool fits = major == known.major && minor >= known.minor;
  if (described.version.empty()) {
    described.problem = because(" does not answer when it is asked for its version");
  } else if (known.version_is_its_own && !fits) {
    described.problem =
        because(concat(" is version ", described.version, ", want ", known.major, ".",
                       known.minor == 0 ? "x" : concat(known.minor, " or newer")));
  } else {
    described.problem.clear();
  }
  return described;
}

}  // namespace hybrid_trainer
