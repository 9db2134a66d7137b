#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer::units {

/// Numbers in human-readable form.
std::string fixed(double value, int decimals);  // "3.142"
std::string count(double value);                // "950", "12.3k", "1.24M"
std::string grouped(std::int64_t value);        // "1,234,567"
std::string millions(std::int64_t value);       // "1234", from 10,000 on "0.01 M"
std::string bytes(std::size_t bytes);           // "412 MB", in powers of 1000
std::string duration(double seconds);           // "48s", "3m 05s", "2h 14m", "3d 04h"

}  // namespace hybrid_trainer::units

namespace hybrid_trainer {

/// The candidate with the smallest edit distance to `name`, or "" where none is near (distance over
/// half its length).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// "; did you mean X?" for the nearest candidate, or "; valid: A, B, C" where none is near.
std::string name_hint(std::string_view name, const std::vector<std::string>& candidates);

/// `word` as a shell takes it for one word: in quotes if it has characters with a meaning. For every
/// command that a message or a file suggests.
std::string shell_word(const std::string& word);

/// `path` as one word that no program takes for an option.
std::string shell_path(const std::filesystem::path& path);

/// Says what was ignored or left out although the work goes on: a line "warning: WHERE: WHAT" on
/// standard error. A process says the same WHAT once, whatever it was found in: a model's folder,
/// and the copies of its files in a run.
void warn(const std::string& where, const std::string& what);

/// Sends warnings elsewhere, or with null nowhere, which all ranks but the first do. Those said
/// before are forgotten.
void send_warnings_to(std::ostream* out);

}  // namespace hybrid_trainer
