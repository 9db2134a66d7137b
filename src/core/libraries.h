#pragma once

#include <memory>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// A library that is opened on demand, so that the program starts without it.
struct WantedLibrary {
  std::string title;                 // "cuBLASLt", for messages
  std::vector<std::string> files;    // "libcublasLt.so.13", in order of preference
  std::vector<std::string> folders;  // where to look after the loader's own search
  std::string way_out;               // "install ... or set ...", ends messages
};

/// Owner of an opened library, or of the reason why none could be opened. Move-only. What comes
/// from it must not be used after it is destroyed.
class SharedLibrary {
 public:
  SharedLibrary() = default;
  /// The first file that opens, each tried by the loader's search, then in each folder. Does not
  /// throw if there is none: see opened() and problem().
  static SharedLibrary look_for(const WantedLibrary& wanted);
  /// Like look_for, but throws DeviceError with the problem if there is none.
  static SharedLibrary open(const WantedLibrary& wanted);

  bool opened() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }  // of the file that was opened
  /// One line: what was looked for and where, why each attempt failed and how to fix it; empty if
  /// the library is open.
  const std::string& problem() const { return problem_; }

  /// The function of that name; nullptr where the library has none.
  template <class Function>
  Function* find(const char* name) const noexcept {
    return reinterpret_cast<Function*>(address_of(name));
  }
  /// Like find, but throws DeviceError if the library lacks it: it is too old.
  template <class Function>
  Function* function(const char* name) const {
    Function* const found = find<Function>(name);
    if (found == nullptr) throw_lacks(name);
    return found;
  }

 private:
  struct Close {
    void operator()(void* handle) const noexcept;
  };
  void* address_of(const char* name) const noexcept;
  [[noreturn]] void throw_lacks(const char* name) const;

  std::unique_ptr<void, Close> handle_;
  std::string title_;
  std::string path_;
  std::string problem_;
  std::string way_out_;
};

/// One of NVIDIA's libraries that are loaded on demand.
struct CudaLibrary {
  std::string name;  // "cuBLASLt"
  bool found = false;
  std::string version;  // "13.1.0"; for NVML the driver's; empty if not found
  std::string path;     // of the file; empty if not found
  std::string problem;  // why it cannot be used and how to fix that; empty if it can
};

/// cuBLASLt, cuDNN, NCCL and NVML as installed on this machine. Opens each briefly; needs no
/// device. Never throws.
std::vector<CudaLibrary> look_for_cuda_libraries();

/// The library for matrix products.
WantedLibrary cublaslt_library();
/// The library for sending between devices, and its oldest version that is used: 22700 is 2.27.0,
/// the first for CUDA 13.
WantedLibrary nccl_library();
inline constexpr int kOldestNccl = 22700;

/// Folders that may hold NVIDIA's libraries outside the loader's search path: those of CUDA_HOME,
/// /usr/local/cuda and the Python packages nvidia-*.
std::vector<std::string> cuda_library_folders();

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
