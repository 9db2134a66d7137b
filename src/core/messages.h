#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer::units {

/// Format numbers for people.
std::string fixed(double value, int decimals);  // "3.142"
std::string count(double value);                // "950", "12.3k", "1.24M"
std::string grouped(std::int64_t value);        // "1,234,567"
std::string millions(std::int64_t value);       // "1234", from 10,000 on "0.01 M"
std::string bytes(std::size_t bytes);           // "412 MB", in powers of 1000
std::string duration(double seconds);           // "48s", "3m 05s", "2h 14m", "3d 04h"

}  // namespace hybrid_trainer::units

namespace hybrid_trainer {

/// Returns the candidate with the smallest edit distance to `name`, or "" if every distance exceeds
/// half its length.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// Returns "; did you mean X?" with the nearest candidate or, if none is similar, "; valid: A, B,
/// C".
std::string name_hint(std::string_view name, const std::vector<std::string>& candidates);

/// Quotes `word` for a shell if necessary. Used for commands that messages and files suggest.
std::string shell_word(const std::string& word);

/// Quotes `path` for a shell. A path that begins with a hyphen gets "./" in front, so that programs
/// do not read it as an option.
std::string shell_path(const std::filesystem::path& path);

/// Prints "warning: WHERE: WHAT" on standard error, about something that is ignored or skipped. A
/// process prints each WHAT only once, regardless of WHERE, because a run contains copies of the
/// model's files.
void warn(const std::string& where, const std::string& what);

/// Redirects warnings; null discards them, as on all ranks but the first. Resets the record of printed
/// warnings.
void send_warnings_to(std::ostream* out);

}  // namespace hybrid_trainer
