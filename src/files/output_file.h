#pragma once

#include <functional>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Returns an unpredictable suffix for temporary names: host, boot, namespace, process, random.
std::string temporary_mark();

/// Returns whether the process that made the mark is known to have ended. Returns false if this is
/// unknown, for example on another host or in another container, or if the text is not a mark.
bool creator_has_exited(std::string_view mark);

/// Flushes the names within a folder to the disk. Throws IoError.
void sync_folder(const std::filesystem::path& path);

/// Creates the folder and its missing parents, and flushes their names to the disk. Throws
/// CannotCreate, or IoError if the disk is full or failing.
void make_folders(const std::filesystem::path& path);

/// Flushes all files and folders below the folder to the disk. Throws IoError.
void sync_tree(const std::filesystem::path& path);

/// Renames the finished folder `from` to `to`. If `to` exists, exchanges the two folders. If the
/// file system does not support this, moves the old folder to `aside`. On error, sets errno,
/// returns false and changes nothing.
bool exchange_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::filesystem::path& aside);

/// A file being written, which is only reliable once it is closed. Throws CannotCreate if it cannot
/// be created, else IoError. Messages name the file, or `called`, the file that it will replace.
class OutputFile {
 public:
  /// Treatment of an existing file; kRefuse also rejects links.
  enum class Existing { kEmpty, kRefuse };
  explicit OutputFile(const std::filesystem::path& path, Existing existing = Existing::kEmpty)
      : OutputFile(path, existing, path) {}
  /// `mode` has the permissions of a new file, which the umask restricts.
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
/// Readers see either the old or the new file, even after a crash. Throws IoError, for example if
/// the disk is full. The old file then remains, or the new file if only the last fsync failed.
void replace_file(const std::filesystem::path& path, std::string_view text);
void replace_file(const std::filesystem::path& path, const std::function<void(OutputFile&)>& write);
/// Writes a new file atomically. If `path` exists when the new file is complete, does not change it
/// and throws CannotCreate. Otherwise behaves like replace_file.
void create_file(const std::filesystem::path& path, const std::function<void(OutputFile&)>& write);

/// A folder that is created atomically. It is filled under a hidden name in the same parent folder
/// and renamed by commit(). The destructor removes it if commit() was not called.
class OutputFolder {
 public:
  enum class Existing { kRefuse, kReplace };  // treatment of an existing folder that is not empty
  /// Throws CannotCreate if `path` is not accessible.
  OutputFolder(const std::filesystem::path& path, Existing existing);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Returns the absolute path of the folder, with links resolved.
  const std::filesystem::path& path() const { return path_; }
  /// Throws CannotCreate if the parent folder of `path` is not writable. With Existing::kRefuse,
  /// also throws it if `path` exists and is not an empty folder.
  void require_free() const;
  /// Creates the folder to fill. Also removes folders of processes of this host that ended before
  /// their commit. Throws CannotCreate if the folder cannot be created, and like require_free.
  const std::filesystem::path& create();
  /// Flushes the folder and renames it to its final name. At any time, the old or the new folder is
  /// complete. Throws IoError, or CannotCreate if `path` now has contents that may not be replaced.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  Existing existing_;
};

}  // namespace hybrid_trainer
