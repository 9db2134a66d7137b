#include "src/io/file_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{8} << 20;

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

void FileDescriptor::close(const std::string& path) {
  if (::close(std::exchange(number_, -1)) != 0)
    throw IoError(system_problem(path, "closing failed"));
}

std::string system_problem(const std::string& path, const char* what_failed) {
  return concat(path, ": ", what_failed, ": ", std::strerror(errno));
}

std::pair<FileDescriptor, std::size_t> open_regular_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) throw MissingInput(system_problem(path, "cannot open it for reading"));
  struct stat status {};
  if (::fstat(file.number(), &status) != 0)
    throw IoError(system_problem(path, "cannot read its size"));
  if (!S_ISREG(status.st_mode)) throw DataError(path + ": is no regular file");
  return {std::move(file), static_cast<std::size_t>(status.st_size)};
}

void read_at(const FileDescriptor& file, const std::string& path, void* to, std::size_t bytes,
             std::size_t offset) {
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(file.number(), next, std::min(bytes, kChunkBytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(system_problem(path, "reading failed"));
    if (got == 0)
      throw IoError(concat(path, ": ends at byte ", offset, ", ", bytes, " bytes too early"));
    next += got;
    bytes -= static_cast<std::size_t>(got);
    offset += static_cast<std::size_t>(got);
  }
}

void sync_folder(const std::string& path) {
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() < 0) throw IoError(system_problem(path, "cannot open the folder"));
  if (::fsync(folder.number()) != 0) throw IoError(system_problem(path, "fsync failed"));
}

void make_folders(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> parents;
  fs::path missing = fs::absolute(path).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();  // "folder/"
  for (; !fs::exists(missing); missing = missing.parent_path())
    parents.push_back(missing.parent_path());
  fs::create_directories(path);
  for (const fs::path& parent : parents) sync_folder(parent);
}

FileWriter::FileWriter(std::string path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_.number() < 0) throw IoError(system_problem(path_, "cannot create it"));
}

void FileWriter::append(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(file_.number(), next, std::min(bytes, kChunkBytes));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw IoError(system_problem(path_, "writing failed"));
    checksum_.add(next, static_cast<std::size_t>(wrote));
    next += wrote;
    bytes -= static_cast<std::size_t>(wrote);
    bytes_ += static_cast<std::size_t>(wrote);
  }
}

FileDigest FileWriter::finish() {
  if (::fsync(file_.number()) != 0) throw IoError(system_problem(path_, "fsync failed"));
  file_.close(path_);
  return {bytes_, checksum_.text()};
}

FileDigest write_atomically(const std::string& path,
                            const std::function<void(FileWriter&)>& write) {
  const std::filesystem::path target = std::filesystem::absolute(path);
  const std::string folder = target.parent_path().string();
  const std::string temporary =
      concat(folder, "/.tmp-", target.filename().string(), "-", ::getpid());
  FileDigest digest;
  try {
    FileWriter writer(temporary);
    write(writer);
    digest = writer.finish();
    if (std::rename(temporary.c_str(), path.c_str()) != 0)
      throw IoError(system_problem(path, "cannot replace it"));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
  return digest;
}

FileDigest digest_of_file(const std::string& path) {
  const auto [file, size] = open_regular_file(path);
  std::vector<char> chunk(std::min(size, kChunkBytes));
  Checksum checksum;
  for (std::size_t at = 0; at < size; at += chunk.size()) {
    const std::size_t bytes = std::min(chunk.size(), size - at);
    read_at(file, path, chunk.data(), bytes, at);
    checksum.add(chunk.data(), bytes);
  }
  return {size, checksum.text()};
}

}  // namespace hybrid_trainer
