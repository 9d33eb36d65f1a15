#include "tools/json_output.h"

#include <cstdio>

namespace quern::tools {

void print_json(const Json& object) {
  const std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace quern::tools
