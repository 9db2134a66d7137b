#pragma once

#include <filesystem>
#include <string>

namespace hybrid_trainer {

/// `word` as a shell takes it for one word: in quotes if it has characters with a meaning. For every
/// command that a message or a file suggests.
std::string shell_word(const std::string& word);

/// `path` as one word that no program takes for an option.
std::string shell_path(const std::filesystem::path& path);

}  // namespace hybrid_trainer
