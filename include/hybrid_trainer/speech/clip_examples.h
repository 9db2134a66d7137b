#pragma once

#include "hybrid_trainer/fine_tuning/clip_rows.h"
#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "hybrid_trainer/speech/speech_tokens.h"

namespace hybrid_trainer {

/// What a model learns to write of a clip: the prompt of its language, what is said, and the end. All but
/// the first token is learnt. A text begins as a word within one does, with a space, as Whisper writes.
/// `longest`: tokens; a longer row loses its end. Throws DataError where the row names no language, or
/// one that the model does not know, and the model knows several.
ExampleRow clip_example(const ClipRow& clip, const Tokenizer& tokenizer, const SpeechTokens& tokens,
                        std::int64_t longest);

/// Reads a file of clips, or the files of a folder, as read_example_rows reads texts; of `format` it
/// takes tokenizer, longest, columns and called. A clip longer than longest_seconds is refused. Throws as
/// read_clip_rows.
ExampleRows read_clip_examples(const std::filesystem::path& path, const ExampleFormat& format,
                               double longest_seconds, const SpeechTokens& tokens);

}  // namespace hybrid_trainer
