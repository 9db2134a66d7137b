#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer::jinja {

// Python's str, on UTF-8.

/// str.isspace() of one character.
bool is_python_space(char32_t character);
std::vector<std::string> characters_of(std::string_view text);
std::int64_t count_characters(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
/// strip, lstrip, rstrip: of white space, or of the characters given.
std::string stripped(std::string_view text, Side side,
                     const std::optional<std::string>& characters = {});
/// split: at white space, or at the separator; at most `limit` times where that is not negative.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit);
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t limit);

enum class Case { kUpper, kLower, kCapitalized };
/// Throws Problem where a letter is not ASCII: what its other case is depends on Unicode's version.
std::string in_case(std::string_view text, Case wanted);

/// float.__repr__.
std::string float_text(double value);
/// str.__repr__.
std::string quoted_text(std::string_view text);
/// A JSON string as json.dumps writes it.
std::string json_quoted(std::string_view text, bool ascii);

}  // namespace hybrid_trainer::jinja
