#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/added_tokens.h"
#include "src/data/text/bpe_tokenizer.h"
#include "src/data/text/json_place.h"
#include "src/files/folder_files.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

/// An added token as a file lists it, with its id in that file.
struct ListedToken {
  AddedToken token;  // its id is not set
  bool normalized = false;
  std::optional<std::int64_t> id;
  std::string place;  // where it is in the file, for messages
};

/// Settings of a tokenizer.json in other files of its folder.
struct TokenizerSettings {
  std::optional<bool> adds_prefix_space;   // overrides a ByteLevel pre-tokenizer that makes words
  std::optional<std::string> end_of_text;  // replaces "<|endoftext|>"; must be a token
  std::string end_of_text_file;            // file with the name end_of_text
  std::vector<ListedToken> added_tokens;   // added_tokens_decoder, by id
  /// Tokens to add if the tokenizer has none with their text: tokens of added_tokens.json by id,
  /// then tokens with roles, tokens with other names such as image_token, and additional ones.
  std::vector<ListedToken> named_tokens;
};

/// Reads a token {"content": …, "lstrip": …}, of which only content is required.
ListedToken listed_token(const JsonPlace& place);

/// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder, if they
/// exist. As in transformers, add_prefix_space overrides the setting in tokenizer.json. The two
/// older files are only used if tokenizer_config.json has no added_tokens_decoder; names in the map
/// then come first. The map's eos_token is the fallback in any case. Warns about unknown keys.
/// Throws DataError.
TokenizerSettings read_tokenizer_settings(const FolderFiles& folder);

/// Makes the tokenizer of a Hugging Face tokenizer.json; `file` is its name in messages. Throws
/// DataError with the JSON path of a damaged or unsupported part.
std::unique_ptr<Tokenizer> tokenizer_of_json(const boost::json::value& root,
                                             const std::string& file,
                                             const TokenizerSettings& settings,
                                             TokenizerFiles files);

/// Returns the two tokens of a merge of tokenizer.json's model.
std::pair<std::string, std::string> merge_parts(const JsonPlace& merges, std::size_t i);

boost::json::object byte_level(bool adds_prefix_space, bool splits_words);
/// Returns an element of added_tokens in tokenizer.json that matches the original text.
boost::json::object added_token(std::int64_t id, std::string_view content, bool special);
/// Parts of a tokenizer.json.
struct TokenizerJson {
  boost::json::array added_tokens{};
  boost::json::value normalizer{}, pre_tokenizer{}, post_processor{}, decoder{};
  boost::json::object model{};
  boost::json::object root() &&;
};

/// Makes the tokenizer of a trained BPE. Its save writes tokenizer.json, vocab.json and merges.txt.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeModel& model);

/// Loads the tokenizer of a folder, from its file `name` if given, like load_tokenizer with a path.
std::unique_ptr<Tokenizer> load_tokenizer(const FolderFiles& folder, const std::string& name = "");
/// Reads the files of a folder's tokenizer. Throws IoError.
TokenizerFiles read_tokenizer_files(const FolderFiles& folder);

/// Loads the tokenizer of a GGUF file, with the equivalent files of a Hugging Face folder. For a
/// tokenizer with scores (SentencePiece), derives merges from the scores, or from the order of the
/// tokens if all scores are equal, as some converters write them. Throws MissingInput if the file
/// has no tokenizer, DataError if it is damaged or splits words in an unsupported way.
std::unique_ptr<Tokenizer> load_tokenizer(const GgufFile& file);

}  // namespace hybrid_trainer
