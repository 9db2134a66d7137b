#pragma once

#include <cstdint>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// The sizes of an encoder whose output a decoder reads by cross attention; its width is the decoder's.
struct EncoderConfig {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t inner_width = 0;
  std::int64_t context = 0;
  std::int64_t features = 0;
  std::int64_t source_length = 0;

  /// Whether it reads tokens; else sound, or there is none.
  bool reads_tokens() const { return context > 0 && features == 0; }
  /// Places of a source in a batch.
  std::int64_t source_places() const { return source_length > 0 ? source_length : context; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"layers", self.layers, "Blocks of the encoder; 0: as many as the decoder's.",
                Range::between(0, 1000)});
    visit(Field{"heads", self.heads, "Attention heads of each; 0: as many as the decoder's.",
                Range::between(0, 1024)});
    visit(Field{"inner_width", self.inner_width,
                "Channels between the products of its feed-forward branch; 0: the decoder's.",
                Range::between(0, 1 << 20)});
    visit(Field{"context", self.context,
                "Places that the encoder knows (whisper: half as many as a clip has frames of 10 "
                "ms; bart: tokens); 0: 1500, which is 30 s, and in bart the decoder's context.",
                Range::between(0, 1 << 20)});
    visit(Field{"features", self.features, "Mel bands of a frame of sound; 0: 80.",
                Range::between(0, 1024)});
    visit(Field{"source_length", self.source_length,
                "Tokens of a source in training (bart): shorter ones are padded, longer ones lose "
                "their end. `hybrid finetune` sets that of the longest source; 0: the encoder's "
                "context.",
                Range::between(0, 1 << 20)});
  }
};

}  // namespace hybrid_trainer
