#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Replaces `path` with `text`: a temporary file beside it, fsync, rename, fsync of the folder.
/// Readers see the old file or the new one, also after a crash. Throws IoError (a full disk, for
/// example) and then leaves the old file as it was, or the new one if only the last fsync failed.
void write_file_atomically(const std::string& path, std::string_view text);

/// The bytes of a regular file. Throws MissingInput where it is absent or cannot be read, DataError
/// where it is no regular file or has more than `max_bytes`.
std::string read_file(const std::string& path, std::size_t max_bytes);

}  // namespace hybrid_trainer
