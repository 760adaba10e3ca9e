--- Mutants of what a stranger met who tried the commands of the documents: dead ends, late refusals, silence.
return {
  {
    name = "2820-adapters-of-a-run", file = "lua/ganymede/hub/adapters.lua",
    find = [=[not core.is_file(path .. "/adapter_config.json") and sources.checkpoint_at(path)]=],
    replace = [=[core.is_file(path .. "/index.json") and path]=],
    breaks = "gm.load_adapter and --adapter refuse the folder of a run, which export and generate take",
    test = "spec/hub/carry_spec.lua -f 'adapters of parts'",
  },
  {
    name = "2821-adapters-of-parts", file = "lua/ganymede/hub/export.lua",
    find = [=[if name == item.part then return place end]=],
    replace = [=[if name == item.part then return 1 end]=],
    breaks = "ganymede export adds the adapters of keys and values to the rows of queries",
    test = "spec/hub/carry_spec.lua -f 'adapters of parts'",
  },
  {
    name = "2822-exported-magnitudes", file = "lua/ganymede/nn/adapter.lua",
    find = [=[if not list[1].magnitude then return w end]=],
    replace = [=[do return w end]=],
    breaks = "ganymede export leaves out the magnitudes of DoRA",
    test = "spec/hub/carry_spec.lua -f 'adapters of parts'",
  },
  {
    name = "2823-magnitudes-of-parts", file = "lua/ganymede/nn/adapter.lua",
    find = [=[joined(layer, factors, 1, 1)]=],
    replace = [=[joined(layer, factors, 1, 0)]=],
    breaks = "ganymede export makes zeros of the keys where only queries and values have magnitudes",
    test = "spec/hub/carry_spec.lua -f 'adapters of parts'",
  },
  {
    name = "2824-tokenizer-of-the-data", file = "lua/ganymede/hub/sources.lua",
    find = [=[ or files_of_data(config),]=],
    replace = [=[,]=],
    breaks = "the tokenizer with which a model was trained does not go with it",
    test = "spec/hub/carry_spec.lua -f 'tokenizer of its run'",
  },
  {
    name = "2825-answers-nowhere", file = "lua/ganymede/cli/generate.lua",
    find = [=[if not args.json then return end]=],
    replace = [=[do return end]=],
    breaks = "ganymede generate writes all answers before it says that --json cannot be written",
    test = "spec/cli/generate_spec.lua -f 'does not fit together'",
  },
  {
    name = "2826-prompt-of-a-refusal", file = "lua/ganymede/cli/generate.lua",
    find = [=[  if shown then
    opt.on_text]=],
    replace = [=[  if shown then
    begin()
    opt.on_text]=],
    breaks = "the message that refuses an option stands behind the prompt, on its line",
    test = "spec/cli/generate_spec.lua -f 'no prompt before'",
  },
  {
    name = "2827-steps-from-a-disk", file = "lua/ganymede/generation/recorded.lua",
    find = [=[if core.rests(p) then]=],
    replace = [=[if false then]=],
    breaks = "a message about steps that are not recorded stands between prompt and answer",
    test = "spec/cli/generate_spec.lua -f 'no prompt before'",
  },
  {
    name = "2828-file-as-a-model", file = "lua/ganymede/hub/sources.lua",
    find = [=[  if core.is_file(path) then
    failure]=],
    replace = [=[  if false then
    failure]=],
    breaks = "a file that is no model is refused as a folder that cannot be opened",
    test = "spec/hub/carry_spec.lua -f 'something is wrong'",
  },
  {
    name = "2829-signs-of-life", file = "lua/ganymede/plan/search/progress.lua",
    find = [=[  self.due = core.now() + NEXT]=],
    replace = [=[]=],
    breaks = "a search says each look at what is left",
    test = "spec/plan/progress_spec.lua -f 'is silent'",
  },
  {
    name = "2830-silent-search", file = "lua/ganymede/plan/search/init.lua",
    find = [=[    search.progress:beat(how_far, search, heap, entry)
]=],
    replace = [=[]=],
    breaks = "a search that takes minutes says nothing",
    test = "spec/plan/progress_spec.lua -f 'comes from a search'",
  },
  {
    name = "2831-silent-facts", file = "lua/ganymede/plan/search/facts.lua",
    find = [=[  given.progress:beat(what_for)
]=],
    replace = [=[]=],
    breaks = "a search says nothing while it rehearses the recipe on one rank",
    test = "spec/plan/progress_spec.lua -f 'comes from a search'",
  },
  {
    name = "2832-line-of-json", file = "lua/ganymede/base/json.lua",
    find = [=["column %1: ")]=],
    replace = [=["%1: ")]=],
    breaks = "a damaged line of JSON is said to be at line 2:1:40",
    test = "spec/data/chat_spec.lua -f 'refuses what is wrong'",
  },
  {
    name = "2833-no-tokenizer", file = "lua/ganymede/text/tokenizer.lua",
    find = [=[if not machine.exists(path) then]=],
    replace = [=[if false then]=],
    breaks = "a tokenizer that is not there is refused by its name alone, which nobody knows to be one",
    test = "spec/data/chat_spec.lua -f 'refuses what is wrong'",
  },
  {
    name = "2834-loss-as-a-function", file = "lua/ganymede/nn/criterion.lua",
    find = [=[nparams > 0 then return given end]=],
    replace = [=[nparams > 9 then return given end]=],
    breaks = "a recipe whose loss is a function of output and target ends with `logits must be a tensor; got nil`",
    test = "spec/train/own_loss_spec.lua -n 1 -f 'loss itself'",
  },
  {
    name = "2835-loss-of-nothing", file = "lua/ganymede/nn/criterion.lua",
    find = [=[if loss == nil then]=],
    replace = [=[if false then]=],
    breaks = "a function that makes no loss is refused without a word of what it should do",
    test = "spec/train/own_loss_spec.lua -n 1 -f 'makes nothing'",
  },
  {
    name = "2836-sizes-that-do", file = "lua/ganymede/job/parallel.lua",
    find = [=[if i * i ~= n then list]=],
    replace = [=[if i * i == n then list]=],
    breaks = "sizes that do not fit the job are refused with a list of others that lacks some",
    test = "spec/config/parallel_spec.lua -f refuses",
  },
  {
    name = "2837-chains-of-one-token", file = "host/data/synthetic_dataset.c",
    find = [=[gm_sampler_init(&d->chain->order, vocab_size, true,]=],
    replace = [=[gm_sampler_init(&d->chain->order, vocab_size, false,]=],
    breaks = "each made-up token is followed by itself",
    test = "spec/data/chains_spec.lua -f permutation",
  },
  {
    name = "2838-nameless-hook", file = "lua/ganymede/hooks/base.lua",
    find = [=[hook.name or "without a name"]=],
    replace = [=[hook.name or "?"]=],
    breaks = "a hook without a name is called ? in the message that refuses one of its functions",
    test = "spec/train/trainer_spec.lua -n 1 -f 'which point does not exist'",
  },
  {
    name = "2839-place-of-the-program", file = "lua/ganymede/cli/init.lua",
    find = [=[elseif has_own_place(text) then]=],
    replace = [=[elseif false then]=],
    breaks = "a failure that took over a message begins with a line of Ganymede's own files",
    test = "spec/cli/other_kinds_spec.lua -f 'without that line'",
  },
  {
    name = "2840-nothing-held", file = "kernels/memory.c",
    find = [=[n ? "largest holders: " : "nothing is held yet"]=],
    replace = [=["largest holders: "]=],
    breaks = "out of memory names the largest holders and then none",
    test = "unit pool_limit",
  },
  {
    name = "2841-keep-zero-at-most", file = "lua/ganymede/plan/search/keep.lua",
    find = [=[name == "zero" and ", at most 3," or ""]=],
    replace = [=[""]=],
    breaks = "--keep zero=4 is refused with `an integer of at least 0 was expected; got 4`",
    test = "spec/plan/search_space_spec.lua -f 'has no meaning'",
  },
  {
    name = "2842-idle-ranks", file = "lua/ganymede/train/trainer.lua",
    find = [=[if not self.told_idle then idle_axes.tell() end]=],
    replace = [=[]=],
    breaks = "two ranks that share sequences of a model without any compute the same without a word",
    test = "spec/train/idle_axes_spec.lua -n 1 -f 'named once'",
  },
  {
    name = "2843-counts-of-a-loss", file = "lua/ganymede/train/idle_axes.lua",
    find = [=[entry.bytes > COUNTS * entry.calls]=],
    replace = [=[entry.bytes > 0]=],
    breaks = "the sum of a loss's targets counts as a part of the model that ranks share",
    test = "spec/train/idle_axes_spec.lua -n 1 -f 'first step has sent'",
  },
  {
    name = "2844-bubble-in-any-order", file = "lua/ganymede/plan/bubble.lua",
    find = [=[for _, group in ipairs(options.sorted_keys(class.exposed)) do]=],
    replace = [=[for group in pairs(class.exposed) do]=],
    breaks = "equal simulations and plans differ in the last bits of the bubble",
    test = "spec/plan/simulate_spec.lua -f 'same bits'",
  },
  {
    name = "2845-parts-of-other-chunks", file = "lua/ganymede/plan/search/passes.lua",
    find = [=[of_size[p.chunks] = of_size[p.chunks] or geometry]=],
    replace = [=[of_size[p.chunks] = of_size[1] or geometry]=],
    breaks = "a search takes stages of several chunks for those of one",
    test = "spec/plan/search_passes_spec.lua",
  },
  {
    name = "2846-divided-in-one-way", file = "lua/ganymede/plan/search/bounds.lua",
    find = [=[known[ways] = { total, largest }
  end
  return known[ways][1], known[ways][2]]=],
    replace = [=[known[ways] = { total, largest }
    known[1] = known[1] or known[ways]
  end
  return known[1][1], known[1][2]]=],
    breaks = "a search takes what stage 3 gathers with one tensor size for that with all",
    test = "spec/plan/search_bounds_spec.lua",
  },
  {
    name = "2847-types-that-are-akin", file = "lua/ganymede/hub/families/init.lua",
    find = [=[if (name:match "^%a+%." or "") == before then found]=],
    replace = [=[if before then found]=],
    breaks = "a model_type that nobody has is answered with names of timm and torchvision, which are none",
    test = "spec/hub/pretrained_spec.lua -n 1 -f 'is refused, with the key'",
  },
}
