#pragma once

#include <functional>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// The end of a temporary name that nobody can guess or has: host, boot, name space of processes,
/// process and a random number.
std::string temporary_mark();

/// Whether the process that made the mark has certainly ended. False where that cannot be known, as of
/// another host's, another container's, and of a text that is no mark.
bool maker_has_ended(std::string_view mark);

/// Makes the names within a folder durable. Throws IoError.
void sync_folder(const std::filesystem::path& path);

/// Creates the folder and those above it that are missing, and makes their names durable. Throws
/// CannotCreate, or IoError if the disk is full or fails.
void make_folders(const std::filesystem::path& path);

/// Makes everything below the folder durable. Throws IoError.
void sync_tree(const std::filesystem::path& path);

/// Renames the finished folder `from` to `to`. What stands at `to` changes places with it, or goes
/// to `aside` where the file system exchanges nothing. False, with errno set, where that failed;
/// then all is as it was.
bool exchange_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::filesystem::path& aside);

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

/// A folder that appears whole or not at all: it is filled under a hidden name beside its own and
/// renamed by commit(). Without a commit, everything written is removed.
class OutputFolder {
 public:
  enum class Existing { kRefuse, kReplace };  // a folder that is there and not empty
  /// Throws CannotCreate if `path` cannot be looked at.
  OutputFolder(const std::filesystem::path& path, Existing existing);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Its absolute name, with links resolved.
  const std::filesystem::path& path() const { return path_; }
  /// Throws CannotCreate for Existing::kRefuse where there is anything but an empty folder, and where
  /// the folder above cannot be written to.
  void require_free() const;
  /// Creates the folder to fill, and removes those beside it of this host's processes that ended
  /// before their commit. Throws CannotCreate, also as require_free.
  const std::filesystem::path& create();
  /// Makes it durable under its name; at every moment the old folder or the new one is whole.
  /// Throws CannotCreate where something has come to stand there that may not be replaced, IoError.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  Existing existing_;
};

}  // namespace hybrid_trainer
