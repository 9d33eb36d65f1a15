// What a Context is made of, for those that bring their own parts: the tuner, the command, and tests with fakes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/store.h"
#include "quern/context.h"
#include "runtime/compiler.h"
#include "runtime/device.h"

namespace quern {

// How problems become source; the generator's own functions outside tests. Both are called from any thread.
struct KernelProvider {
  std::function<Config(const Problem&, const Target&)> default_config;
  std::function<Result<KernelSource>(const Problem&, const Target&, const Config&)> render;
};

struct ContextParts {
  std::unique_ptr<Device> device;       // required
  std::unique_ptr<cache::Store> store;  // required; a store without a directory answers nothing
  std::unique_ptr<Compiler> compiler;   // null: only stored kernels run
  Error compiler_missing;               // why it is null
  KernelProvider kernels;               // required
  bool record_launches = false;
  bool launch_apart = false;
  std::function<void(const std::string&)> warn;
};

Context make_context(ContextParts parts);

// The context's live parts, valid as long as any copy of it.
const ContextParts& parts_of(const Context& context);

// The generator's families.
KernelProvider generator_kernels();

// What `options` says about libraries and the store.
LibraryPaths library_paths(const ContextOptions& options);
cache::StoreOptions store_options(const ContextOptions& options);

}  // namespace quern
