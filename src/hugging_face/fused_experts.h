#pragma once

#include <functional>
#include <string>

#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Where a folder has a tensor that it does not have under its usual name: as transformers 5 holds
/// mixtures itself, which it writes with save_original_format=False. There gates and ups of all experts
/// of a layer are one tensor (experts, 2·inner, width), and so are the last maps. Returns the tensor as
/// it was where that is not so. `contains`: whether the folder has a tensor, by its name without
/// prefix.
FileTensor as_held_by_version_5(const FileTensor& tensor, std::int64_t experts,
                                const std::function<bool(const std::string& name)>& contains);

}  // namespace hybrid_trainer
