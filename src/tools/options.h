#pragma once

#include <boost/program_options.hpp>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Resolves a model's name to a path. `ollama:NAME` is the GGUF file of a model that Ollama has
/// downloaded. Throws MissingInput, DataError.
std::string model_path(const std::string& given);

/// Declares the value of an option that names a model.
boost::program_options::typed_value<std::string>* model_value(std::string& path,
                                                              const char* value_name = "HF_DIR");

/// Declares --device and binds it to `name`, which must outlive the parsing.
void add_device_option(po::options_description& options, std::string& name);

/// Returns `name`. Throws UsageError if it is not a device name.
const std::string& checked_device_name(const std::string& name);

/// Returns the device named by --device. Throws UsageError for an unknown name, and DeviceError if
/// this machine does not have the device.
Device device_of_option(const std::string& name);

/// Declares --columns, the column names of the examples, as in data.columns.
void add_columns_option(po::options_description& options, std::string& columns);

/// Declares --control-tokens and binds it to `name`, which must outlive the parsing.
void add_control_tokens_option(po::options_description& options, std::string& name);

/// Declares --context-overflow and binds it to `overflow`, which must outlive the parsing. Parsing
/// throws UsageError if the value is not "error" or "truncate".
void add_overflow_option(po::options_description& options, ContextOverflow& overflow);

/// Returns a truncation warning: "the prompt has 891 tokens and the model's context is 128: …".
std::string truncated_prompt_warning(const FittedPrompt& prompt, const ContextWindow& window);
/// Returns the message that the model no longer attends to the beginning of its text.
std::string dropped_tokens_warning(std::int64_t dropped_tokens, const ContextWindow& window);

}  // namespace hybrid_trainer
