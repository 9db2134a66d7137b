#pragma once

#include <memory>
#include <string>
#include <vector>

namespace hybrid_trainer {

struct WantedLibrary {
  std::string title;                 // "cuBLASLt", for messages
  std::vector<std::string> files;    // "libcublasLt.so.13", in order of preference
  std::vector<std::string> folders;  // folders that are searched after the loader's search path
  std::string hint;                  // last part of messages: "install ... or set ..."
};

/// A loaded library, or the reason why loading failed. The destructor unloads the library.
/// Move-only.
class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// Loads the first file that opens, on the loader's search path or in a folder. Does not throw.
  static SharedLibrary try_open(const WantedLibrary& wanted);
  /// Loads a library like try_open, but throws DeviceError with the problem if no file opens.
  static SharedLibrary open(const WantedLibrary& wanted);

  bool opened() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }  // path of the loaded file
  /// Returns one line with the names and folders tried, their errors and the remedy; empty if open.
  const std::string& problem() const { return problem_; }

  template <class Function>
  Function* find(const char* name) const noexcept {
    return reinterpret_cast<Function*>(address_of(name));
  }
  /// Returns the function of that name. Throws DeviceError if the library is too old to have it.
  template <class Function>
  Function* function(const char* name) const {
    Function* const found = find<Function>(name);
    if (found == nullptr) throw_missing(name);
    return found;
  }

 private:
  struct Close {
    void operator()(void* handle) const noexcept;
  };
  void* address_of(const char* name) const noexcept;
  [[noreturn]] void throw_missing(const char* name) const;

  std::unique_ptr<void, Close> handle_;
  std::string title_;
  std::string path_;
  std::string problem_;
  std::string hint_;
};

struct CudaLibrary {
  std::string name;  // "cuBLASLt"
  bool found = false;
  std::string version;  // "13.1.0"; for NVML the driver version; empty if not found
  std::string path;     // path of the file; empty if not found
  std::string problem;  // reason and remedy if it cannot be used, else empty
};

/// Describes the installed cuBLASLt, cuDNN, NCCL and NVML. Needs no device and does not throw.
std::vector<CudaLibrary> find_cuda_libraries();

WantedLibrary cublaslt_library();
/// Describes NCCL. The oldest supported version is 22700 (2.27.0), the first for CUDA 13.
WantedLibrary nccl_library();
inline constexpr int kMinNcclVersion = 22700;

/// Returns the folders of NVIDIA libraries in CUDA_HOME, /usr/local/cuda and Python's nvidia-*.
std::vector<std::string> cuda_library_folders();

struct KnownLibrary {
  const char* title;
  const char* stem;  // "libcudnn.so"
  int major;         // major version in the file name
  /// Returns the version reported by the library; empty if none.
  std::string (*version)(const SharedLibrary&);
  /// True if the version starts with `major`, false if it is the driver's version.
  bool has_own_version;
  const char* hint;
  int minor = 0;  // oldest supported minor version, if has_own_version
};

WantedLibrary wanted(const KnownLibrary& known, const std::vector<std::string>& folders);

/// Describes the installed library, even if its major version is wrong.
CudaLibrary describe(const KnownLibrary& known, const std::vector<std::string>& folders);

}  // namespace hybrid_trainer
