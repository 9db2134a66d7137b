#pragma once

#include "hybrid_trainer/fine_tuning/clip_rows.h"
#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "hybrid_trainer/speech/speech_tokens.h"

namespace hybrid_trainer {

/// Target text of a clip: the prompt of its language and of the folder's task, what is
/// said, and the end. All but the first token is learnt. A text begins as a word within one does, with a
/// space, unless the space would be a token alone. A text with timestamps begins with one, and has neither
/// <|notimestamps|> nor the space. Of `format`, tokenizer, longest and control are read. Throws DataError
/// if the row and the folder name no language, or one that the model does not know, and the model knows
/// several; if timestamps are wrong; or if the text spells another special token of Whisper's.
ExampleRow clip_example(const ClipRow& clip, const ExampleFormat& format,
                        const SpeechTokens& tokens);

/// Reads a file of clips, or the files of a folder, as read_example_rows reads texts; of `format` it
/// takes tokenizer, longest, control, columns and called. A clip longer than longest_seconds is refused.
/// Throws as read_clip_rows.
ExampleRows read_clip_examples(const std::filesystem::path& path, const ExampleFormat& format,
                               double longest_seconds, const SpeechTokens& tokens);

}  // namespace hybrid_trainer
