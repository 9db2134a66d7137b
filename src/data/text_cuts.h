#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace hybrid_trainer {

/// The last place from `first` on, but 0, where two characters meet for which
/// `may_cut(before, after)` holds; 0 if there is none.
std::size_t last_place_between(
    std::string_view text, std::size_t first,
    const std::function<bool(std::string_view before, std::string_view after)>& may_cut);

/// Where the last character begins: of each character for itself.
std::size_t last_character(std::string_view text, std::size_t first);

/// Where GPT-2's words are the same on both sides.
std::size_t last_word_cut(std::string_view text, std::size_t first);

}  // namespace hybrid_trainer
