#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer::units {

std::string fixed(double value, int decimals);  // "3.142"
std::string count(double value);                // "950", "12.3k", "1.24M"
std::string grouped(std::int64_t value);        // "1,234,567"
std::string millions(std::int64_t value);       // "1234", from 10,000 on "0.01 M"
std::string bytes(std::size_t bytes);           // "412 MB", in powers of 1000
std::string duration(double seconds);           // "48s", "3m 05s", "2h 14m", "3d 04h"

}  // namespace hybrid_trainer::units

namespace hybrid_trainer {

/// Returns the candidate nearest to `name`, or "" if every edit distance exceeds half its length.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// Returns "; did you mean X?" with the nearest candidate or, if none is similar, "; valid: A, B".
std::string name_hint(std::string_view name, const std::vector<std::string>& candidates);

/// Quotes `word` for a shell if necessary. Used for commands that messages and files suggest.
std::string shell_word(const std::string& word);

/// Quotes `path` for a shell. Adds "./" before a leading hyphen, which would begin an option.
std::string shell_path(const std::filesystem::path& path);

/// Prints "warning: `where`: `what`" on standard error, about ignored or skipped input. Prints each
/// `what` once per process, because a run contains copies of the model's files.
void warn(const std::string& where, const std::string& what);

/// Redirects later warnings to `out`, and forgets which warnings were printed. Null discards
/// warnings, as on ranks above 0.
void send_warnings_to(std::ostream* out);

}  // namespace hybrid_trainer
