#pragma once

#include <functional>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Returns an unpredictable suffix for a temporary name: host, boot, namespace, process, random.
std::string temporary_mark();

/// Returns whether the process that made the mark has certainly ended. Returns false if that is
/// unknown, for example on another host or in another container, or if the text is not a mark.
bool creator_has_exited(std::string_view mark);

/// Makes the names within a folder durable. Throws IoError.
void sync_folder(const std::filesystem::path& path);

/// Creates the folder and its missing parents, and makes their names durable. Throws CannotCreate,
/// or IoError if the disk is full or failing.
void make_folders(const std::filesystem::path& path);

/// Makes everything below the folder durable. Throws IoError.
void sync_tree(const std::filesystem::path& path);

/// Renames the finished folder `from` to `to`. If `to` exists, swaps the two or, if the file system
/// cannot, moves the old one to `aside`. On error, returns false with errno and changes nothing.
bool exchange_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::filesystem::path& aside);

/// A file being written, reliable only once it is closed. Failures throw IoError, or CannotCreate
/// if it cannot be created, and name the file or `called`, the file that will be replaced.
class OutputFile {
 public:
  enum class Existing { kEmpty, kRefuse };  // for an existing file; kRefuse also refuses links
  explicit OutputFile(const std::filesystem::path& path, Existing existing = Existing::kEmpty)
      : OutputFile(path, existing, path) {}
  /// `mode`: permissions of a new file, less the umask.
  OutputFile(const std::filesystem::path& path, Existing existing, std::filesystem::path called,
             unsigned mode = 0666);
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at_start(const void* data, std::size_t bytes);
  void close() { file_.close(path_); }
  void sync_and_close();

 private:
  void write_out() const;

  std::filesystem::path path_;
  FileDescriptor file_;
};

/// Creates or empties `path` and writes `text`, without waiting for the disk. Throws IoError.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Replaces `path` with `text` through a temporary file: write, fsync, rename, fsync of the folder.
/// Readers see the old file or the new one, even after a crash. Throws IoError (a full disk, for
/// example) and then keeps the old file, or the new one if only the last fsync failed.
void replace_file(const std::filesystem::path& path, std::string_view text);
void replace_file(const std::filesystem::path& path, const std::function<void(OutputFile&)>& write);
/// Writes a new file, which appears whole or not at all. If `path` exists when the new file is
/// complete, leaves it unchanged and throws CannotCreate. Otherwise like replace_file.
void create_file(const std::filesystem::path& path, const std::function<void(OutputFile&)>& write);

/// A folder that appears whole or not at all: it is filled under a hidden name in the same parent
/// folder and renamed by commit(). Without a commit, everything written is removed.
class OutputFolder {
 public:
  enum class Existing { kRefuse, kReplace };  // an existing folder that is not empty
  /// Throws CannotCreate if `path` is not accessible.
  OutputFolder(const std::filesystem::path& path, Existing existing);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Returns its absolute path, with links resolved.
  const std::filesystem::path& path() const { return path_; }
  /// Throws CannotCreate if the parent folder of `path` is not writable. With Existing::kRefuse,
  /// also throws it if `path` exists and is not an empty folder.
  void require_free() const;
  /// Creates the folder to fill, and removes leftovers of this host's processes that ended before
  /// their commit. Throws CannotCreate if the folder cannot be created, and as require_free.
  const std::filesystem::path& create();
  /// Makes the folder durable under its name. At any time, either the old or the new folder is
  /// complete. Throws IoError, or CannotCreate if `path` now has contents that may not be replaced.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  Existing existing_;
};

}  // namespace hybrid_trainer
