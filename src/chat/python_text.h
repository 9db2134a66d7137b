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
/// Bytes of white space at the start.
std::size_t leading_space(std::string_view text);
/// The character that begins at a byte.
std::string_view character_at(std::string_view text, std::size_t at);
/// The byte so many characters further on, or further back.
std::size_t moved(std::string_view text, std::size_t byte, std::int64_t characters);
/// Where a part begins, or npos; in linear time, whatever the part is.
std::size_t position_of(std::string_view text, std::string_view part);
std::int64_t count_characters(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
/// strip, lstrip, rstrip: of white space, or of the characters given.
std::string stripped(std::string_view text, Side side,
                     const std::optional<std::string>& characters = {});
/// split: at white space, or at the separator; at most `limit` times where that is not negative.
/// Throws Problem where the parts would be too many.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit);
/// Throws Problem where the result would be too large.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t limit);

enum class Case { kUpper, kLower, kCapitalized, kTitle };
/// Throws Problem where a letter is not ASCII: what its other case is depends on Unicode's version.
std::string in_case(std::string_view text, Case wanted);

/// The start of a text, for messages.
std::string shortened(std::string_view text, std::size_t bytes = 80);
/// float.__repr__.
std::string float_text(double value);
/// str.__repr__.
std::string quoted_text(std::string_view text);
/// A JSON string as json.dumps writes it.
std::string json_quoted(std::string_view text, bool ascii);

}  // namespace hybrid_trainer::jinja
