#pragma once

#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Unicode's normalization forms of composed characters: C, or KC, which also replaces compatible
/// characters, such as ﬁ by fi.
enum class UnicodeForm { kC, kKC };

/// Brings UTF-8 text to a form. Takes O(n log n) time, however many marks follow each other.
std::string in_unicode_form(std::string_view text, UnicodeForm form);

}  // namespace hybrid_trainer
