#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/gguf/gguf_file.h"

namespace hybrid_trainer {

/// Reads a GGUF file's header from the file's start, and never behind its end. Throws DataError of
/// what does not lie within the file.
class GgufHeaderReader {
 public:
  explicit GgufHeaderReader(const InputFile& file) : file_(file) {}

  std::size_t at() const { return at_; }
  void read(void* to, std::size_t bytes, const char* what);
  template <class T>
  T number(const char* what) {
    T value{};
    read(&value, sizeof(T), what);
    return value;
  }
  /// Of at most so many bytes.
  std::string text(std::size_t most, const char* what);
  /// Of so many elements that take so many bytes each at least.
  std::uint64_t count(std::size_t least, const char* what);
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat(file_.path().string(), ": ", parts...));
  }

 private:
  std::size_t left() const { return file_.bytes() - at_; }
  void fill(std::size_t bytes);
  const InputFile& file_;
  std::size_t at_ = 0, begin_ = 0;
  std::string buffer_;
};

/// Reads the value of a key, which its kind precedes. Throws DataError.
GgufValue read_gguf_value(GgufHeaderReader& reader, const std::string& key);

}  // namespace hybrid_trainer
