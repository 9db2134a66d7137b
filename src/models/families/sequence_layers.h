#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/models/sequence_to_sequence.h"

namespace hybrid_trainer {

/// A layer of the decoder, which reads by cross attention what the encoder made of the `source`.
/// `key_bias`: whether keys have a bias.
LayerSpec sequence_decoder_layer(const ModelConfig& config,
                                 const std::shared_ptr<EncoderOutput>& source, bool key_bias);
LayerSpec sequence_encoder_layer(const ModelConfig& config, bool key_bias);

/// The config with the decoder's layers, heads and inner width where the encoder's are 0.
ModelConfig with_encoder_sizes(const ModelConfig& given);
/// Appends those of heads that do not divide the width.
void collect_head_problems(const ModelConfig& config, std::vector<std::string>& problems);

/// The keys of config.json for sizes: the decoder's with those of its context, `contexts`, and the
/// encoder's with `of_encoder`.
std::vector<HuggingFaceLayout::Member> sequence_members(
    const std::vector<HuggingFaceLayout::Member>& contexts,
    const std::vector<HuggingFaceLayout::Member>& of_encoder);
/// Those that are only written, with `more` rates of dropout.
std::vector<HuggingFaceLayout::Fixed> sequence_written_keys(
    const ModelConfig& config, const std::vector<HuggingFaceLayout::Fixed>& more = {});

}  // namespace hybrid_trainer
