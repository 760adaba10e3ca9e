--- Mutants of what users from outside found: files that are gzipped, folders that cannot be made, statuses.
return {
  {
    name = "2920-gzip-cut", file = "host/files/stream.c",
    find = [[if (code == Z_BUF_ERROR)]],
    replace = [[if (code == Z_BUF_ERROR && !bytes)]],
    breaks = "a gzipped file that is cut is no error by its name",
    test = "spec/data/clicks_spec.lua -f gzipped",
  },
  {
    name = "2921-a-file-that-grows", file = "host/files/stream.c",
    find = [[bytes != s->size)]],
    replace = [[bytes < s->size)]],
    breaks = "a file that grows while it is read is no error",
    test = "spec/data/csv_spec.lua -f gzipped",
  },
  {
    name = "2922-mark-of-a-gzipped-text", file = "host/files/stream.c",
    find = [[s->next = 3;]],
    replace = [[s->next = 0;]],
    breaks = "a byte order mark is a part of the first name",
    test = "spec/data/csv_spec.lua -f gzipped",
  },
  {
    name = "2923-line-in-pieces", file = "host/data/json_lines.c",
    find = [[l->file->next += piece + (end ? 1 : 0);]],
    replace = [[l->file->next = end ? l->file->next + piece + 1 : l->file->held - (piece > 1);]],
    breaks = "a line that goes over the border of two pieces is read wrongly",
    test = "spec/data/jsonl_spec.lua -f pieces",
  },
  {
    name = "2924-status-of-generate", file = "lua/ganymede/cli/generate.lua",
    find = [[xpcall(failure.about("generate", generation.prepared, model, opt), failure.handler)]],
    replace = [[xpcall(generation.prepared(model, opt), failure.handler)]],
    breaks = "wrong options of ganymede generate end with status 1",
    test = "spec/cli/generate_spec.lua -f 'status of a wrong command'",
  },
  {
    name = "2925-cache-of-stages", file = "lua/ganymede/generation/init.lua",
    find = [[  check_cache(model, opt, rows)
]],
    replace = "",
    breaks = "pages are ignored on stages of a pipeline",
    test = "spec/cli/generate_spec.lua -f 'status of a wrong command'",
  },
  {
    name = "2926-folder-of-an-export", file = "lua/ganymede/hub/export.lua",
    find = [[  places.make(folder)
  write_arrays(folder, nil,]],
    replace = [[  core.make_folders(folder)
  write_arrays(folder, nil,]],
    breaks = "an export into a folder that cannot be made ends with status 1",
    test = "spec/cli/places_spec.lua",
  },
  {
    name = "2927-statistics-twice", file = "lua/ganymede/cli/run.lua",
    find = [[        args[flag] = nil -- nor is it tried at the end
]],
    replace = "",
    breaks = "statistics that cannot be written are refused twice",
    test = "spec/cli/places_spec.lua -f statistics",
  },
  {
    name = "2928-place-behind-a-name", file = "lua/ganymede/base/failure.lua",
    find = [[local text = own.without_place(failure.text(err))]],
    replace = [[local text = failure.text(err)]],
    breaks = "an error that names what it is about begins with a line of ours",
    test = "spec/cli/places_spec.lua -f told",
  },
  {
    name = "2929-caught-with-a-line-of-ours", file = "lua/ganymede/train/engine.lua",
    find = [[initialize = failure.blaming(initialize)
]],
    replace = "",
    breaks = "a program that catches an error of gm.initialize reads a line of Ganymede's",
    test = "spec/config/places_spec.lua -f once",
  },
  {
    name = "2930-failure-without-a-line", file = "lua/ganymede/base/failure.lua",
    find = [[err.message = own.place() .. err.message end]],
    replace = [[err.message = "" .. err.message end]],
    breaks = "failures do not say which line of a program led to them",
    test = "spec/config/places_spec.lua -f once",
  },
  {
    name = "2931-line-of-a-stop", file = "lua/ganymede/base/failure.lua",
    find = [[err.placed or (err.exit_code ~= 2 and err.exit_code ~= 5)]],
    replace = [[err.placed]],
    breaks = "a stop reads like a mistake in the line at which it came",
    test = "spec/config/places_spec.lua -f 'not so a stop'",
  },
  {
    name = "2932-line-of-an-error-of-c", file = "bindings/handle.c",
    find = [[if (!*line) return luaL_error]],
    replace = [[if (line) return luaL_error]],
    breaks = "a program that catches an error of C reads a line of Ganymede's",
    test = "spec/config/places_spec.lua -f once",
  },
  {
    name = "2933-epoch-without-a-batch", file = "lua/ganymede/train/fit.lua",
    find = [[if steps_per_epoch == 0 then]],
    replace = [[if steps_per_epoch < 0 then]],
    breaks = "data that make no batch are a wrong total_steps of gm.initialize",
    test = "spec/cli/run_spec.lua -f 'without a batch'",
  },
  {
    name = "2934-pickles", file = "host/arrays/arrays.c",
    find = [[        if (there)
            return]],
    replace = [[        if (there && false)
            return]],
    breaks = "a folder with a pickle of PyTorch is one without weights",
    test = "spec/hub/arrays_spec.lua -f 'refuse what'",
  },
  {
    name = "2935-rate-without-the-first-piece", file = "lua/ganymede/cli/tokenize.lua",
    find = [[progress(place and place.text or 0)]],
    replace = [[progress(math.huge)]],
    breaks = "tokenize says a rate without what it did first",
    test = "spec/text/tokenize_spec.lua -f 'how fast'",
  },
  {
    name = "2936-gzipped-bytes", file = "lua/ganymede/data/datasets.lua",
    find = [[if first == "\31\139\8" then]],
    replace = [[if first == "" then]],
    breaks = "a run trains on the bytes of gzip",
    test = "spec/data/files_spec.lua -f 'gzipped texts'",
  },
  {
    name = "2937-search-stopped", file = "lua/ganymede/plan/search/init.lua",
    find = [[if search.best then return 0, stop end]],
    replace = [[if false then return 0, stop end]],
    breaks = "Ctrl-C throws away what a search has found",
    test = "spec/cli/plan_spec.lua -f 'best so far'",
  },
  {
    name = "2938-how-far-a-search-is", file = "lua/ganymede/plan/search/init.lua",
    find = [[best.seconds / entry.turn - 1]],
    replace = [[entry.turn / best.seconds - 1]],
    breaks = "a search that goes on says that nothing left can be faster",
    test = "spec/plan/progress_spec.lua -f 'comes from a search'",
  },
  {
    name = "2939-best-of-no-metric", file = "lua/ganymede/hooks/checkpoint.lua",
    find = [[  adds_metrics = false })]],
    replace = [[  })]],
    breaks = "CheckpointHook refuses a metric that no evaluation has after the first epoch only",
    test = "spec/train/hooks_spec.lua -f 'when hooks are attached'",
  },
}
