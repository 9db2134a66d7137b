#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

#include "hybrid_trainer/files/file_descriptor.h"

namespace hybrid_trainer {

/// A file being written; every failure is an IoError that names it, or `called`, whose content it
/// becomes; CannotCreate if its place does not let it be made. Unless it was closed, its content must not
/// be trusted.
class OutputFile {
 public:
  enum class Existing { kEmpty, kRefuse };  // what stands at the path; a link is refused, too
  /// Creates `path`, or empties it.
  explicit OutputFile(const std::filesystem::path& path, Existing existing = Existing::kEmpty)
      : OutputFile(path, existing, path) {}
  /// `mode`: permissions of a new file, less the umask.
  OutputFile(const std::filesystem::path& path, Existing existing, std::filesystem::path called,
             unsigned mode = 0666);
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Goes back to write over the first bytes.
  void write_at_start(const void* data, std::size_t bytes);
  void close() { file_.close(path_); }
  /// fsync and close.
  void sync_and_close();

 private:
  void write_out() const;

  std::filesystem::path path_;
  FileDescriptor file_;
};

/// Creates or empties `path` and writes `text`, without a wait for the disk. Throws IoError.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Replaces `path` with `text`: a new file of its own beside it, fsync, rename, fsync of the
/// folder. Readers see the old file or the new one, also after a crash. Throws IoError (a full disk, for
/// example) and then leaves the old file as it was, or the new one if only the last fsync failed.
void replace_file(const std::filesystem::path& path, std::string_view text);
/// Replaces a file by what `write` puts into it.
void replace_file(const std::filesystem::path& path, const std::function<void(OutputFile&)>& write);
/// Writes a new file, which appears whole or not at all. Throws CannotCreate if there is one at
/// `path` at the end, which stays as it is; else as replace_file.
void create_file(const std::filesystem::path& path, const std::function<void(OutputFile&)>& write);

}  // namespace hybrid_trainer
