#pragma once

#include <boost/program_options.hpp>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/generation/cached_decoder.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// The file or folder that a model's name on the command line means: `ollama:NAME` is the GGUF file of
/// a model that Ollama has downloaded, anything else a path. Throws MissingInput, DataError.
std::string model_path(const std::string& given);

/// The value of an option that names a model.
boost::program_options::typed_value<std::string>* model_value(std::string& path,
                                                              const char* value_name = "HF_DIR");

/// Declares --device, bound to `name`, which must live until the command line is parsed.
void add_device_option(po::options_description& options, std::string& name);

/// The name itself. Throws UsageError if it names no device.
const std::string& checked_device_name(const std::string& name);

/// The device that --device names. Throws UsageError if the name is not a device's, DeviceError if
/// this machine does not have it.
Device device_of_option(const std::string& name);

/// Declares --columns, by which examples are read; the same as data.columns.
void add_columns_option(po::options_description& options, std::string& columns);

/// Declares --control-tokens, bound to `name`, which control_text_of reads and which must live until
/// the command line is parsed.
void add_control_tokens_option(po::options_description& options, std::string& name);

/// Declares --context-overflow, bound to `name`, which must live until the command line is parsed.
void add_overflow_option(po::options_description& options, std::string& name);
/// Throws UsageError for another name than error and truncate.
ContextOverflow overflow_of_option(const std::string& name);

/// Says what a prompt lost, "the prompt has 891 tokens and the model's context 128: …".
std::string told_of_left_out(const FittedPrompt& prompt, const ContextWindow& window);
/// Says that the model no longer sees the beginning of what it writes.
std::string told_of_forgotten(std::int64_t forgotten, const ContextWindow& window);

}  // namespace hybrid_trainer
