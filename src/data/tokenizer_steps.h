#pragma once

#include <optional>
#include <vector>

#include "src/data/json_place.h"
#include "src/data/text_pipeline.h"
#include "src/data/token_texts.h"

namespace hybrid_trainer {

struct PreTokenizer {
  std::vector<PreTokenizerStep> steps;
  bool by_bytes = false;  // a ByteLevel makes symbols of bytes
  bool adds_prefix_space = false;
};

/// The parts of a tokenizer.json; none is an empty list. `adds_prefix_space` takes precedence where
/// a ByteLevel makes the words. Throw DataError by the JSON path where something is not supported.
std::vector<NormalizerStep> read_normalizer(const std::optional<JsonPlace>& place);
PreTokenizer read_pre_tokenizer(const std::optional<JsonPlace>& place,
                                std::optional<bool> adds_prefix_space);
/// Without a decoder tokens stand apart, as Hugging Face's tokenizers has it; but those of bytes
/// (`by_bytes`) are decoded as ByteLevel does, since nothing else makes text of them.
std::vector<DecoderStep> read_decoder(const std::optional<JsonPlace>& place, bool by_bytes);

}  // namespace hybrid_trainer
