--- Mutants of what a trial from outside found, by combinations that nobody had tried and by bad input.
--- What a row says: spec/mutants/table.lua.
return {
  {
    name = "3500-sixty-four-pieces", file = "bindings/lua_views.c",
    find = [[if (n < 1) return gm_bad_argument(L, 1, "a list of at least one tensor was expected");]],
    replace = [[if (n < 1 || n > 64) return gm_bad_argument(L, 1, "a list of at least one tensor was expected");]],
    breaks = "a step of more than 64 batches or micro-batches fails where a hook sees its outputs",
    test = "spec/train/many_pieces_spec.lua",
  },
  {
    name = "3501-folder-for-a-file", file = "host/files/files.c",
    find = "if (!stat(path, &s) && S_ISDIR(s.st_mode))",
    replace = "if (0 && !stat(path, &s))",
    breaks = "--stats that names a folder is refused only when all is trained",
    test = "spec/cli/places_spec.lua",
  },
  {
    name = "3502-returned-for-nothing", file = "lua/ganymede/cli/run.lua",
    find = [[if kind ~= "function" and kind ~= "number"]], replace = [[if kind ~= "number"]],
    breaks = "a recipe that returns a function in place of a table is ignored without a word",
    test = "spec/cli/code_flags_spec.lua",
  },
  {
    name = "3503-other-weights", file = "lua/ganymede/train/initialize.lua",
    find = "  replicas.check(model)\n", replace = "  local _ = replicas\n",
    breaks = "ranks that begin with different weights train different models without a word",
    test = "spec/train/replicas_spec.lua",
  },
  {
    name = "3504-other-parts", file = "lua/ganymede/train/replicas.lua",
    find = [[for _, name in ipairs(axes) do where[#where + 1] = name .. " " .. coordinate[name] end]],
    replace = [[local _ = axes, coordinate]],
    breaks = "parts of one parameter, which differ, count as copies of it, and ranks that hold them are refused",
    test = "spec/train/replicas_spec.lua",
  },
  {
    name = "3505-parameters-in-rest", file = "bindings/lua_parameter.c",
    find = "const uint32_t set = gm_layout_cut_axes(&layout);", replace = "const uint32_t set = 0;",
    breaks = "blocks of a parameter that is cut over ranks count as copies of it",
    test = "spec/train/replicas_spec.lua",
  },
  {
    name = "3506-first-bytes", file = "bindings/lua_tensor.c",
    find = "n ? gm_crc32c(0, elements(L, t, true), n) : 0", replace = "n ? gm_crc32c(0, elements(L, t, true), 1) : 0",
    breaks = "the checksum of a tensor knows its first byte only",
    test = "spec/train/replicas_spec.lua",
  },
  {
    name = "3507-second-alarm", file = "host/job/signals.c",
    find = "if (self.late > GRACE_SECONDS) {", replace = "if (self.late) {",
    breaks = "a process that was stopped in the ten seconds after its time limit ends at once when it goes on",
    test = "unit late_alone",
  },
  {
    name = "3508-dying-without-a-core", file = "host/job/supervise_failure.c",
    find = "job->watched.had < LOST_SECONDS + LOST_MORE) return false;",
    replace = "job->watched.had < LOST_SECONDS) return false;",
    breaks = "a rank that was killed and got no core to end with is given up after 30 s",
    test = "unit late_killed",
  },
  {
    name = "3509-stopped-while-ranks-die", file = "host/job/supervise_failure.c",
    find = "gm_patience_add(&job->watched, gm_now(), NULL);",
    replace = [[job->watched.had += job->watched.looked > 0 ? gm_now() - job->watched.looked : 0;
    job->watched.looked = gm_now();]],
    breaks = "time in which the supervisor was stopped counts as time that killed ranks have had",
    test = "unit late_killed",
  },
  {
    name = "3510-trained-twice", file = "lua/ganymede/job/restarts.lua",
    find = [[restarts.UNSAVED:gsub("[()]", "%%%0")]], replace = [[restarts.UNSAVED:gsub("[()]", "%%%0%%%0")]],
    breaks = "a job whose final checkpoint finds a full disk trains again from an older one, and fails again",
    test = "spec/job/restarts_spec.lua",
  },
  {
    name = "3511-unsaved-in-other-words", file = "lua/ganymede/hooks/checkpoint.lua",
    find = [[checkpoint.raise((restarts.UNSAVED .. ": %s")]],
    replace = [[checkpoint.raise((restarts.UNSAVED:gsub("final", "last") .. ": %s")]],
    breaks = "a final checkpoint that could not be saved is not told in the words that end a job with --max-restarts",
    test = "spec/checkpoint/full_disk_spec.lua -f 'trains once'",
  },
  {
    name = "3512-any-parent", file = "lua/ganymede/base/options.lua",
    find = "  if class ~= root then\n", replace = "  if class == nil then\n",
    breaks = "a class of optimizers may have a class of layers or a text as its parent",
    test = "spec/config/classes_spec.lua",
  },
  {
    name = "3513-declared-in-vain", file = "lua/ganymede/base/options.lua",
    find = "if not says[field] then", replace = "if not says[field] and field == 1 then",
    breaks = "an option of a class of one's own that is declared with defualt = 3 has no default",
    test = "spec/config/classes_spec.lua",
  },
  {
    name = "3514-misspelt-field-of-a-hook", file = "lua/ganymede/hooks/base.lua",
    find = "refuse_misspelt(name, fields or {})", replace = "refuse_misspelt(name, {})",
    breaks = "a hook that says needs_outputs = false is given the outputs",
    test = "spec/config/classes_spec.lua",
  },
}
