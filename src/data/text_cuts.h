#pragma once

#include <cstddef>
#include <string_view>

namespace hybrid_trainer {

/// The last place where a text may be cut so that its two parts, encoded separately, give the
/// tokens of the whole, whatever comes after `text` and whatever the tokenizer (but for one that
/// adds a prefix space to an overlong word behind a contraction); 0 if there is none yet. `text`
/// begins at such a place. Preferably before the first white space from `first` on that follows
/// something else; else at the end of some other word, or of a piece of an overlong one.
std::size_t last_cut(std::string_view text, std::size_t first);

}  // namespace hybrid_trainer
