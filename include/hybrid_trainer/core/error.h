#pragma once

#include <cstddef>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hybrid_trainer {

/// All arguments concatenated, as operator<< writes them.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << parts);
  return out.str();
}

/// The parts with the separator between them.
std::string join(const std::vector<std::string>& parts, const char* separator = ", ");

/// A measured number for messages: five significant digits.
std::string brief(double value);

/// The process's exit code when an error ends it. The numbers are those of sysexits.h, but for
/// memory, diverged and interrupted, meanings that it does not have.
enum class ExitCode : int {
  kSuccess = 0,
  kUsage = 64,         // the command line is wrong
  kData = 65,          // a file's content is wrong: shard, tokenizer, checkpoint, safetensors
  kNoInput = 66,       // an input does not exist or cannot be read
  kDevice = 69,        // the GPU, its driver or one of its libraries is missing, too old or failed
  kInternal = 70,      // a bug in this program
  kMemory = 71,        // out of memory, or over the memory budget
  kCannotCreate = 73,  // an output exists already or cannot be created
  kIo = 74,            // reading or writing failed: disk full, for example
  kInUse = 75,         // another process is using the run
  kDiverged = 76,      // the loss or the gradient is not finite and no rollback helps
  kConfig = 78,        // the configuration is wrong
  kInterrupted = 130,  // stopped by Ctrl-C or SIGTERM after saving
};

/// Base of all errors that this project throws. The message says what was found, what was expected
/// and how to fix it.
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

/// A file holds something other than it should.
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

/// An output exists already, or its place does not let it be made.
class CannotCreate : public IoError {
 public:
  explicit CannotCreate(const std::string& message) : IoError(ExitCode::kCannotCreate, message) {}
};

class InUse : public Error {
 public:
  explicit InUse(const std::string& message) : Error(ExitCode::kInUse, message) {}
};

/// A GPU, its driver or one of its libraries is missing, unsuitable or failed. The message names
/// the call, its result and what was asked for.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(ExitCode::kDevice, message) {}
};

/// Training cannot go on: loss or gradients are not finite.
class Diverged : public Error {
 public:
  explicit Diverged(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

/// Every wrong field of a configuration at once, one problem per line.
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
  /// The blocks that held the memory (core/memory_pool.h); null where no pool was asked.
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

/// Checks a precondition: where the caller broke it, throws Error(kInternal) with the message.
inline void require(bool holds, const char* message) {
  if (!holds) throw Error(ExitCode::kInternal, message);
}

}  // namespace hybrid_trainer
