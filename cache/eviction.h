// Which artifacts go when there are too many. Only artifacts: tunings are never evicted. Internal to cache/.
#pragma once

#include "cache/admin.h"
#include "cache/sqlite.h"

namespace quern::cache {

// Deletes artifacts until at most options.max_bytes are left, in this order: the least recently used first; the live ones of the running
// generator last, again by last use. Live: of options.generator_version, and named by a winner of that version or used within a day.
// Nothing else decides: another version's row goes because it is unused, never because it is another's. `spare` is never deleted.
// One transaction; the dry run deletes nothing and reports the same.
Result<GcReport> evict(sqlite::Connection& db, const GcOptions& options, const Key* spare);

Result<std::int64_t> artifact_bytes(sqlite::Connection& db);

}  // namespace quern::cache
