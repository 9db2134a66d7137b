#pragma once

#include <optional>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "hybrid_trainer/generation/source_writer.h"
#include "hybrid_trainer/hugging_face/generation_keys.h"

namespace hybrid_trainer {

/// How rows become what an encoder of tokens reads and what its decoder writes; none for a model without
/// such an encoder. Throws DataError if the keys name no start token.
std::optional<SourceFormat> source_format_of(const ModelConfig& model, const GenerationKeys& keys);

/// How such a model writes: at most as many tokens as its decoder's context. Throws DataError if the
/// keys name no start token.
SourceWriting source_writing_of(const ModelConfig& model, const GenerationKeys& keys);

}  // namespace hybrid_trainer
