#include "hybrid_trainer/core/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// The loader's message, reduced to part of one line.
std::string loader_message() {
  const char* const said = dlerror();
  std::string message = said == nullptr ? "the loader said nothing" : said;
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

/// The file that a handle was loaded from.
std::string path_of(void* handle, const std::string& asked) {
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
  return known ? map->l_name : asked;
}

}  // namespace

void SharedLibrary::Close::operator()(void* handle) const noexcept { dlclose(handle); }

SharedLibrary SharedLibrary::look_for(const WantedLibrary& wanted) {
  SharedLibrary library;
  library.title_ = wanted.title;
  library.way_out_ = wanted.way_out;
  std::vector<std::string> failures;
  const auto opens = [&](const std::string& file) {
    library.handle_.reset(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
    if (library.opened()) library.path_ = path_of(library.handle_.get(), file);
    return library.opened();
  };
  for (const std::string& file : wanted.files) {
    if (opens(file)) return library;
    failures.push_back(concat("by the loader's search (", loader_message(), ")"));
    for (const std::string& folder : wanted.folders) {
      const fs::path path = fs::path(folder) / file;
      std::error_code unreadable;
      if (!fs::exists(path, unreadable)) {
        const std::string place = "in " + folder;
        if (std::find(failures.begin(), failures.end(), place) == failures.end()) {
          failures.push_back(place);
        }
        continue;
      }
      if (opens(path)) return library;
      failures.push_back(concat("as ", path.native(), " (", loader_message(), ")"));
    }
  }
  library.problem_ = concat(wanted.title, ": no ", join(wanted.files, " or "), " opens: tried ",
                            join(failures), "; ", wanted.way_out);
  return library;
}

SharedLibrary SharedLibrary::open(const WantedLibrary& wanted) {
  SharedLibrary library = look_for(wanted);
  if (!library.opened()) throw DeviceError(library.problem());
  return library;
}

void* SharedLibrary::address_of(const char* name) const noexcept {
  return opened() ? dlsym(handle_.get(), name) : nullptr;
}

void SharedLibrary::throw_lacks(const char* name) const {
  if (!opened()) throw DeviceError(problem_);
  throw DeviceError(
      concat(title_, ": ", path_, " has no ", name, ", it is of another version; ", way_out_));
}

}  // namespace hybrid_trainer
