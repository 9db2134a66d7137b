#pragma once

#include <cstddef>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hybrid_trainer {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << parts);
  return out.str();
}

std::string join(const std::vector<std::string>& parts, const char* separator = ", ");

/// Formats a measurement with five significant digits.
std::string brief(double value);

/// Process exit codes, as in sysexits.h except for kMemory, kDiverged and kInterrupted.
enum class ExitCode : int {
  kSuccess = 0,
  kUsage = 64,         // the command line is wrong
  kData = 65,          // a file has invalid content: shard, tokenizer, checkpoint, safetensors
  kNoInput = 66,       // an input does not exist or cannot be read
  kDevice = 69,        // the GPU, its driver or a library is missing, too old or failed
  kInternal = 70,      // a bug in this program
  kMemory = 71,        // out of memory, or over the memory budget
  kCannotCreate = 73,  // an output exists already or cannot be created
  kIo = 74,            // reading or writing failed: disk full, for example
  kInUse = 75,         // another process is using the run
  kDiverged = 76,      // the loss or the gradient is not finite and no rollback helps
  kConfig = 78,        // the configuration is wrong
  kInterrupted = 130,  // stopped by Ctrl-C or SIGTERM after saving
};

/// Base class of all errors. Messages state the value found, the value expected and the fix.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

/// A file has invalid content.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::kData, message) {}
};

class MissingInput : public Error {
 public:
  explicit MissingInput(const std::string& message) : Error(ExitCode::kNoInput, message) {}
};

class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : IoError(ExitCode::kIo, message) {}

 protected:
  IoError(ExitCode code, const std::string& message) : Error(code, message) {}
};

/// An output already exists or cannot be created.
class CannotCreate : public IoError {
 public:
  explicit CannotCreate(const std::string& message) : IoError(ExitCode::kCannotCreate, message) {}
};

class InUse : public Error {
 public:
  explicit InUse(const std::string& message) : Error(ExitCode::kInUse, message) {}
};

/// A GPU, its driver or a library is missing, unsuitable or failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(ExitCode::kDevice, message) {}
};

/// Training cannot continue: the loss or the gradient is not finite.
class Diverged : public Error {
 public:
  explicit Diverged(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

/// A configuration has invalid fields. The message lists all problems, one per line.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> problems);
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<std::string> problems_;
};

struct MemoryShortage;

class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, std::size_t requested_bytes, std::size_t available_bytes,
              std::shared_ptr<const MemoryShortage> shortage = {})
      : Error(ExitCode::kMemory, message),
        requested_bytes_(requested_bytes),
        available_bytes_(available_bytes),
        shortage_(std::move(shortage)) {}
  std::size_t requested_bytes() const { return requested_bytes_; }
  std::size_t available_bytes() const { return available_bytes_; }
  /// Returns the pool's contents at the failed allocation, or null if they are unknown.
  const std::shared_ptr<const MemoryShortage>& shortage() const { return shortage_; }

 private:
  std::size_t requested_bytes_;
  std::size_t available_bytes_;
  std::shared_ptr<const MemoryShortage> shortage_;
};

class ShapeMismatch : public Error {
 public:
  explicit ShapeMismatch(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

/// Checks a precondition. Throws Error(kInternal) with the message if it is violated.
inline void require(bool holds, const char* message) {
  if (!holds) throw Error(ExitCode::kInternal, message);
}

}  // namespace hybrid_trainer
