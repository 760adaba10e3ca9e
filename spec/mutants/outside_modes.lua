--- Mutants of what a user from outside found in images, diffusion and recommendation on ranks, and in files of others.
return {
  {
    name = "3115-whole-weights", file = "lua/ganymede/hub/sources.lua",
    find = [[if array.dtype ~= "i64" then self.file:check_floating(array.name) end]],
    replace = [[]],
    breaks = "weights that another program has quantised are read as plain numbers",
    test = "spec/hub/whole_numbers_spec.lua -f 'where a weight'",
  },
  {
    name = "3116-no-counters", file = "lua/ganymede/hub/sources.lua",
    find = [[if array.dtype ~= "i64" then self.file]],
    replace = [[if true then self.file]],
    breaks = "models with batch norms are refused, because their counters are whole numbers",
    test = "spec/hub/whole_numbers_spec.lua -f counters",
  },
  {
    name = "3117-whole-beginnings", file = "lua/ganymede/hub/initial.lua",
    find = [[if entry.check then entry.check() end]],
    replace = [[]],
    breaks = "init_from reads quantised weights as plain numbers",
    test = "spec/hub/whole_numbers_spec.lua -f init_from",
  },
  {
    name = "3118-whole-adapters", file = "lua/ganymede/hub/adapters.lua",
    find = [[    file:check_floating(array.name)
]],
    replace = [[]],
    breaks = "adapters of whole numbers are read as plain numbers",
    test = "spec/hub/whole_numbers_spec.lua -f adapters",
  },
  {
    name = "3119-none-is-a-class", file = "lua/ganymede/train/fitting_data.lua",
    find = [[if n ~= model.none_class + 1 then return end]],
    replace = [[if n ~= model.none_class + 2 then return end]],
    breaks = "the last class of the data also means that there is no condition",
    test = "spec/data/fitting_spec.lua -f 'stands for none'",
  },
  {
    name = "3120-none-without-drop", file = "lua/ganymede/models/diffusion.lua",
    find = [[self.none_class = opt.drop > 0 and classes and]],
    replace = [[self.none_class = classes and]],
    breaks = "a diffusion model that leaves no condition out is refused for having as many classes as its data",
    test = "spec/data/fitting_spec.lua -f 'one class more'",
  },
  {
    name = "3121-folder-untried", file = "lua/ganymede/base/places.lua",
    find = [[if not ok then failure(2,]],
    replace = [[if false then failure(2,]],
    breaks = "import and export end with status 1 in a folder in which nothing can be written",
    test = "spec/cli/folders_spec.lua -f 'nothing can be written'",
  },
  {
    name = "3122-import-begins", file = "lua/ganymede/cli/import.lua",
    find = [[  places.make(args.out)
]],
    replace = [[]],
    breaks = "import into a folder that cannot be made ends with status 1",
    test = "spec/cli/folders_spec.lua -f 'import is refused'",
  },
  {
    name = "3123-sweep-unlocked", file = "lua/ganymede/cli/sweep/folder.lua",
    find = [[local held = runs_folder.hold(path)]],
    replace = [[local held = { close = function() end }]],
    breaks = "two sweeps write into one folder",
    test = "spec/cli/sweep_spec.lua -f 'has its folder alone'",
  },
  {
    name = "3124-lock-without-advice", file = "lua/ganymede/job/runs_folder.lua",
    find = [[in_use and "wait for its end, or " or ""]],
    replace = [[""]],
    breaks = "the message about a folder in use does not say that one can wait",
    test = "spec/cli/sweep_spec.lua -f 'has its folder alone'",
  },
  {
    name = "3125-samples-never-drawn", file = "lua/ganymede/config/effects.lua",
    find = [[{ "EarlyStopHook", "SampleHook" }]],
    replace = [[{ "EarlyStopHook" }]],
    breaks = "SampleHook without test data is taken, and never draws",
    test = "spec/config/config_spec.lua -f 'without data to evaluate'",
  },
  {
    name = "3126-third-argument", file = "lua/ganymede/models/diffusion.lua",
    find = [[  check_condition(self, condition)
]],
    replace = [[]],
    breaks = "a diffusion model that is called without classes speaks of a third argument that nobody wrote",
    test = "spec/nn/diffusion_spec.lua -f 'refuse what they cannot take'",
  },
}
