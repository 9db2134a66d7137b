#include "src/core/libraries.h"

#include <dlfcn.h>
#include <link.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

std::string loader_message() {
  const char* const said = dlerror();
  std::string message = said == nullptr ? "no message from the loader" : said;
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

std::string path_of(void* handle, const std::string& asked) {
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
  return known ? map->l_name : asked;
}

/// Finds an installed library of an unsupported version by its file name.
SharedLibrary other_version(const KnownLibrary& known, const std::vector<std::string>& folders) {
  WantedLibrary any = wanted(known, folders);
  any.files = {known.stem};
  for (int distance = 1; distance <= 2; ++distance) {
    any.files.push_back(concat(known.stem, ".", known.major + distance));
    any.files.push_back(concat(known.stem, ".", known.major - distance));
  }
  return SharedLibrary::try_open(any);
}

/// Returns the subfolders of `folder`, sorted; empty if it cannot be read.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    std::error_code unknown;
    if (at->is_directory(unknown)) found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Adds the folders `prefix`/lib/python3.*/{site,dist}-packages/nvidia/*/lib of NVIDIA's wheels.
void add_wheels(std::vector<std::string>& folders, const fs::path& prefix) {
  for (const fs::path& version : folders_in(prefix / "lib")) {
    if (!version.filename().native().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const fs::path& package : folders_in(version / packages / "nvidia")) {
        std::error_code unknown;
        if (fs::is_directory(package / "lib", unknown)) folders.push_back(package / "lib");
      }
    }
  }
}

/// Adds the prefixes of python3 programs on PATH that are not in the list.
void add_python_prefixes(std::vector<fs::path>& prefixes) {
  const char* const path = std::getenv("PATH");
  std::istringstream entries(path == nullptr ? "" : path);
  for (std::string entry; std::getline(entries, entry, ':');) {
    const fs::path prefix = fs::path(entry).parent_path();
    std::error_code unknown;
    const bool has_python = fs::exists(fs::path(entry) / "python3", unknown);
    const bool is_new = std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end();
    if (has_python && is_new) prefixes.push_back(prefix);
  }
}

std::string dotted(std::size_t version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// The following functions return the version that a library reports, or "" if it reports none.

std::string cublaslt_version(const SharedLibrary& library) {
  const auto ask = library.find<std::size_t()>("cublasLtGetVersion");
  return ask == nullptr ? "" : dotted(ask());
}

std::string cudnn_version(const SharedLibrary& library) {
  const auto ask = library.find<std::size_t()>("cudnnGetVersion");
  if (ask == nullptr) return "";
  const std::size_t version = ask();  // 91900 is 9.19.0, but 8907 was 8.9.7
  if (version >= 10000) return dotted(version);
  return concat(version / 1000, ".", version / 100 % 10, ".", version % 100);
}

std::string nccl_version(const SharedLibrary& library) {
  const auto ask = library.find<int(int*)>("ncclGetVersion");
  int version = 0;
  if (ask == nullptr || ask(&version) != 0) return "";
  return dotted(static_cast<std::size_t>(version));
}

std::string nvml_version(const SharedLibrary& library) {
  const auto begin = library.find<int()>("nvmlInit_v2");
  const auto ask = library.find<int(char*, unsigned int)>("nvmlSystemGetDriverVersion");
  const auto end = library.find<int()>("nvmlShutdown");
  if (begin == nullptr || ask == nullptr || end == nullptr || begin() != 0) return "";
  std::array<char, 96> text{};
  const int answer = ask(text.data(), text.size() - 1);
  end();
  return answer == 0 ? text.data() : "";
}

constexpr const char* kInstallToolkit =
    "install the CUDA toolkit 13 (or the Python package nvidia-cublas), or set CUDA_HOME to its "
    "folder";

constexpr KnownLibrary kLibraries[] = {
    {"cuBLASLt", "libcublasLt.so", 13, cublaslt_version, true, kInstallToolkit},
    {"cuDNN", "libcudnn.so", 9, cudnn_version, true,
     "install cuDNN 9 for CUDA 13 (for example the Python package nvidia-cudnn-cu13)"},
    {"NCCL", "libnccl.so", 2, nccl_version, true,
     "install NCCL 2 for CUDA 13 (for example the Python package nvidia-nccl-cu13)",
     kMinNcclVersion / 100 % 100},
    {"NVML", "libnvidia-ml.so", 1, nvml_version, false, "install NVIDIA's driver, 580 or newer"},
};

}  // namespace

void SharedLibrary::Close::operator()(void* handle) const noexcept { dlclose(handle); }

SharedLibrary SharedLibrary::try_open(const WantedLibrary& wanted) {
  SharedLibrary library;
  library.title_ = wanted.title;
  library.hint_ = wanted.hint;
  std::vector<std::string> failures;
  const auto opens = [&](const std::string& file) {
    library.handle_.reset(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
    if (library.opened()) library.path_ = path_of(library.handle_.get(), file);
    return library.opened();
  };
  for (const std::string& file : wanted.files) {
    if (opens(file)) return library;
    failures.push_back(concat("the loader's search path (", loader_message(), ")"));
    for (const std::string& folder : wanted.folders) {
      const fs::path path = fs::path(folder) / file;
      std::error_code unreadable;
      if (!fs::exists(path, unreadable)) {
        const std::string place = "in " + folder;
        if (std::find(failures.begin(), failures.end(), place) == failures.end())
          failures.push_back(place);
        continue;
      }
      if (opens(path)) return library;
      failures.push_back(concat("as ", path.native(), " (", loader_message(), ")"));
    }
  }
  library.problem_ = concat(wanted.title, ": cannot open ", join(wanted.files, " or "), "; tried ",
                            join(failures), "; ", wanted.hint);
  return library;
}

SharedLibrary SharedLibrary::open(const WantedLibrary& wanted) {
  SharedLibrary library = try_open(wanted);
  if (!library.opened()) throw DeviceError(library.problem());
  return library;
}

void* SharedLibrary::address_of(const char* name) const noexcept {
  return opened() ? dlsym(handle_.get(), name) : nullptr;
}

void SharedLibrary::throw_missing(const char* name) const {
  if (!opened()) throw DeviceError(problem_);
  throw DeviceError(
      concat(title_, ": ", path_, " has no ", name, ", so it is another version; ", hint_));
}

WantedLibrary wanted(const KnownLibrary& known, const std::vector<std::string>& folders) {
  return {.title = known.title,
          .files = {concat(known.stem, ".", known.major)},
          .folders = folders,
          .hint = known.hint};
}

CudaLibrary describe(const KnownLibrary& known, const std::vector<std::string>& folders) {
  SharedLibrary library = SharedLibrary::try_open(wanted(known, folders));
  CudaLibrary described;
  described.name = known.title;
  described.problem = library.problem();
  if (!library.opened()) library = other_version(known, folders);
  if (!library.opened()) return described;
  described.found = true;
  described.path = library.path();
  described.version = known.version(library);
  const auto because = [&](const std::string& what) {
    return concat(known.title, ": ", described.path, what, "; ", known.hint);
  };
  int major = 0, minor = 0;
  std::sscanf(described.version.c_str(), "%d.%d", &major, &minor);
  const bool fits = major == known.major && minor >= known.minor;
  if (described.version.empty()) {
    described.problem = because(" does not report its version");
  } else if (known.has_own_version && !fits) {
    described.problem =
        because(concat(" is version ", described.version, ", want ", known.major, ".",
                       known.minor == 0 ? "x" : concat(known.minor, " or newer")));
  } else {
    described.problem.clear();
  }
  return described;
}

std::vector<std::string> cuda_library_folders() {
  std::vector<std::string> folders;
  std::vector<fs::path> prefixes;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const home = std::getenv(variable);
    if (home != nullptr && *home != '\0') folders.push_back(fs::path(home) / "lib64");
  }
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONUSERBASE"}) {
    const char* const prefix = std::getenv(variable);
    if (prefix != nullptr && *prefix != '\0') prefixes.push_back(prefix);
  }
  if (const char* const home = std::getenv("HOME")) prefixes.push_back(fs::path(home) / ".local");
  add_python_prefixes(prefixes);
  for (const fs::path& prefix : prefixes) add_wheels(folders, prefix);
  return folders;
}

WantedLibrary cublaslt_library() { return wanted(kLibraries[0], cuda_library_folders()); }

WantedLibrary nccl_library() { return wanted(kLibraries[2], cuda_library_folders()); }

std::vector<CudaLibrary> find_cuda_libraries() {
  const std::vector<std::string> folders = cuda_library_folders();
  std::vector<CudaLibrary> all;
  for (const KnownLibrary& known : kLibraries) all.push_back(describe(known, folders));
  return all;
}

}  // namespace hybrid_trainer
