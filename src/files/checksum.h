#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Incremental 128-bit XXH3. Detects accidental damage, not forgery.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();
  void add(const void* data, std::size_t bytes);
  /// Returns the checksum of all bytes so far, 32 hexadecimal digits, most significant first.
  std::string text() const;

 private:
  struct Hash;
  std::unique_ptr<Hash> hash_;
};

std::string checksum_of(std::string_view bytes);
/// Returns the checksum of a file, read in parts. Throws MissingInput, IoError.
std::string checksum_of_file(const std::filesystem::path& path);

struct FileDigest {
  std::size_t bytes = 0;
  std::string checksum;
  bool operator==(const FileDigest&) const = default;
};

}  // namespace hybrid_trainer
